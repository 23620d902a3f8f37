"""Edits of a program's source, as text in and text out: comments and layout stay as they are.

Two kinds of edit, because both keep what the program computes by their form: statements put before
the statement of a line, and a statement put under a condition. Anything else is advice, not an
edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from compilediag.errors import CompilediagError


class EditImpossible(CompilediagError):
    """The source does not have what the edit is about; the message says what."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one statement of a file."""

    file: str
    line: int
    """Any line of the statement, counted from 1."""
    kind: Literal["before", "unless_compiling"]
    """"before": `code` is put in front of the statement, with its indentation. "unless_compiling":
    the statement, a call whose result nobody uses, goes under `if not
    torch.compiler.is_compiling():`."""
    code: tuple[str, ...] = ()
    """Statements, a line each; they may use the name `torch`."""


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text of a file with edits, all of it; `import torch` is added where it lacks one.

    Raises:
        EditImpossible: one of them cannot be made; nothing is edited then.
    """
    import libcst
    from libcst.metadata import MetadataWrapper

    from compilediag.fixes.source_tree import Editor, with_torch_imported

    try:
        module = MetadataWrapper(libcst.parse_module(text))
    except libcst.ParserSyntaxError as error:
        raise EditImpossible(f"the file cannot be parsed: {error.message}") from error
    editor = Editor(edits)
    tree = module.visit(editor)
    if editor.left:
        raise EditImpossible(editor.why())
    return with_torch_imported(tree).code


def by_file(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    """The edits of each file, each once."""
    found: dict[str, list[Edit]] = {}
    for edit in dict.fromkeys(edits):
        found.setdefault(edit.file, []).append(edit)
    return found
