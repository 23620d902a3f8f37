"""Edits of what a call passes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.tree import EditOfTree, Replacement, Source

_ATOMS = (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript)
_PLACEHOLDER = "_"


def argument(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Kind "argument": passes something made of an argument. `code`: the call as `ast.unparse`
    writes it, which of its arguments, and what is passed, with `_` for the argument:
    "_.contiguous()"."""
    text, index, template = edit.code
    found = [
        call
        for call in source.below(source.module, libcst.Call)
        if edit.line in source.lines_of(call) and _plain(source.module.code_for_node(call)) == text
    ]
    if not found:
        raise EditImpossible(f"line {edit.line} has no call {text}")
    for call in found:
        passed = call.args[int(index)]
        if passed.star:
            raise EditImpossible(f"line {edit.line} passes what it holds, not the argument itself")
        yield Replacement(passed.value, _Made(template))


def _plain(code: str) -> str:
    return ast.unparse(ast.parse(code.strip(), mode="eval"))


class _Made:
    """An expression with another in place of its placeholder; equal where the text is."""

    def __init__(self, template: str) -> None:
        self._template = template

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Made) and other._template == self._template

    def __hash__(self) -> int:
        return hash(self._template)

    def __call__(self, value: libcst.BaseExpression) -> libcst.BaseExpression:
        whole = libcst.parse_expression(self._template)
        place = matchers.findall(whole, matchers.Name(_PLACEHOLDER))[0]
        inside = _atom(value) if self._template.startswith(_PLACEHOLDER) else value
        return libcst.ensure_type(whole.deep_replace(place, inside), libcst.BaseExpression)


def _atom(value: libcst.BaseExpression) -> libcst.BaseExpression:
    if isinstance(value, _ATOMS) or value.lpar:
        return value
    return value.with_changes(lpar=[libcst.LeftParen()], rpar=[libcst.RightParen()])
