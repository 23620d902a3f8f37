"""Smaller programs that show the same: statements are taken out of both states while they do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, cast

MOST_TRIES = 80


def reduce_pair(
    before: str, after: str, still_shows: Callable[[str, str], bool], most_lines: int = 30
) -> tuple[str, str]:
    """Takes statements out until both states have at most so many lines, or nothing can go that
    two states need to show what is looked for."""
    before, after = (ast.unparse(ast.parse(text)) for text in (before, after))
    tries, removed = 0, True
    while removed and tries < MOST_TRIES:
        removed = False
        for statement in [*_iterate_statements(ast.parse(before))]:
            if max(map(_count_lines, (before, after))) <= most_lines or tries >= MOST_TRIES:
                return before, after
            texts = _without(before, statement), _without(after, statement)
            if texts[0] != before and _compiles(*texts):
                tries += 1
                if still_shows(*texts):
                    (before, after), removed = texts, True
    return before, after


def _count_lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


def _iterate_statements(tree: ast.Module) -> Iterator[str]:
    """Text of each statement, large ones first."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    yield from sorted(dict.fromkeys(map(ast.unparse, statements)), key=len, reverse=True)


def _without(text: str, statement: str) -> str:
    """The text without one statement; as it is where it has none such."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            body: Any = getattr(node, field, None)
            if isinstance(body, list):  # a lambda has one expression
                kept: Any = [item for item in cast(Any, body) if ast.unparse(item) != statement]
                if len(kept) < len(cast(Any, body)):
                    needs_one = not kept and field == "body" and not isinstance(node, ast.Module)
                    setattr(node, field, [ast.Pass()] if needs_one else kept)
                    return ast.unparse(tree)
    return text


def _compiles(*texts: str) -> bool:
    try:
        for text in texts:
            compile(text, "prog.py", "exec")
    except SyntaxError:
        return False
    return True
