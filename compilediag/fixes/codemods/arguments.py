"""Edits of what a call passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible, normalized
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_ATOMS = (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript)
_PLACEHOLDER = "_"


def argument(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "argument": passes something made of an argument. `code`: the call as `ast.unparse`
    writes it, which of its arguments, and what is passed, with `_` for the argument:
    "_.contiguous()"."""
    text, index, template = edit.code
    for call in _calls_of(source, edit.line, text):
        passed = call.args[int(index)]
        if passed.star:
            raise EditImpossible(f"line {edit.line} passes what it holds, not the argument itself")
        yield Replacement(passed.value, Made(template))


def keyword(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "keyword": passes one more argument by name. `code`: the call as `ast.unparse` writes
    it, the keyword, and the expression."""
    text, name, expression = edit.code
    for call in _calls_of(source, edit.line, text):
        if any(each.keyword is not None and each.keyword.value == name for each in call.args):
            raise EditImpossible(f"line {edit.line} passes {name} already")
        yield Replacement(call, _With(name, expression))


def _calls_of(source: Source, line: int, text: str) -> list[libcst.Call]:
    found = [
        call
        for call in source.below(source.module, libcst.Call)
        if line in source.lines_of(call) and normalized(source.module.code_for_node(call)) == text
    ]
    if not found:
        raise EditImpossible(f"line {line} has no call {text}")
    return found


def call_with_text(source: Source, line: int, text: str) -> libcst.Call:
    """The only call around a line that reads so, but for quotes, blanks and comments.

    Raises:
        EditImpossible: there is none, or more than one.
    """
    found = _calls_of(source, line, normalized(text))
    if len(found) > 1:
        raise EditImpossible(f"line {line} has the call {text} more than once")
    return found[0]


@dataclass(frozen=True, slots=True)
class _With:
    name: str
    expression: str

    def __call__(self, call: libcst.Call) -> libcst.Call:
        made = libcst.parse_expression(f"f({self.name}={self.expression})")
        return call.with_changes(args=[*call.args, *libcst.ensure_type(made, libcst.Call).args])


class Made:
    """An expression with another in place of its placeholder; equal where the text is."""

    def __init__(self, template: str) -> None:
        self._template = template

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Made) and other._template == self._template

    def __hash__(self) -> int:
        return hash(self._template)

    def __call__(self, value: libcst.BaseExpression) -> libcst.BaseExpression:
        whole: libcst.CSTNode = libcst.parse_expression(self._template)
        inside = _atom(value) if self._template.startswith(_PLACEHOLDER) else value
        for place in matchers.findall(whole, matchers.Name(_PLACEHOLDER)):
            whole = libcst.ensure_type(whole.deep_replace(place, inside), libcst.BaseExpression)
        return libcst.ensure_type(whole, libcst.BaseExpression)


def _atom(value: libcst.BaseExpression) -> libcst.BaseExpression:
    if isinstance(value, _ATOMS) or value.lpar:
        return value
    return value.with_changes(lpar=[libcst.LeftParen()], rpar=[libcst.RightParen()])
