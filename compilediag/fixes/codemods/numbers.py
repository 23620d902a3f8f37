"""A Python number that code changes, as a 0-dim tensor that is changed in place: a counter, a rate,
a weight. Compiled code reads its value then, where it was a constant of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.tensor_uses import (
    compiled_functions,
    is_compiled,
    is_integer,
    require_tensor_use,
)
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source
from compilediag.fixes.codemods.variables import Variable, Write, variable_at

_IN_PLACE: dict[type[libcst.BaseAugOp], str] = {
    libcst.AddAssign: "add_",
    libcst.SubtractAssign: "sub_",
    libcst.MultiplyAssign: "mul_",
    libcst.DivideAssign: "div_",
    libcst.FloorDivideAssign: "floor_divide_",
    libcst.ModuloAssign: "remainder_",
}
_OF_MODULES = ("Module", "LightningModule")


def number_as_tensor(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "number_as_tensor": `code` has the name of a number that the line reads (or of an
    attribute), and the dtype that all its values have: "int64" or "float64"."""
    name, dtype = edit.code
    variable = variable_at(source, edit.line, name)
    compiled = compiled_functions(source, edit.line)
    yield declaration(source, variable, dtype)
    for write in variable.writes:
        if dtype == "int64":
            _require_integer(source, variable, write)
        yield in_place(source, write)
    for read in variable.reads:
        if not is_compiled(source, read, compiled):
            yield as_number(read)
        else:
            require_tensor_use(source, variable, read)
    yield from undeclared(source, variable)


def declaration(source: Source, variable: Variable, dtype: str) -> Replacement:
    """The first value as a tensor: of a module a buffer that no checkpoint has.

    Raises:
        EditImpossible: the class is none of which this is known.
    """
    first = variable.declared
    value = first.value
    if value is None or _is_no_number(value):
        raise EditImpossible(f"the first value of {variable.name} is not a number")
    if dtype == "int64" and not is_integer(source, variable, value):
        raise EditImpossible(f"the first value of {variable.name} may not be an integer")
    text = source.code(value)
    zero = text in ("0", "0.0", "False")
    made = f"torch.zeros((), dtype=torch.{dtype})"
    made = made if zero else f"torch.tensor({text}, dtype=torch.{dtype})"
    return declared_as(source, variable, made)


def declared_as(source: Source, variable: Variable, made: str) -> Replacement:
    """The first value of a variable as the text of a tensor: of a module a buffer that no
    checkpoint has.

    Raises:
        EditImpossible: the class is none of which this is known.
    """
    first = variable.declared
    if variable.owner is None or not variable.owner.bases:
        return Replacement(first, _Value(made))
    if not is_module(source, variable.owner, first):
        raise EditImpossible(f"{variable.owner.name.value} is not a module whose parts are known")
    me = source.code(_target(first)).partition(".")[0]
    call = f'{me}.register_buffer("{variable.name}", {made}, persistent=False)'
    return Replacement(first, _Statement(call))


def _is_no_number(value: libcst.BaseExpression) -> bool:
    if isinstance(value, libcst.Name):
        return value.value == "None"
    texts = libcst.SimpleString | libcst.FormattedString | libcst.ConcatenatedString
    return isinstance(value, texts | libcst.BaseDict | libcst.List | libcst.Tuple | libcst.Lambda)


def is_module(source: Source, owner: libcst.ClassDef, first: libcst.CSTNode) -> bool:
    """Whether it is a module of torch's, and was made one before the statement."""
    bases = [source.code(each.value) for each in owner.bases]
    module = any(
        base.startswith(("nn.", "torch.nn.")) or base.endswith(_OF_MODULES) for base in bases
    )
    for function in source.around(first, libcst.FunctionDef):
        for call in source.below(function, libcst.Call):
            text = source.code(call.func)
            is_init = text.endswith("__init__") and text != "self.__init__"
            if is_init and source.position(call) < source.position(first):
                methods = [each.name.value for each in source.below(owner, libcst.FunctionDef)]
                return module or "forward" in methods
    return False


def in_place(source: Source, write: Write) -> Replacement:
    """A write as one of the tensor's value.

    Raises:
        EditImpossible: the tensor has no such operation.
    """
    target = source.code(_target(write))
    if isinstance(write, libcst.AugAssign):
        method = _IN_PLACE.get(type(write.operator))
        if method is None:
            raise EditImpossible(f"`{source.code(write)}` has no method that does it in place")
        return Replacement(write, _Call(target, method))
    if write.value is None or _is_no_number(write.value):
        raise EditImpossible(f"`{source.code(write)}` sets no number")
    return Replacement(write, _Call(target, "fill_"))


def as_number(read: libcst.BaseExpression) -> Replacement:
    """A read outside what is compiled: the same number."""
    return Replacement(read, _item)


def undeclared(source: Source, variable: Variable) -> Iterator[Replacement]:
    """The `nonlocal` or `global` of a name that nothing assigns any more."""
    if variable.owner is not None:
        return
    scope = source.scope(variable.declared)
    for statement in source.below(source.module, libcst.SimpleStatementLine):
        found = statement.body[0]
        if not isinstance(found, libcst.Nonlocal | libcst.Global) or len(statement.body) != 1:
            continue
        names = [each.name for each in found.names]
        inside = source.scope(found)
        if (
            [each.value for each in names] == [variable.name]
            and {each.scope for each in inside[variable.name]} == {scope}
            and not statement.leading_lines
            and len(_block(source, statement)) > 1
        ):
            yield Replacement(statement, _gone)


def _block(source: Source, statement: libcst.CSTNode) -> tuple[libcst.CSTNode, ...]:
    return tuple(getattr(source.parent(statement), "body", ()))


def _require_integer(source: Source, variable: Variable, write: Write) -> None:
    fraction = isinstance(write, libcst.AugAssign) and isinstance(
        write.operator, libcst.DivideAssign
    )
    if fraction or write.value is None or not is_integer(source, variable, write.value):
        raise EditImpossible(f"`{source.code(write)}` may set {variable.name} to no integer")


def _target(write: Write) -> libcst.CSTNode:
    return write.targets[0].target if isinstance(write, libcst.Assign) else write.target


@dataclass(frozen=True)
class _Value:
    """Another value for the name of an assignment."""

    code: str

    def __call__(self, node: libcst.Assign | libcst.AnnAssign) -> libcst.Assign:
        target = node.targets[0].target if isinstance(node, libcst.Assign) else node.target
        return libcst.Assign([libcst.AssignTarget(target)], libcst.parse_expression(self.code))


@dataclass(frozen=True)
class _Statement:
    """An expression in place of a statement."""

    code: str

    def __call__(self, node: libcst.CSTNode) -> libcst.Expr:
        return libcst.Expr(libcst.parse_expression(self.code))


@dataclass(frozen=True)
class _Call:
    """A method of the target, called with the assigned value."""

    target: str
    method: str

    def __call__(self, node: Write) -> libcst.Expr:
        function = libcst.parse_expression(f"{self.target}.{self.method}")
        value = node.value
        if value is None:
            raise EditImpossible(f"{self.target} is set to nothing")
        bare = value.with_changes(lpar=(), rpar=()) if value.lpar else value
        return libcst.Expr(libcst.Call(function, [libcst.Arg(bare)]))


def _item(node: libcst.BaseExpression) -> libcst.Call:
    return libcst.Call(libcst.Attribute(node, libcst.Name("item")))


def _gone(node: libcst.CSTNode) -> libcst.RemovalSentinel:
    return libcst.RemoveFromParent()
