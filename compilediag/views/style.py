"""Options of drawing: width, colour, ASCII only; with the helpers that respect them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from compilediag.views.text import clean, measure_width, truncate, wrap

_STYLES = {"bold": "1", "dim": "2", "red": "1;31", "green": "1;32", "yellow": "1;33", "cyan": "36"}

COLORS = {"bad": "red", "good": "green", "blind": "yellow", "warn": "yellow"}

_SIGNS = {"bad": ("✗", "x"), "good": ("✓", "ok"), "blind": ("?", "?"), "warn": ("!", "!")}


class RenderOptions(Struct, frozen=True):
    """Passed to every function that draws; text of the target goes through `clean` first."""

    width: int = 100
    color: bool = False
    ascii_only: bool = False
    root: str = ""
    """Files below this folder are shown relative to it."""
    folder: str = ""
    """The folder of relative files below `root`: "" for the root itself, "examples" below it."""

    def clean(self, value: object, limit: int = 400) -> str:
        """Make text of the target safe to print, cut to `limit` characters."""
        return clean(value, ascii_only=self.ascii_only, limit=limit)

    def truncate(self, value: str, width: int, *, keep_end: bool = False) -> str:
        """Cut a cleaned text to `width` columns."""
        return truncate(value, width, ellipsis=self.ellipsis, keep_end=keep_end)

    def format_path(self, value: str, limit: int = 200) -> str:
        """Format a file of the target, relative to `root` where it lies below it; a long one from
        one of its folders on."""
        if self.root and value.startswith(self.root.rstrip("/") + "/"):
            value = value[len(self.root.rstrip("/")) + 1 :]
        shown = self.truncate(self.clean(value, limit=4096), limit, keep_end=True)
        folders = shown.partition("/") if shown.startswith(self.ellipsis) else ()
        return f"{self.ellipsis}/{folders[2]}" if folders and folders[2] else shown

    def paint(self, value: str, style: str) -> str:
        """Apply a style to a text; unchanged without colour. Pad before, not after."""
        if not self.color or not value or not style:
            return value
        return f"\x1b[{_STYLES[style]}m{value}\x1b[0m"

    def format_place(self, file: str, line: int | None, limit: int = 60) -> str:
        """`model.py:7`; the file alone where the line is not known."""
        return f"{self.format_path(file, limit)}:{line}" if line else self.format_path(file, limit)

    def format_change(self, before: object, after: object, limit: int = 400) -> str:
        """`[1, 16] → [8, 16]`."""
        return f"{self.clean(before, limit)} {self.arrow} {self.clean(after, limit)}"

    def format_change_after(self, lead: str, before: object, after: object, limit: int) -> str:
        """Format the change behind `lead`; "" where one of the two is not known."""
        if before is None or after is None:
            return ""
        return lead + self.format_change(before, after, limit)

    def wrap(
        self, text: str, first: str = "", rest: str | None = None, *, style: str = ""
    ) -> list[str]:
        """Wrap a text to lines that fit the screen, the first behind `first`, the others `rest`, or
        as far indented."""
        return self._indent(wrap(text, self._compute_room(first, rest)), first, rest, style)

    def wrap_parts(
        self,
        parts: Sequence[str],
        first: str = "",
        rest: str | None = None,
        *,
        style: str = "",
        whole: bool = False,
    ) -> list[str]:
        """Wrap parts with dots between them to as few lines as possible; only a part that is too
        long for one line is broken, and none if `whole`."""
        room = self._compute_room(first, rest)
        lines: list[str] = []
        for part in parts:
            joined = f"{lines[-1]}{self.dot}{part}" if lines else part
            if lines and measure_width(joined) <= room:
                lines[-1] = joined
            else:
                lines += [part] if whole else wrap(part, room)
        return self._indent(lines, first, rest, style)

    def _compute_room(self, first: str, rest: str | None) -> int:
        return max(self.width - max(measure_width(first), measure_width(rest or "")), 10)

    def _indent(self, lines: Iterable[str], first: str, rest: str | None, style: str) -> list[str]:
        rest = " " * measure_width(first) if rest is None else rest
        behind = [(rest if index else first) + line for index, line in enumerate(lines)]
        return [self.paint(line, style) for line in behind] if style else behind

    def wrap_warning(self, text: str, label: str = "") -> list[str]:
        """Wrap a text behind the sign of a warning and a label, in its colour."""
        return self.wrap(text, f"{self.get_sign('warn')} {label}", "  ", style="yellow")

    def wrap_commands(self, commands: Sequence[str]) -> list[str]:
        """Wrap the last line of a screen: the commands that lead on from here, to be pasted."""
        texts = [f"compilediag {command}" for command in commands]
        return self.wrap_parts(texts, "  next: ", whole=True)

    @property
    def arrow(self) -> str:
        return "->" if self.ascii_only else "→"

    @property
    def dot(self) -> str:
        return " | " if self.ascii_only else " · "

    @property
    def ellipsis(self) -> str:
        return "..." if self.ascii_only else "…"

    @property
    def marker(self) -> str:
        """The sign before the line of source to look at."""
        return ">" if self.ascii_only else "▸"

    @property
    def bar(self) -> str:
        """The line between the numbers of source lines and their text."""
        return "|" if self.ascii_only else "│"

    def get_sign(self, kind: str) -> str:
        """Get the sign at the start of a headline: of "bad", "good", "blind" or "warn"."""
        unicode_sign, ascii_sign = _SIGNS[kind]
        return ascii_sign if self.ascii_only else unicode_sign


PLAIN = RenderOptions()
"""A hundred columns without colour."""
