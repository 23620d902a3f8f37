"""Statements and expressions in place of others, with all their comments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import EditImpossible
from compilediag.fixes.codemods.tree import Replacement, Source


class Once:
    """Something in place of a node that no other edit has changed. Two with one text are equal."""

    def __init__(self, node: libcst.CSTNode, new: Any, text: str = "") -> None:
        self._node = node
        self._new = new
        self._text = text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Once) or not self._text:
            return self is other
        return self._node is other._node and self._text == other._text

    def __hash__(self) -> int:
        return hash((id(self._node), self._text))

    def __call__(self, updated: libcst.CSTNode) -> Any:
        if not updated.deep_equals(self._node):
            raise EditImpossible("one statement would be edited in two ways")
        return self._new


def replaced(node: libcst.If | libcst.SimpleStatementLine, lines: Sequence[str]) -> Replacement:
    """Statements of a line each, or more, in place of one."""
    statements = [libcst.parse_statement(line) for line in lines]
    return Replacement(node, Once(node, with_comments(node, statements), "\n".join(lines)))


def with_comments(
    node: libcst.If | libcst.SimpleStatementLine, statements: Iterable[Any]
) -> libcst.FlattenSentinel[Any]:
    """All comments of a statement above what stands there now."""
    first, *others = statements
    above = node.leading_lines
    if isinstance(node, libcst.SimpleStatementLine):
        new = first.with_changes(
            leading_lines=above,
            **({"trailing_whitespace": node.trailing_whitespace} if not others else {}),
        )
        return libcst.FlattenSentinel([new, *others])
    inside = [
        libcst.EmptyLine(comment=comment)
        for comment in matchers.findall(node.with_changes(leading_lines=()), matchers.Comment())
        if isinstance(comment, libcst.Comment)
    ]
    return libcst.FlattenSentinel([first.with_changes(leading_lines=[*above, *inside]), *others])


def conditional_at(source: Source, line: int) -> libcst.If | libcst.IfExp:
    """The only branch that is decided in a line.

    Raises:
        EditImpossible: there is none, or more than one.
    """
    found: list[libcst.If | libcst.IfExp] = [
        each
        for kind in (libcst.If, libcst.IfExp)
        for each in source.below(source.module, kind)
        if line in source.lines_of(each.test)
    ]
    if len(found) != 1:
        raise EditImpossible(f"line {line} is not one branch")
    return found[0]
