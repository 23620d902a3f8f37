"""Assignments of several names or attributes at once, written one by one in the same line: edits of
one of them need a statement that sets it alone. A line each is made of them when all is edited."""

from __future__ import annotations

from collections.abc import Iterator

import libcst

from compilediag.fixes.edits.effects import LITERALS, names_in
from compilediag.fixes.edits.tree import Replacement, Source, with_edits

_Pair = tuple[libcst.BaseAssignTargetExpression, libcst.BaseExpression]


def separate_assignments(source: Source, names: set[str]) -> Source:
    """The file with `a, b = x, y` and `a = b = 0` as statements of their own where a name is one of
    these: only where the order of the assignments makes no difference."""
    found = [
        Replacement(line, lambda _, new=new: new)
        for line in source.below(source.module, libcst.SimpleStatementLine)
        for new in _one_by_one(source, line, names)
    ]
    return Source(with_edits(source, found).code) if found else source


def put_on_lines(source: Source) -> Source:
    """The file with each of several statements of a line on a line of its own."""
    lines = source.below(source.module, libcst.SimpleStatementLine)
    found = [Replacement(line, _on_lines) for line in lines if len(line.body) > 1]
    return Source(with_edits(source, found).code) if found else source


def has_shared_lines(source: Source) -> bool:
    """Whether the author wrote several statements in one line."""
    lines = source.below(source.module, libcst.SimpleStatementLine)
    return any(len(line.body) > 1 for line in lines)


def _on_lines(
    line: libcst.SimpleStatementLine,
) -> libcst.FlattenSentinel[libcst.SimpleStatementLine]:
    alone = [small.with_changes(semicolon=libcst.MaybeSentinel.DEFAULT) for small in line.body]
    first, *others = alone
    made = [libcst.SimpleStatementLine([first], line.leading_lines)]
    made += [libcst.SimpleStatementLine([each]) for each in others]
    made[-1] = made[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
    return libcst.FlattenSentinel(made)


def _one_by_one(
    source: Source, line: libcst.SimpleStatementLine, names: set[str]
) -> Iterator[libcst.SimpleStatementLine]:
    small = line.body[0]
    if len(line.body) != 1 or not isinstance(small, libcst.Assign):
        return
    pairs = _pairs(small)
    targets = [source.code(target) for target, _ in pairs]
    set_here = {text.rpartition(".")[2] for text in targets}
    if len(pairs) < 2 or not names & set_here or len({*targets}) < len(targets):
        return
    # What is computed from an object may depend on the attribute that it gets.
    owners = {text.rpartition(".")[0] for text in targets}
    changed = any(names_in(value) & set_here for _, value in pairs)
    computed = [value for _, value in pairs[1:] if not isinstance(value, (libcst.Name, *LITERALS))]
    if changed or any(names_in(value) & owners for value in computed):
        return
    yield line.with_changes(
        body=[libcst.Assign([libcst.AssignTarget(target)], value) for target, value in pairs]
    )


def _pairs(assign: libcst.Assign) -> list[_Pair]:
    """Each variable, or attribute of one, with its value; nothing where one is something else."""
    targets = [each.target for each in assign.targets]
    values = [assign.value] * len(targets)
    if len(targets) > 1 and not _is_constant(assign.value):
        return []
    if len(targets) == 1:
        if not isinstance(targets[0], libcst.Tuple) or not isinstance(assign.value, libcst.Tuple):
            return []
        elements = (*targets[0].elements, *assign.value.elements)
        if any(isinstance(each, libcst.StarredElement) for each in elements):
            return []
        targets = [each.value for each in targets[0].elements]
        values = [each.value for each in assign.value.elements]
    is_known = len(targets) == len(values) and all(map(_is_of_variable, targets))
    return list(zip(targets, values, strict=True)) if is_known else []  # pyright: ignore[reportReturnType]


def _is_of_variable(target: libcst.BaseExpression) -> bool:
    if isinstance(target, libcst.Attribute):
        return isinstance(target.value, libcst.Name)
    return isinstance(target, libcst.Name)


def _is_constant(value: libcst.BaseExpression) -> bool:
    is_bool = isinstance(value, libcst.Name) and value.value in ("True", "False")
    return is_bool or isinstance(value, (libcst.Integer, libcst.Float))
