"""Every codemod by the kind of its edits, and all edits of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import libcst

from compilediag.fixes.codemods import arguments, assigned, fixed_shape, hooks, numbers, statements
from compilediag.fixes.codemods.edit import Edit, EditImpossible
from compilediag.fixes.codemods.separated import has_shared_lines, on_lines, separated
from compilediag.fixes.codemods.tree import EditOfTree, Source, uses, with_edits, with_imported

_OF_ONE_NAME = ("number_as_tensor",)
"""Edits of a variable, which need statements that set nothing else."""

Codemod = Callable[[Source, Edit], Iterator[EditOfTree]]

CODEMODS: Mapping[str, Codemod] = MappingProxyType(
    {
        "argument": arguments.argument,
        "assigned": assigned.assigned,
        "before": statements.before,
        "disabled_hook": hooks.disabled_hook,
        "fixed_shape": fixed_shape.around,
        "fixed_shape_buckets": fixed_shape.other_buckets,
        "keyword": arguments.keyword,
        "number_as_tensor": numbers.number_as_tensor,
    }
)


_SHOWN: Mapping[str, Callable[[Source, Edit], tuple[int, str]]] = MappingProxyType(
    {"disabled_hook": hooks.shown_registrations}
)


def shown_by_codemods(text: str, edit: Edit) -> tuple[int, str] | None:
    """As `edit.shown` has it."""
    found = _SHOWN.get(edit.kind)
    return found(Source(text), edit) if found is not None else None


def edited_by_codemods(text: str, edits: Sequence[Edit]) -> str:
    """The text of a file with edits.

    Raises:
        EditImpossible: one of them does not fit the text, or would not be valid Python.
    """
    try:
        return _edited(text, edits)
    except libcst.ParserSyntaxError as error:
        raise EditImpossible(f"the edit is not valid Python: {error.message}") from error


def _edited(text: str, edits: Sequence[Edit]) -> str:
    names = {edit.code[0] for edit in edits if edit.kind in _OF_ONE_NAME}
    written = Source(text)
    source = separated(written, names)
    found = [each for edit in dict.fromkeys(edits) for each in CODEMODS[edit.kind](source, edit)]
    tree = with_edits(source, found)
    if source is not written and not has_shared_lines(written):
        tree = on_lines(Source(tree.code)).module
    for package in ("torch", "compilediag"):
        tree = with_imported(tree, package) if uses(tree, package) else tree
    return tree.code
