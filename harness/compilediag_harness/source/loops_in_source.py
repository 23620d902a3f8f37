"""The innermost loop around a line of a function: read from its syntax tree, never executed."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator

from compilediag_harness.base.weak_by_identity import cached_by_code
from compilediag_harness.source.writes_in_source import tree_of

_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


@cached_by_code
def loop_around(code: types.CodeType, line: int) -> int | None:
    """First line of the innermost loop in `code` whose body runs `line` again and again; None where
    there is none or no source. Where a comprehension shares a line with what it iterates over, the
    two cannot be separated: the caller counts how often the line ran."""
    if code.co_name in _COMPREHENSIONS:  # a function of its own before Python 3.12
        return code.co_firstlineno
    tree = tree_of(code)
    if tree is None:
        return None
    loops = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.expr | ast.stmt)
        and any(_covers(part, line) for part in _repeated(node))
    ]
    return max(loops, default=None)


def _repeated(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The parts of a loop that run once an iteration; nothing for what is no loop."""
    if isinstance(node, ast.While):
        yield node.test
    if isinstance(node, ast.While | ast.For | ast.AsyncFor):
        yield from node.body
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        yield node.elt
    if isinstance(node, ast.DictComp):
        yield node.key
        yield node.value
    for generator in getattr(node, "generators", ()):
        yield from generator.ifs


def _covers(node: ast.expr | ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
