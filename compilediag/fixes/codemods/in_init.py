"""What a module computes of a list that never changes: computed once, when the list is made."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import fresh_name
from compilediag.fixes.codemods.placed import Once
from compilediag.fixes.codemods.purity import code_of, dotted
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_REDUCTIONS = ("sum", "min", "max", "len", "any", "all")


def once_in_init(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "once_in_init": `sum(self.weights)` of the line is an attribute that `__init__` computes
    where it makes `self.weights`."""
    calls = [each for each in source.below(source.module, libcst.Call) if _is_reduction(each)]
    found = [each for each in calls if edit.line in source.lines_of(each)]
    if not found:
        raise EditImpossible(f"line {edit.line} has no sum of an attribute")
    for text in dict.fromkeys(map(code_of, found)):
        same = [each for each in calls if code_of(each) == text]
        yield from _moved(source, same)


def _is_reduction(call: libcst.Call) -> bool:
    if code_of(call.func) not in _REDUCTIONS or len(call.args) != 1 or call.args[0].star:
        return False
    given = dotted(call.args[0].value)
    return given.startswith("self.") and given.count(".") == 1


def _moved(source: Source, calls: list[libcst.Call]) -> Iterator[EditOfTree]:
    """Raises where anything else of the file could read or change the list."""
    attribute = dotted(calls[0].args[0].value)
    name = attribute.partition(".")[2]
    everywhere = [
        each for each in source.below(source.module, libcst.Attribute) if each.attr.value == name
    ]
    texts = matchers.findall(source.module, matchers.SimpleString())
    named = any(isinstance(each, libcst.SimpleString) and name in each.value for each in texts)
    assigned = [
        each
        for each in source.below(source.module, libcst.Assign)
        if len(each.targets) == 1 and code_of(each.targets[0].target) == attribute
    ]
    if len(assigned) != 1 or len(everywhere) != len(calls) + 1 or named:
        raise EditImpossible(f"`{attribute}` is used for more")
    statement = source.parent(assigned[0])
    function = next(source.around(statement, libcst.FunctionDef), None)
    owners = {next(source.around(each, libcst.ClassDef), None) for each in (*calls, statement)}
    made = function.body if function is not None and function.name.value == "__init__" else None
    if len(owners) != 1 or source.parent(statement) is not made:
        raise EditImpossible(f"`{attribute}` is not made by a statement of `__init__`")
    if not isinstance(assigned[0].value, (libcst.ListComp, libcst.List, libcst.Tuple)):
        raise EditImpossible(f"`{attribute}` may be another variable's too")
    reduction = code_of(calls[0].func)
    kept = f"self.{fresh_name(source.module, f'{name}_{reduction}')}"
    assert isinstance(statement, libcst.SimpleStatementLine), "an assignment"
    if len(statement.body) != 1:
        raise EditImpossible(f"`{attribute}` is made among other statements")
    added = libcst.parse_statement(f"{kept} = {code_of(calls[0])}")
    new = libcst.FlattenSentinel([statement, added])
    yield Replacement(statement, Once(statement, new, code_of(statement)))
    for call in calls:
        yield Replacement(call, Once(call, libcst.parse_expression(kept)))
