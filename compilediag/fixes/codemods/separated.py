"""Assignments of several names or attributes at once, written one by one in the same line: edits of
one of them need a statement that sets it alone. A line each is made of them when all is edited."""

from __future__ import annotations

from collections.abc import Iterator

import libcst

from compilediag.fixes.codemods.names import names_in
from compilediag.fixes.codemods.purity import code_of
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


def on_lines(source: Source) -> Source:
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
    line: libcst.SimpleStatementLine, names: set[str]
) -> Iterator[libcst.SimpleStatementLine]:
    small = line.body[0]
    if len(line.body) != 1 or not isinstance(small, libcst.Assign):
        return
    pairs = list(_pairs(small))
    targets = [code_of(target) for target, _ in pairs]
    set_here = {_name_of(target) for target, _ in pairs}
    if len(pairs) < 2 or not names & set_here or len({*targets}) < len(targets):
        return
    roots = {_root_of(target) for target, _ in pairs}
    if any(names_in(value) & set_here for _, value in pairs) or any(
        names_in(value) & roots for _, value in pairs[1:] if not _is_plain(value)
    ):
        return
    statements = [libcst.Assign([libcst.AssignTarget(name)], value) for name, value in pairs]
    yield line.with_changes(body=statements)


_Target = libcst.Name | libcst.Attribute


def _name_of(target: _Target) -> str:
    return target.value if isinstance(target, libcst.Name) else target.attr.value


def _root_of(target: _Target) -> str:
    """The object that gets an attribute: what is computed from it may depend on that."""
    return code_of(target.value) if isinstance(target, libcst.Attribute) else ""


def _is_plain(value: libcst.BaseExpression) -> bool:
    return isinstance(value, libcst.Name | libcst.Integer | libcst.Float)


def _is_target(node: libcst.BaseExpression) -> bool:
    """A variable, or an attribute of one."""
    if isinstance(node, libcst.Attribute):
        return isinstance(node.value, libcst.Name)
    return isinstance(node, libcst.Name)


def _pairs(assign: libcst.Assign) -> Iterator[tuple[_Target, libcst.BaseExpression]]:
    """Each name with its value; nothing where one of them is something else."""
    targets = [each.target for each in assign.targets]
    if len(targets) > 1:
        value = assign.value
        constant = isinstance(value, (libcst.Integer, libcst.Float)) or (
            isinstance(value, libcst.Name) and value.value in ("True", "False")
        )
        if constant and all(map(_is_target, targets)):
            yield from ((each, value) for each in targets if isinstance(each, _Target))
        return
    target, values = targets[0], assign.value
    if not isinstance(target, libcst.Tuple) or not isinstance(values, libcst.Tuple):
        return
    given = [each.value for each in values.elements]
    every = (*target.elements, *values.elements)
    one_each = not any(isinstance(each, libcst.StarredElement) for each in every)
    named = [each.value for each in target.elements]
    if one_each and len(named) == len(given) and all(map(_is_target, named)):
        pairs = zip(named, given, strict=True)
        yield from ((name, value) for name, value in pairs if isinstance(name, _Target))
