"""Numbers that are read out of tensors, kept as tensors where only arithmetic follows."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.names import names_in, parameters_of, require_not_shared
from compilediag.fixes.codemods.purity import (
    ELEMENTWISE,
    FRESH,
    PURE,
    Scope,
    code_of,
    scope_of,
    words,
)
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

ITEM = matchers.Call(func=matchers.Attribute(attr=matchers.Name("item")), args=[])
CAST = matchers.Call(
    func=matchers.Name("float") | matchers.Name("int"),
    args=[matchers.Arg(keyword=None, star="")],
)
READ = ITEM | CAST
_APPEND = matchers.Attribute(value=matchers.Name(), attr=matchers.Name("append"))
_SIZES = words(
    """view reshape expand expand_as flatten unflatten unsqueeze squeeze movedim roll flip zeros
    ones full full_like arange tensor size dim numel to type_as permute transpose tril triu"""
)
"""Functions whose arguments may be sizes or dimensions: those are no tensors."""


def as_tensor(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "as_tensor": a number that is read from a tensor in a line, and with which only
    arithmetic is done, stays a tensor without a gradient."""
    scope = scope_of(source)
    reads = [
        call
        for call in source.below(source.module, libcst.Call)
        if matchers.matches(call, READ) and edit.line in source.lines_of(call)
    ]
    if len(reads) != 1:
        raise NothingToEdit(f"line {edit.line} does not read one number from a tensor")
    (read,) = reads
    function = next(source.around(read, libcst.FunctionDef), None)
    if function is None:
        raise NothingToEdit(f"line {edit.line} is not inside a function")
    tensor = read_tensor(read)
    scope.require_pure(tensor)
    name = _assigned_to(source, read)
    listed = _list_of(source, read)
    if name is not None:
        require_arithmetic_only(source, scope, function, name)
    elif listed is not None:
        _require_summed_only(source, scope, function, listed)
    elif not is_arithmetic(source, scope, read):
        raise EditImpossible(f"`{code_of(read)}` is used for more than arithmetic")
    if isinstance(source.parent(read), libcst.Index):
        yield _taken_by(source, read, tensor)
        return
    yield Replacement(read, Kept(_tensor_in_place_of(scope, read, stored=bool(name or listed))))


class Kept:
    """The same code in place of a node, whatever becomes of what stands below it."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __call__(self, _: libcst.CSTNode) -> libcst.BaseExpression:
        return libcst.parse_expression(self._code)


def _taken_by(source: Source, read: libcst.Call, tensor: libcst.BaseExpression) -> Replacement:
    """`values[place.item()]`: by an index of one element, as torch traces no index without."""
    subscript = source.parent(source.parent(source.parent(read)))
    assert isinstance(subscript, libcst.Subscript), "what has an index"
    if len(subscript.slice) != 1 or not matchers.matches(read, ITEM):
        raise EditImpossible(f"`{code_of(subscript)}` has another index than one that is read")
    text = f"{code_of(subscript.value)}[{code_of(tensor)}.reshape(1)].squeeze(0)"
    return Replacement(subscript, Kept(text))


def read_tensor(read: libcst.Call) -> libcst.BaseExpression:
    """The tensor that a number is read from."""
    if matchers.matches(read, ITEM):
        assert isinstance(read.func, libcst.Attribute), "a method"
        return read.func.value
    inner = read.args[0].value
    return read_tensor(inner) if matchers.matches(inner, ITEM) else inner  # pyright: ignore[reportArgumentType]


def _tensor_in_place_of(scope: Scope, read: libcst.Call, *, stored: bool) -> str:
    tensor = read_tensor(read)
    text = code_of(tensor)
    simple = isinstance(tensor, (libcst.Name, libcst.Attribute, libcst.Subscript, libcst.Call))
    bare = text if simple or tensor.lpar else f"({text})"
    whole = ".long()" if matchers.matches(read, CAST) and code_of(read.func) == "int" else ""
    fresh = isinstance(tensor, libcst.BinaryOperation) or (
        isinstance(tensor, libcst.Call) and scope.torch_function(tensor) in FRESH
    )
    # What is stored must not change where the tensor is written into later.
    copied = ".clone()" if stored and not fresh else ""
    return f"{bare}.detach(){copied}{whole}"


def _assigned_to(source: Source, read: libcst.Call) -> str | None:
    """The variable that holds the number; None where it is used at once."""
    statement = source.parent(read)
    if not isinstance(statement, libcst.Assign):
        return None
    target = statement.targets[0].target
    if len(statement.targets) != 1 or not isinstance(target, libcst.Name):
        raise EditImpossible(f"`{code_of(read)}` is kept in more than a variable")
    return target.value


def _list_of(source: Source, read: libcst.Call) -> str | None:
    """The variable of a list that gets the number by `append`."""
    argument = source.parent(read)
    call = source.parent(argument) if isinstance(argument, libcst.Arg) else None
    if not isinstance(call, libcst.Call) or not matchers.matches(call.func, _APPEND):
        return None
    return libcst.ensure_type(
        libcst.ensure_type(call.func, libcst.Attribute).value, libcst.Name
    ).value


def _require_summed_only(
    source: Source, scope: Scope, function: libcst.FunctionDef, name: str
) -> None:
    """Raises where a list is not one of the function's own, of which only the sum and the length
    are used."""
    require_not_shared(function, name)
    made = 0
    for node in source.below(function, libcst.Name):
        if node.value != name:
            continue
        parent = source.parent(node)
        if isinstance(parent, libcst.AssignTarget):
            empty = matchers.Assign(targets=[matchers.AssignTarget()], value=matchers.List([]))
            made += matchers.matches(source.parent(parent), empty)
            continue
        if isinstance(parent, libcst.Attribute) and matchers.matches(parent, _APPEND):
            continue
        call = source.parent(parent) if isinstance(parent, libcst.Arg) else None
        called = code_of(call.func) if isinstance(call, libcst.Call) and len(call.args) == 1 else ""
        is_sum = called == "sum" and is_arithmetic(source, scope, call)  # pyright: ignore[reportArgumentType]
        if called != "len" and not is_sum:
            line = source.lines_of(node).start
            raise EditImpossible(f"`{name}` is used for more than its sum in line {line}")
    if made != 1 or name in parameters_of(function):
        raise EditImpossible(f"`{name}` is not a list that the function makes")


def require_arithmetic_only(
    source: Source, scope: Scope, function: libcst.FunctionDef, name: str
) -> None:
    """Raises EditImpossible where a variable is used for more than arithmetic."""
    for statement in source.below(function, libcst.Global):
        if name in names_in(statement):
            raise EditImpossible(f"`{name}` is not a local variable of the function")
    for node in source.below(function, libcst.Name):
        if node.value != name or is_target(source, node):
            continue
        if isinstance(source.parent(node), libcst.Index) or not is_arithmetic(source, scope, node):
            line = source.lines_of(node).start
            raise EditImpossible(f"`{name}` is used for more than arithmetic in line {line}")


def is_target(source: Source, node: libcst.Name) -> bool:
    """Whether it is written to, or no variable at all but an attribute or keyword."""
    parent = source.parent(node)
    if isinstance(parent, libcst.AssignTarget):
        return True
    return isinstance(parent, (libcst.Attribute, libcst.Arg)) and (
        node in (getattr(parent, "attr", None), getattr(parent, "keyword", None))
    )


def is_arithmetic(source: Source, scope: Scope, node: libcst.BaseExpression) -> bool:
    """Whether a tensor does there what its number does."""
    parent = source.parent(node)
    if isinstance(parent, libcst.BinaryOperation):
        return True
    if isinstance(parent, libcst.UnaryOperation):
        return isinstance(parent.operator, (libcst.Minus, libcst.Plus))
    if isinstance(parent, (libcst.Comparison, libcst.ComparisonTarget)):
        whole = source.parent(parent) if isinstance(parent, libcst.ComparisonTarget) else parent
        assert isinstance(whole, libcst.Comparison)
        identity = (libcst.In, libcst.NotIn, libcst.Is, libcst.IsNot)
        return not any(isinstance(each.operator, identity) for each in whole.comparisons)
    if isinstance(parent, libcst.Index):
        return _is_read_index(source, scope, parent)
    if isinstance(parent, libcst.AugAssign):
        return node is parent.value
    if isinstance(parent, libcst.Arg):
        call = source.parent(parent)
        assert isinstance(call, libcst.Call)
        return scope.torch_function(call) in PURE - _SIZES and not parent.star
    return False


def _is_read_index(source: Source, scope: Scope, index: libcst.Index) -> bool:
    """Whether only a new value is made from the element: with a tensor for its index it is a copy,
    which nobody may write into for the whole."""
    subscript = source.parent(source.parent(index))
    if not isinstance(subscript, libcst.Subscript) or isinstance(
        subscript.value, (libcst.List, libcst.Tuple, libcst.Dict)
    ):
        return False
    parent = source.parent(subscript)
    if isinstance(parent, libcst.Attribute):
        call = source.parent(parent)
        return isinstance(call, libcst.Call) and scope.torch_function(call) in ELEMENTWISE | FRESH
    return isinstance(parent, libcst.BinaryOperation)
