"""What events quote of the target: a line of its code, and text of bounded length.

Secrets leave it where it is written (`redaction/`); the outside half escapes it.
"""

from __future__ import annotations

from dataclasses import dataclass

TEXT_LIMIT = 16_384
"""Longest text of the target kept in one field, in characters."""


@dataclass(frozen=True, slots=True)
class Location:
    """A line of code. `function` is the code object's name, as torch prints it."""

    file: str
    line: int
    function: str = ""


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text`, cut to `limit` characters, with a note of how many are lost."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [{len(text) - limit} more characters]"
