"""Lists of numbers that a number indexes, as tensors: an item of a list needs the index as a
constant of the graph, an item of a tensor does not."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.names import names_in
from compilediag.fixes.codemods.numbers import as_number, declared_as
from compilediag.fixes.codemods.purity import code_of, is_number
from compilediag.fixes.codemods.tensor_uses import (
    compiled_functions,
    is_compiled,
    name_of_function,
    require_tensor_use,
)
from compilediag.fixes.codemods.tree import EditOfTree, Node, Source
from compilediag.fixes.codemods.variables import Place, Variable, variable_at

_KEEP_INTEGERS = frozenset(("range", "len", "int", "list"))
_FRACTIONS = frozenset(("float", "linspace", "logspace", "geomspace"))
_NO_NUMBERS = (
    libcst.SimpleString,
    libcst.FormattedString,
    libcst.Dict,
    libcst.Tuple,
    libcst.Lambda,
    libcst.Comparison,
)


def tables_as_tensors(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "tables_as_tensors": the lists of numbers whose items a line takes by a variable, and
    its function by the same one; each is set at one place, and changed nowhere."""
    function = next(iter(source.functions_at(edit.line)), source.module)
    found = [each for each in source.below(function, libcst.Subscript) if _is_item(each)]
    here = [each for each in found if edit.line in source.lines_of(each)]
    if not here:
        raise NothingToEdit(f"line {edit.line} takes no item of a list")
    indices = {name for each in here for name in names_in(each.slice[0])}
    tables = {_name_of(each): each for each in found if names_in(each.slice[0]) & indices}
    compiled = compiled_functions(source, edit.line)
    for name, item in tables.items():
        variable = variable_at(source, source.lines_of(item).start, name)
        if variable.writes:
            raise EditImpossible(f"`{name}` gets more than one value")
        yield declared_as(source, variable, _as_tensor(variable))
        for read in variable.reads:
            yield from _read(source, variable, read, compiled)


def _is_item(node: libcst.Subscript) -> bool:
    """`betas[t]`, `self.betas[t - 1]`: an item by what is no constant."""
    index = node.slice[0].slice if len(node.slice) == 1 else None
    held = isinstance(node.value, libcst.Name | libcst.Attribute)
    return held and isinstance(index, libcst.Index) and not _is_constant(index.value)


def _is_constant(index: libcst.BaseExpression) -> bool:
    return is_number(index) or not names_in(index)


def _name_of(item: libcst.Subscript) -> str:
    value = item.value
    return value.attr.value if isinstance(value, libcst.Attribute) else code_of(value)


def _as_tensor(variable: Variable) -> str:
    """The list as a tensor of the numbers as Python has them."""
    value = variable.declared.value
    if value is None or not _is_list(value):
        raise EditImpossible(f"`{variable.name}` is not evidently a list of numbers")
    kind = "float64" if _has_fractions(value) else "int64" if _is_whole(value) else None
    if kind is None:
        raise EditImpossible(f"`{variable.name}` may hold integers or fractions")
    return f"torch.tensor({code_of(value)}, dtype=torch.{kind})"


def _is_list(value: libcst.BaseExpression) -> bool:
    """A literal, a comprehension, a list that is repeated, `list(…)` or `….tolist()`, with nothing
    in it that is no number."""
    if any(matchers.findall(value, matchers.OneOf(*(_matcher(kind) for kind in _NO_NUMBERS)))):
        return False
    if isinstance(value, libcst.BinaryOperation):
        return isinstance(value.operator, libcst.Multiply) and isinstance(value.left, libcst.List)
    if isinstance(value, libcst.Call):
        name = name_of_function(value.func)
        return name == "tolist" or (name == "list" and isinstance(value.func, libcst.Name))
    inner = value.elements if isinstance(value, libcst.List) else ()
    nested = any(isinstance(each.value, libcst.List | libcst.ListComp) for each in inner)
    return isinstance(value, libcst.List | libcst.ListComp) and not nested


def _matcher(kind: type[libcst.CSTNode]) -> matchers.BaseMatcherNode:
    return getattr(matchers, kind.__name__)()


def _has_fractions(value: libcst.BaseExpression) -> bool:
    """A fraction takes part in what each item is computed from."""
    calls = {name_of_function(call.func) for call in _below(value, libcst.Call)}
    divided = any(
        isinstance(each.operator, libcst.Divide) for each in _below(value, libcst.BinaryOperation)
    )
    return bool(_below(value, libcst.Float)) or divided or bool(calls & _FRACTIONS)


def _is_whole(value: libcst.BaseExpression) -> bool:
    calls = {name_of_function(call.func) for call in _below(value, libcst.Call)}
    powers = any(
        isinstance(each.operator, libcst.Power) for each in _below(value, libcst.BinaryOperation)
    )
    own = {name for each in _below(value, libcst.CompFor) for name in names_in(each.target)}
    lengths = [each for each in _below(value, libcst.Call) if code_of(each.func) == "len"]
    measured = {id(name) for each in lengths for name in _below(each, libcst.Name)}
    every = [each.value for each in _below(value, libcst.Name) if id(each) not in measured]
    names = {*every} - own - _KEEP_INTEGERS
    return calls <= _KEEP_INTEGERS and not powers and not names


def _below(node: libcst.CSTNode, kind: type[Node]) -> list[Node]:
    found = [node] if isinstance(node, kind) else []
    return found + [each for child in node.children for each in _below(child, kind)]


def _read(
    source: Source,
    variable: Variable,
    read: Place,
    compiled: set[libcst.FunctionDef],
) -> Iterator[EditOfTree]:
    """What reads the list: an item is a number, or a tensor where it is compiled."""
    parent = source.parent(read)
    if isinstance(parent, libcst.Arg):
        call = source.parent(parent)
        if isinstance(call, libcst.Call) and code_of(call.func) == "len":
            return
    if not isinstance(parent, libcst.Subscript) or parent.value is not read:
        raise EditImpossible(f"`{code_of(read)}` is used for more than its items")
    if any(isinstance(each.slice, libcst.Slice) for each in parent.slice):
        raise EditImpossible(f"`{code_of(parent)}` is used as a list")
    if any(source.around(read, libcst.FunctionDef)) and is_compiled(source, read, compiled):
        require_tensor_use(source, variable, parent, is_fresh=True)
    else:
        yield as_number(parent)
