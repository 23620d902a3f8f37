"""Brackets and strings in guard text: where they close, what lies outside them."""

from __future__ import annotations

_OPENING = "([{"
_CLOSING = ")]}"


def unquoted(text: str) -> str:
    """A string literal's content; other text as it is."""
    text = text.strip()
    if text[:1] == "b" and text[1:2] in ("'", '"'):
        text = text[1:]
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`, strings skipped; -1 without one."""
    depth, index, quote = 0, start, ""
    while index < len(text):
        char = text[index]
        if quote:
            if char == "\\":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return -1


def split_outside(text: str, separator: str) -> tuple[str, ...]:
    """`text` cut at every `separator` that is in no bracket and no string."""
    parts: list[str] = []
    start = index = 0
    while index < len(text):
        char = text[index]
        if char in _OPENING:
            end = closing(text, index)
            if end < 0:
                break  # An open bracket: nothing behind it is outside.
            index = end
        elif char in "'\"":
            index = _string_end(text, index)
        elif text.startswith(separator, index):
            parts.append(text[start:index])
            start = index + len(separator)
            index = start - 1
        index += 1
    return (*parts, text[start:])


def _string_end(text: str, start: int) -> int:
    """Index of the quote that ends the string at `start`, or of the last character."""
    index = start + 1
    while index < len(text) and text[index] != text[start]:
        index += 2 if text[index] == "\\" else 1
    return min(index, len(text) - 1)
