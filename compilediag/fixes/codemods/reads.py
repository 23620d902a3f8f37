"""Numbers that are read out of tensors: kept as tensors where only arithmetic follows, or read all
at once before a loop that reads them one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import fresh_name, names_in, parameters_of, written_in
from compilediag.fixes.codemods.purity import (
    ELEMENTWISE,
    FRESH,
    PURE,
    Scope,
    code_of,
    is_number,
    scope_of,
    words,
)
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source

_ITEM = matchers.Call(func=matchers.Attribute(attr=matchers.Name("item")), args=[])
_CAST = matchers.Call(
    func=matchers.Name("float") | matchers.Name("int"),
    args=[matchers.Arg(keyword=None, star="")],
)
_READ = _ITEM | _CAST
_SIZES = words(
    """view reshape expand expand_as flatten unflatten unsqueeze squeeze movedim roll flip zeros
    ones full full_like arange tensor size dim numel to type_as permute transpose tril triu"""
)
"""Functions whose arguments may be sizes or dimensions: those are no tensors."""


# Kept as tensors


def as_tensor(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "as_tensor": a number that is read from a tensor in a line, and with which only
    arithmetic is done, stays a tensor without a gradient."""
    scope = scope_of(source)
    reads = [
        call
        for call in source.below(source.module, libcst.Call)
        if matchers.matches(call, _READ) and edit.line in source.lines_of(call)
    ]
    if len(reads) != 1:
        raise EditImpossible(f"line {edit.line} does not read one number from a tensor")
    (read,) = reads
    function = next(source.around(read, libcst.FunctionDef), None)
    if function is None:
        raise EditImpossible(f"line {edit.line} is in no function")
    tensor = _read_tensor(read)
    scope.require_pure(tensor)
    name = _assigned_to(source, read)
    if name is not None:
        require_arithmetic_only(source, scope, function, name)
    elif not is_arithmetic(source, scope, read):
        raise EditImpossible(f"`{code_of(read)}` is used for more than arithmetic")
    if isinstance(source.parent(read), libcst.Index):
        yield _taken_by(source, read, tensor)
        return
    yield Replacement(read, _Kept(_tensor_in_place_of(scope, read, stored=bool(name))))


class _Kept:
    """The same code in place of a node, whatever becomes of what stands below it."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __call__(self, _: libcst.CSTNode) -> libcst.BaseExpression:
        return libcst.parse_expression(self._code)


def _taken_by(source: Source, read: libcst.Call, tensor: libcst.BaseExpression) -> Replacement:
    """`values[place.item()]`: by an index of one element, as torch traces no index without."""
    subscript = source.parent(source.parent(source.parent(read)))
    assert isinstance(subscript, libcst.Subscript), "what has an index"
    if len(subscript.slice) != 1 or not matchers.matches(read, _ITEM):
        raise EditImpossible(f"`{code_of(subscript)}` has another index than one that is read")
    text = f"{code_of(subscript.value)}[{code_of(tensor)}.reshape(1)].squeeze(0)"
    return Replacement(subscript, _Kept(text))


def _read_tensor(read: libcst.Call) -> libcst.BaseExpression:
    if matchers.matches(read, _ITEM):
        assert isinstance(read.func, libcst.Attribute), "a method"
        return read.func.value
    inner = read.args[0].value
    return _read_tensor(inner) if matchers.matches(inner, _ITEM) else inner  # pyright: ignore[reportArgumentType]


def _tensor_in_place_of(scope: Scope, read: libcst.Call, *, stored: bool) -> str:
    tensor = _read_tensor(read)
    text = code_of(tensor)
    simple = isinstance(tensor, (libcst.Name, libcst.Attribute, libcst.Subscript, libcst.Call))
    bare = text if simple or tensor.lpar else f"({text})"
    whole = ".long()" if matchers.matches(read, _CAST) and code_of(read.func) == "int" else ""
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


def require_arithmetic_only(
    source: Source, scope: Scope, function: libcst.FunctionDef, name: str
) -> None:
    """Raises EditImpossible where a variable is used for more than arithmetic."""
    for statement in source.below(function, libcst.Global):
        if name in names_in(statement):
            raise EditImpossible(f"`{name}` is no variable of the function's own")
    for node in source.below(function, libcst.Name):
        if node.value != name or _is_target(source, node):
            continue
        if isinstance(source.parent(node), libcst.Index) or not is_arithmetic(source, scope, node):
            line = source.lines_of(node).start
            raise EditImpossible(f"`{name}` is used for more than arithmetic in line {line}")


def _is_target(source: Source, node: libcst.Name) -> bool:
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


# Read at once


def read_at_once(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "read_at_once": what a loop reads one by one is read by one `.tolist()` before it."""
    reads = [
        call
        for call in source.below(source.module, libcst.Call)
        if matchers.matches(call, _READ)
        and edit.line in source.lines_of(call)
        and isinstance(_read_tensor(call), (libcst.Subscript, libcst.Name))
        and not any(
            matchers.matches(outer, _CAST) and _read_tensor(outer) is _read_tensor(call)
            for outer in source.around(call, libcst.Call)
        )
    ]
    if not reads:
        raise EditImpossible(f"line {edit.line} reads no element of a tensor")
    done = set[int]()
    for read in reads:
        tensor = _read_tensor(read)
        if isinstance(tensor, libcst.Name):
            for each in _of_loop_variable(source, read, tensor.value):
                if id(each.node) not in done:
                    done.add(id(each.node))
                    yield each
        else:
            yield from _of_element(source, read, tensor)


_Loop = libcst.For | libcst.CompFor


def _of_loop_variable(source: Source, read: libcst.CSTNode, name: str) -> Iterator[Replacement]:
    """`for value in tensor`, all uses of which read a number or go over it again."""
    loops = list(_loops_around(source, read))
    chain: list[tuple[_Loop, libcst.Name | libcst.BaseExpression]] = []
    for loop in loops:
        iterated = _iterated_by(loop, name)
        if iterated is None:
            continue
        chain.append((loop, iterated))
        if not isinstance(iterated, libcst.Name):
            break
        name = iterated.value
    if not chain:
        raise EditImpossible("the variable that is read is of no loop")
    for loop, _ in chain:
        yield from _reads_of(source, loop, len(chain), chain)
    outermost, tensor = chain[-1]
    if not isinstance(tensor, (libcst.Name, libcst.Attribute)):
        raise EditImpossible(f"`{code_of(tensor)}` is no variable")
    _require_unchanged(source, outermost, tensor)
    flat = ".flatten()" if len(chain) == 1 else f".flatten({len(chain) - 1})"
    yield Replacement(tensor, _Kept(f"{code_of(tensor)}{flat}.tolist()"))


def _loops_around(source: Source, node: libcst.CSTNode) -> Iterator[_Loop]:
    """Loops and loops of comprehensions in which a node is repeated, the innermost first."""
    while not isinstance(node, (libcst.FunctionDef, libcst.Lambda, libcst.Module)):
        inside, node = node, source.parent(node)
        if isinstance(node, libcst.For) and inside is node.body:
            yield node
        elif isinstance(node, libcst.BaseComp) and not isinstance(inside, libcst.CompFor):
            inner: libcst.CompFor | None = node.for_in
            loops: list[libcst.CompFor] = []
            while inner is not None:
                loops.append(inner)
                inner = inner.inner_for_in
            yield from reversed(loops)


def _iterated_by(loop: _Loop, name: str) -> libcst.BaseExpression | None:
    """What a variable goes over in a loop."""
    pairs: list[tuple[libcst.BaseExpression, libcst.BaseExpression]] = [(loop.target, loop.iter)]
    if matchers.matches(
        loop.iter, matchers.Call(func=matchers.Name("enumerate"), args=[matchers.Arg()])
    ):
        assert isinstance(loop.iter, libcst.Call)
        if isinstance(loop.target, libcst.Tuple) and len(loop.target.elements) == 2:
            pairs = [(loop.target.elements[1].value, loop.iter.args[0].value)]
    elif matchers.matches(loop.iter, matchers.Call(func=matchers.Name("zip"))):
        assert isinstance(loop.iter, libcst.Call)
        if isinstance(loop.target, libcst.Tuple):
            targets = [element.value for element in loop.target.elements]
            pairs = list(zip(targets, [each.value for each in loop.iter.args], strict=False))
    for target, iterated in pairs:
        if isinstance(target, libcst.Name) and target.value == name:
            return iterated
    return None


def _reads_of(
    source: Source,
    loop: _Loop,
    depth: int,
    chain: list[tuple[_Loop, Any]],
) -> Iterator[Replacement]:
    """All uses of a loop's variable: each reads it, or is what the next loop goes over."""
    at = next(i for i, (each, _) in enumerate(chain) if each is loop)
    name = _variable_of(loop, chain[at][1])
    within: libcst.CSTNode = loop if isinstance(loop, libcst.For) else source.parent(loop)
    while isinstance(within, libcst.CompFor):
        within = source.parent(within)
    function = next(source.around(loop, libcst.FunctionDef), source.module)
    for node in source.below(function, libcst.Name):
        if (
            node.value != name
            or _is_target(source, node)
            or node in list(source.below(loop.target, libcst.Name))
        ):
            continue
        read = _read_by(source, node)
        inside = within in (*source.around(node, libcst.CSTNode),)
        next_one = at > 0 and chain[at - 1][1] is node
        if not inside or not (next_one or (at == 0 and read is not None)):
            line = source.lines_of(node).start
            raise EditImpossible(f"`{name}` is more than read in line {line}")
        if read is not None and not next_one:
            yield Replacement(read, _Kept(_number_of(read, name)))


def _variable_of(loop: _Loop, iterated: libcst.BaseExpression) -> str:
    for name in names_in(loop.target):
        if _iterated_by(loop, name) is iterated:
            return name
    raise EditImpossible("the variable of the loop is not evident")


def _read_by(source: Source, node: libcst.Name) -> libcst.Call | None:
    for call in source.around(node, libcst.Call):
        if matchers.matches(call, _READ) and _read_tensor(call) is node:
            return call
    return None


def _number_of(read: libcst.Call, number: str) -> str:
    cast = matchers.matches(read, _CAST)
    return f"{code_of(read.func)}({number})" if cast else number


def _of_element(
    source: Source, read: libcst.Call, element: libcst.BaseExpression
) -> Iterator[EditOfTree]:
    """`tensor[i, j].item()` in loops over the places."""
    tensor, places = _element(element)
    loops = [each for each in _loops_around(source, read) if isinstance(each, libcst.For)]
    counted = {name for loop in loops for name in _counters(loop)}
    if (
        not loops
        or not places
        or not all(
            is_number(place) or (isinstance(place, libcst.Name) and place.value in counted)
            for place in places
        )
    ):
        raise EditImpossible(f"`{code_of(element)}` is no element by the counter of a loop")
    function = next(source.around(read, libcst.FunctionDef), source.module)
    chosen = None
    for loop in loops:
        try:
            _require_unchanged(source, loop, tensor)
        except EditImpossible:
            if chosen is None:
                raise
            break
        chosen = loop
    assert chosen is not None, "there is a loop"
    _require_always_read(source, read, chosen, tensor)
    name = fresh_name(function, _named(tensor, len(places)))
    flat = ".flatten()" if len(places) == 1 else f".flatten({len(places) - 1})"
    yield Insertion(chosen, (f"{name} = {code_of(tensor)}{flat}.tolist()",))  # pyright: ignore[reportArgumentType]
    index = "".join(f"[{code_of(place)}]" for place in places)
    yield Replacement(read, _Kept(_number_of(read, f"{name}{index}")))


def _named(tensor: libcst.Name | libcst.Attribute, places: int) -> str:
    """A variable for its numbers: each tensor and number of places has another."""
    owner, _, short = code_of(tensor).rpartition(".")
    shape = {1: "values", 2: "rows"}.get(places, f"values_by_{places}")
    return f"{short}_{shape}" + (f"_of_{owner.replace('.', '_')}" if owner else "")


def _element(
    node: libcst.BaseExpression,
) -> tuple[libcst.Name | libcst.Attribute, list[libcst.BaseExpression]]:
    places: list[libcst.BaseExpression] = []
    while isinstance(node, libcst.Subscript):
        indices = [each.slice for each in node.slice]
        if not all(isinstance(each, libcst.Index) for each in indices):
            raise EditImpossible(f"`{code_of(node)}` is more than an element")
        places[:0] = [each.value for each in indices if isinstance(each, libcst.Index)]
        node = node.value
    if not isinstance(node, (libcst.Name, libcst.Attribute)):
        raise EditImpossible(f"`{code_of(node)}` is no variable")
    return node, places


def _counters(loop: libcst.For) -> Iterator[str]:
    """Variables of a loop that are whole numbers."""
    if matchers.matches(loop.iter, matchers.Call(func=matchers.Name("range"))):
        if isinstance(loop.target, libcst.Name):
            yield loop.target.value
    elif matchers.matches(loop.iter, matchers.Call(func=matchers.Name("enumerate"))):
        target = loop.target
        if isinstance(target, libcst.Tuple) and isinstance(target.elements[0].value, libcst.Name):
            yield target.elements[0].value.value


def _require_always_read(
    source: Source, read: libcst.CSTNode, loop: _Loop, tensor: libcst.BaseExpression
) -> None:
    """Raises where a condition in the loop is about the tensor: there may be none."""
    root = code_of(tensor)
    for kind in (libcst.If, libcst.IfExp, libcst.Try):
        for each in source.around(read, kind):
            if not any(outer is loop for outer in source.around(each, libcst.For)):
                continue
            if isinstance(each, libcst.Try) or root in code_of(each.test):
                raise EditImpossible(f"`{root}` is read under a condition")


def _require_unchanged(source: Source, loop: _Loop, tensor: libcst.BaseExpression) -> None:
    """Raises where a loop may change a tensor whose numbers are read before it."""
    root = code_of(tensor)
    name = root.partition(".")[0]
    function = next(source.around(loop, libcst.FunctionDef), None)
    own = {name} if function is None else _may_share(source, function, name)
    body: libcst.CSTNode = loop
    while isinstance(body, libcst.CompFor):
        body = source.parent(body)
    if name in _rebound(source, body) or own & set(written_in(source, body)):
        raise EditImpossible(f"the loop may change `{root}`")
    scope = scope_of(source)
    for call in source.below(body, libcst.Call):
        passed = {each for argument in call.args for each in names_in(argument.value)}
        if name not in passed or matchers.matches(call, _READ):
            continue
        known = code_of(call.func) in ("enumerate", "zip", "len", "range")
        if (
            not known
            and scope.torch_function(call) not in PURE
            and any(
                isinstance(argument.value, libcst.Name) and argument.value.value == name
                for argument in call.args
            )
        ):
            raise EditImpossible(f"`{code_of(call)}` may change `{root}`")


def _may_share(source: Source, function: libcst.FunctionDef, name: str) -> set[str]:
    """Variables that may be, or be a part of, what another one is: the parameters, where it is
    one, and what is made from it."""
    shared = {name}
    if name in parameters_of(function):
        shared |= parameters_of(function)
    made_from = list[tuple[str, set[str]]]()
    for assignment in source.below(function, libcst.Assign):
        names = names_in(assignment.value)
        for target in assignment.targets:
            if not isinstance(target.target, (libcst.Subscript, libcst.Attribute)):
                made_from += [(each, names) for each in names_in(target.target)]
    shared |= {each for made, names in made_from if made == name for each in names}
    for _ in made_from:
        shared |= {each for each, names in made_from if names & shared}
    return shared


def _rebound(source: Source, node: libcst.CSTNode) -> set[str]:
    """Variables that get another value."""
    kinds = (libcst.AssignTarget, libcst.AugAssign, libcst.AnnAssign, libcst.For, libcst.NamedExpr)
    targets = [each.target for kind in kinds for each in source.below(node, kind)]
    plain = [each for each in targets if not isinstance(each, (libcst.Subscript, libcst.Attribute))]
    attributes = [code_of(each).partition(".")[0] for each in targets if _is_attribute(each)]
    return {*attributes, *(name for each in plain for name in names_in(each))}


def _is_attribute(node: libcst.CSTNode) -> bool:
    return isinstance(node, libcst.Attribute)
