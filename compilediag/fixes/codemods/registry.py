"""Every codemod by the kind of its edits, and all edits of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from compilediag.fixes.codemods import calls, global_state, statements
from compilediag.fixes.codemods.edit import Edit
from compilediag.fixes.codemods.tree import (
    EditOfTree,
    Source,
    uses_torch,
    with_edits,
    with_torch_imported,
)

Codemod = Callable[[Source, Edit], Iterator[EditOfTree]]

CODEMODS: Mapping[str, Codemod] = MappingProxyType(
    {
        "argument": calls.argument,
        "before": statements.before,
        "mode": global_state.mode,
        "set_first": global_state.set_first,
        "unless_compiling": statements.unless_compiling,
    }
)


def edited_by_codemods(text: str, edits: Sequence[Edit]) -> str:
    """The text of a file with edits.

    Raises:
        EditImpossible: one of them does not fit the text.
    """
    source = Source(text)
    found = [each for edit in dict.fromkeys(edits) for each in CODEMODS[edit.kind](source, edit)]
    tree = with_edits(source, found)
    return (with_torch_imported(tree) if uses_torch(tree) else tree).code
