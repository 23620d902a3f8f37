"""Functions that are compiled and are generators: torch runs these eager."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.codemods.contexts import is_compile
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import fresh_name, uses_of
from compilediag.fixes.codemods.purity import scope_of
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_TAKING_ALL = ("list", "tuple", "sum", "sorted", "max", "min")
_YIELD = matchers.SimpleStatementLine(body=[matchers.Expr(matchers.Yield())])


def generator_as_list(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "generator_as_list": a generator function of the line that is compiled returns the list
    of what it yields, where every call of it takes all items."""
    scope = scope_of(source)
    functions = [
        each
        for each in source.below(source.module, libcst.FunctionDef)
        if any(edit.line in source.lines_of(part) for part in (each, *each.decorators))
    ]
    function = functions[-1] if functions else None
    if function is None or source.parent(function) is not source.module:
        raise EditImpossible(f"line {edit.line} is not inside a function of the module")
    name = function.name.value
    if not is_compile(scope, function) or function.asynchronous:
        raise EditImpossible(f"`{name}` is not compiled where it is defined")
    yields = list(source.below(function, libcst.Yield))
    lines = [
        each
        for each in source.below(function, libcst.SimpleStatementLine)
        if matchers.matches(each, _YIELD)
    ]
    if not yields or len(lines) != len(yields):
        raise EditImpossible(f"what `{name}` yields gives it a value")
    if any(True for _ in source.below(function, libcst.Return)):
        raise EditImpossible(f"`{name}` also returns a value")
    if any(each is not function for each in source.below(function, libcst.FunctionDef)):
        raise EditImpossible(f"`{name}` defines functions")
    calls = [each for each in uses_of(source, source.module, name) if each is not function.name]
    if not calls or not all(_takes_all(source, each) for each in calls):
        raise EditImpossible(f"not every call of `{name}` consumes everything it yields")
    yield Replacement(function, _AsList(fresh_name(function, "items")))


def _takes_all(source: Source, name: libcst.Name) -> bool:
    call = source.parent(name)
    if not isinstance(call, libcst.Call) or call.func is not name:
        return False
    parent = source.parent(call)
    if isinstance(parent, libcst.CompFor):
        whole = source.parent(parent)
        return parent.iter is call and isinstance(whole, (libcst.ListComp, libcst.SetComp))
    if isinstance(parent, libcst.For):
        leaving = (libcst.Break, libcst.Return, libcst.Raise, libcst.Yield)
        return parent.iter is call and not any(
            True for kind in leaving for _ in source.below(parent.body, kind)
        )
    taker = source.parent(parent) if isinstance(parent, libcst.Arg) else None
    return (
        isinstance(taker, libcst.Call)
        and isinstance(taker.func, libcst.Name)
        and taker.func.value in _TAKING_ALL
        and len(taker.args) == 1
    )


@dataclass(frozen=True)
class _AsList:
    items: str

    def __call__(self, function: libcst.FunctionDef) -> libcst.FunctionDef:
        body = function.body.visit(_Appends(self.items))
        assert isinstance(body, libcst.IndentedBlock)
        first = list[Any](body.body)
        docstring = matchers.SimpleStatementLine(body=[matchers.Expr(matchers.SimpleString())])
        at = int(matchers.matches(first[0], docstring))
        made = libcst.parse_statement(f"{self.items} = []")
        last = libcst.parse_statement(f"return {self.items}")
        return function.with_changes(
            body=body.with_changes(body=[*first[:at], made, *first[at:], last])
        )


class _Appends(libcst.CSTTransformer):
    def __init__(self, items: str) -> None:
        super().__init__()
        self._items = items

    def leave_Yield(  # noqa: N802
        self, original_node: libcst.Yield, updated_node: libcst.Yield
    ) -> libcst.BaseExpression:
        """What is yielded is kept: of another generator each item."""
        value: Any = updated_node.value
        if isinstance(value, libcst.From):
            function, value = "extend", value.item
        else:
            function, value = "append", value or libcst.Name("None")
        called = libcst.parse_expression(f"{self._items}.{function}")
        return libcst.Call(called, [libcst.Arg(value.with_changes(lpar=(), rpar=()))])
