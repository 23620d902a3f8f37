"""Assignments of several names at once, written one by one in the same line: edits of one of the
names need a statement that sets it alone."""

from __future__ import annotations

from collections.abc import Iterator

import libcst

from compilediag.fixes.codemods.names import names_in
from compilediag.fixes.codemods.tree import Replacement, Source, with_edits


def separated(source: Source, names: set[str]) -> Source:
    """The file with `a, b = x, y` and `a = b = 0` as statements of their own where a name is one of
    these: only where the order of the assignments makes no difference."""
    found = [
        Replacement(line, lambda _, new=new: new)
        for line in source.below(source.module, libcst.SimpleStatementLine)
        for new in _one_by_one(line, names)
    ]
    return Source(with_edits(source, found).code) if found else source


def _one_by_one(
    line: libcst.SimpleStatementLine, names: set[str]
) -> Iterator[libcst.SimpleStatementLine]:
    small = line.body[0]
    if len(line.body) != 1 or not isinstance(small, libcst.Assign):
        return
    pairs = list(_pairs(small))
    targets = [target.value for target, _ in pairs]
    if len(pairs) < 2 or not names & {*targets} or len({*targets}) < len(targets):
        return
    if any(names_in(value) & {*targets} for _, value in pairs):
        return
    statements = [libcst.Assign([libcst.AssignTarget(name)], value) for name, value in pairs]
    yield line.with_changes(body=statements)


def _pairs(assign: libcst.Assign) -> Iterator[tuple[libcst.Name, libcst.BaseExpression]]:
    """Each name with its value; nothing where one of them is something else."""
    targets = [each.target for each in assign.targets]
    if len(targets) > 1:
        value = assign.value
        constant = isinstance(value, (libcst.Integer, libcst.Float)) or (
            isinstance(value, libcst.Name) and value.value in ("True", "False")
        )
        if constant and all(isinstance(each, libcst.Name) for each in targets):
            yield from ((each, value) for each in targets if isinstance(each, libcst.Name))
        return
    target, values = targets[0], assign.value
    if not isinstance(target, libcst.Tuple) or not isinstance(values, libcst.Tuple):
        return
    given = [each.value for each in values.elements]
    plain = all(isinstance(each, (libcst.Name, libcst.Integer, libcst.Float)) for each in given)
    named = [each.value for each in target.elements]
    if plain and len(named) == len(given):
        pairs = [(n, v) for n, v in zip(named, given, strict=True) if isinstance(n, libcst.Name)]
        if len(pairs) == len(named):
            yield from pairs
