"""An edit of a program's source: a place of a file, and what is done there.

Whether it fits what stands there, its operator decides on the text: one that does not fit is no
edit. Nothing here needs libcst, which is an extra.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
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
    """The operator and what it does there (`edits/rewrite.py`)."""
    code: tuple[str, ...] = ()
    """What the operator puts there or is about, as its docstring says. Statements may use the name
    `torch`."""


def normalized(text: str) -> str:
    """An expression as `ast.unparse` writes it; the text itself where it is none."""
    try:
        return ast.unparse(ast.parse(text.strip(), mode="eval"))
    except (SyntaxError, ValueError):
        return text


def by_file(edits: Iterable[Edit]) -> dict[str, list[Edit]]:
    """The edits of each file, each once."""
    found: dict[str, list[Edit]] = {}
    for edit in dict.fromkeys(edits):
        found.setdefault(edit.file, []).append(edit)
    return found
