"""Edits of one statement that keep what is computed by their form."""

from __future__ import annotations

from collections.abc import Iterator

import libcst

from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.names import names_in
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Source


def before(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "before": puts `code`, statements of a line each, in front of the statement."""
    statement = source.statement_at(edit.line)
    used = {name for line in edit.code for name in names_in(libcst.parse_statement(line))}
    if inside := used & {*_bound_inside(source, statement)}:
        raise EditImpossible(f"`{min(inside)}` is assigned only inside the statement")
    yield Insertion(statement, edit.code)


def _bound_inside(source: Source, statement: libcst.CSTNode) -> Iterator[str]:
    """Names that comprehensions, lambdas and `:=` of a statement give values."""
    for each in source.below(statement, libcst.CompFor):
        yield from names_in(each.target)
    for each in source.below(statement, libcst.Param):
        yield each.name.value
    for each in source.below(statement, libcst.NamedExpr):
        yield from names_in(each.target)
