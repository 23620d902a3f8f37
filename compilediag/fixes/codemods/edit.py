"""Edits of a program's source: what they are, and all those of a file at once, text in and text
out.

An edit names a place and what is done there. Whether it fits what stands there, its codemod decides
on the text: one that does not fit is no edit. Anything else is advice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compilediag.errors import CompilediagError

NEEDS_LIBCST = 'edits need libcst: pip install "compilediag[fix]"'
"""Why no edit can be made where the extra is not installed."""


class EditImpossible(CompilediagError):
    """The source does not have what the edit is about; the message says what."""


class NothingToEdit(EditImpossible):
    """The place has nothing of the kind that the edit is about: there is nothing to say of it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change at one place of a file."""

    file: str
    line: int
    """Any line of the statement, counted from 1."""
    kind: str
    """Which codemod (`codemods/registry.py`)."""
    code: tuple[str, ...] = ()
    """What the codemod puts there or is about, as its docstring says. Statements may use the name
    `torch`."""


def normalized(text: str) -> str:
    """An expression as `ast.unparse` writes it; the text itself where it is none."""
    try:
        return ast.unparse(ast.parse(text.strip(), mode="eval"))
    except (SyntaxError, ValueError):
        return text


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text of a file with edits, all of it; `import torch` is added where the edits need it.

    Raises:
        EditImpossible: one of them cannot be made; nothing is edited then.
    """
    from compilediag.fixes.codemods.registry import edited_by_codemods

    return edited_by_codemods(text, edits)


def shown(text: str, edit: Edit) -> tuple[int, str] | None:
    """A line of the file that an edit changes, and how it reads then, where the edit was made of
    another place of the file; None for other edits.

    Raises:
        EditImpossible: the edit cannot be made.
    """
    from compilediag.fixes.codemods.registry import shown_by_codemods

    return shown_by_codemods(text, edit)


def by_file(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    """The edits of each file, each once."""
    found: dict[str, list[Edit]] = {}
    for edit in dict.fromkeys(edits):
        found.setdefault(edit.file, []).append(edit)
    return found
