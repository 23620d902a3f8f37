"""How a view may draw: its width, whether it may use colour, whether it may leave ASCII."""

from __future__ import annotations

from msgspec import Struct

from compilediag.views.text import clean, truncate

_STYLES = {"bold": "1", "dim": "2", "red": "1;31", "green": "1;32", "yellow": "1;33", "cyan": "36"}

_SIGNS = {"bad": ("✗", "x"), "good": ("✓", "ok"), "blind": ("?", "?"), "warn": ("!", "!")}


class RenderOptions(Struct, frozen=True):
    """Passed to every function that draws; `plain` text goes through `text` first."""

    width: int = 100
    color: bool = False
    ascii_only: bool = False
    root: str = ""
    """Files below this folder are shown relative to it."""
    folder: str = ""
    """Where relative files lie below `root`: "" for the root itself, "examples" below it."""

    def text(self, value: object, limit: int = 400) -> str:
        """Text of the target, safe to print."""
        return clean(value, ascii_only=self.ascii_only, limit=limit)

    def truncate(self, value: str, width: int, *, keep_end: bool = False) -> str:
        """A cleaned text cut to `width` columns."""
        return truncate(value, width, ellipsis="..." if self.ascii_only else "…", keep_end=keep_end)

    def path(self, value: str, limit: int = 200) -> str:
        """A file of the target, relative to `root` where it lies below it."""
        if self.root and value.startswith(self.root.rstrip("/") + "/"):
            value = value[len(self.root.rstrip("/")) + 1 :]
        return self.truncate(self.text(value, limit=4096), limit, keep_end=True)

    def styled(self, value: str, *styles: str) -> str:
        """The text in a style; unchanged without colour. Pad before, not after."""
        if not self.color or not value:
            return value
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{value}\x1b[0m"

    @property
    def arrow(self) -> str:
        return "->" if self.ascii_only else "→"

    @property
    def dot(self) -> str:
        return " | " if self.ascii_only else " · "

    def sign(self, kind: str) -> str:
        """The sign at the start of a headline: "bad", "good", "blind" or "warn"."""
        unicode_sign, ascii_sign = _SIGNS[kind]
        return ascii_sign if self.ascii_only else unicode_sign
