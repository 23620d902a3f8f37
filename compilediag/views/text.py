"""Escaping, width and wrapping of text that comes from the target, so that it is safe and fits.

Invariant: what `clean` returns holds no control character, no terminal escape and no character
that changes the direction of text or hides itself, so that it can be printed anywhere.
"""

from __future__ import annotations

import re
import unicodedata

LIMIT_CHARS = 400
"""Longest text of the target that a view shows; the receipt has the rest."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that act on a terminal or cannot be seen; `Cf` holds the bidi overrides."""

_ASCII_SIGNS = {"→": "->", "–": "-", "—": "-", "…": "...", "×": "x", "·": "|", "≥": ">=", "≤": "<="}
"""Our own signs for terminals that show ASCII only."""


def clean(text: object, *, ascii_only: bool = False, limit: int = LIMIT_CHARS) -> str:
    """Cut to `limit` characters and escape everything unprintable (`\\x1b`, `\\u202e`)."""
    raw = str(text)
    shown = raw[:limit]
    if not (shown.isascii() and shown.isprintable()):
        shown = "".join(_escape_char(char, ascii_only) for char in shown)
    return shown + ("..." if ascii_only else "…") if len(raw) > limit else shown


def _escape_char(char: str, ascii_only: bool) -> str:
    if ascii_only and char in _ASCII_SIGNS:
        return _ASCII_SIGNS[char]
    hidden = unicodedata.category(char) in _HIDDEN or (ascii_only and not char.isascii())
    # As Python writes it: `\\n`, `\\x1b`, `\\u202e`.
    return char.encode("unicode_escape").decode("ascii") if hidden else char


def measure_width(text: str) -> int:
    """Measure a cleaned text in terminal columns: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    total = 0
    for char in text:
        if unicodedata.combining(char):
            continue
        total += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return total


def pad(text: str, width: int) -> str:
    """Pad a text with blanks to `width` columns."""
    return text + " " * (width - measure_width(text))


def truncate(text: str, width: int, *, ellipsis: str = "…", keep_end: bool = False) -> str:
    """Cut a text to `width` columns, at its end or (a path) at its start."""
    if measure_width(text) <= width:
        return text
    room = max(width - measure_width(ellipsis), 0)
    shown = ""
    for char in reversed(text) if keep_end else text:
        if measure_width(shown + char) > room:
            break
        shown += char
    return ellipsis + shown[::-1] if keep_end else shown + ellipsis


_SHELL_LINE = re.compile(r'export \w+=(?:"[^"]*"|\w+)')


def wrap(text: str, width: int) -> list[str]:
    """Wrap a text to lines of at most `width` columns, broken at blanks; a longer word is cut, but
    not a line for a shell, which is to be pasted whole."""
    lines: list[str] = []
    line = ""
    for kept in _SHELL_LINE.sub(lambda found: found[0].replace(" ", "\0"), text).split(" "):
        word = kept.replace("\0", " ")
        joined = f"{line} {word}" if line else word
        if measure_width(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        line = word
        while measure_width(line) > width and kept == word:
            head = truncate(line, width, ellipsis="") or line[0]
            lines.append(head)
            line = line[len(head) :]
    return [*lines, line] if line or not lines else lines
