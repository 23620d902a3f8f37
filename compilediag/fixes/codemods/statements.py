"""Edits of one statement that keep what is computed by their form."""

from __future__ import annotations

from collections.abc import Iterator

import libcst
from libcst import matchers

from compilediag.fixes.codemods.edit import Edit, EditImpossible, NothingToEdit
from compilediag.fixes.codemods.names import names_in
from compilediag.fixes.codemods.tree import EditOfTree, Insertion, Replacement, Source

_CALL = matchers.SimpleStatementLine(body=[matchers.Expr(value=matchers.Call())])


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


def unless_compiling(source: Source, edit: Edit) -> Iterator[EditOfTree]:
    """Edit "unless_compiling": puts a call whose result nobody uses under `if not
    torch.compiler.is_compiling():`."""
    statement = source.statement_at(edit.line)
    if not matchers.matches(statement, _CALL):
        raise NothingToEdit(f"line {edit.line} is more than a call whose result nobody uses")
    yield Replacement(statement, under_condition)


_NOT_COMPILING = "not torch.compiler.is_compiling()"


def under_condition(statement: libcst.SimpleStatementLine | libcst.If) -> libcst.If:
    """The statement under `if not torch.compiler.is_compiling():`."""
    condition = libcst.parse_expression(_NOT_COMPILING)
    bare = statement.with_changes(leading_lines=())
    above = statement.leading_lines
    return libcst.If(condition, libcst.IndentedBlock([bare]), leading_lines=above)


def under_further_condition(branch: libcst.If) -> libcst.If:
    """A branch without other sides that is not taken while compiled either."""
    test = branch.test
    weaker = (libcst.IfExp, libcst.Lambda, libcst.BooleanOperation)
    if isinstance(test, weaker) and not test.lpar:
        test = test.with_changes(lpar=[libcst.LeftParen()], rpar=[libcst.RightParen()])
    first = libcst.parse_expression(_NOT_COMPILING)
    return branch.with_changes(test=libcst.BooleanOperation(first, libcst.And(), test))
