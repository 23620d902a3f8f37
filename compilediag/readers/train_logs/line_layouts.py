"""Layouts of lines, learned: a trainer prints one line again and again with other figures.

A line that was read field by field teaches one expression for the whole line: its text as it
stands, its fields as figures, and everything else that may be a figure left open. The next lines
are read by it in one go. One that does not fit is read field by field again, so that a layout can
make reading faster and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from compilediag.readers.torch_logs.counts import ANSI
from compilediag.readers.train_logs.lines import RANK
from compilediag.readers.train_logs.patterns import LinePattern, Told

RANK_NAME = ""
"""Stands for the name of the rank among the names of fields."""

LAYOUTS_KEPT = 8
"""Layouts of one output: several trainers, ranks with and without a name, a field now and then."""

LESSONS_LIMIT = 24
"""After so many layouts that were learned no more are: the lines have none."""

LONGEST_TAUGHT = 1024
"""Longer lines teach nothing."""

# As long as they get, so that two of them never stand side by side: that would not be linear.
_OPEN = re.compile(r"\d(?:[\d.,:eE+-]{0,2048}\d)?|[ \t]{2,2048}")
_NUMBER_LIKE = r"[\d.,:eE+-]{1,64}"


@dataclass(frozen=True, slots=True)
class Layout:
    """One learned line."""

    shape: LinePattern
    pattern: re.Pattern[str]
    names: tuple[str, ...]
    """The field of each group, in their order; `RANK_NAME` comes first."""


@dataclass(slots=True)
class Layouts:
    """The layouts of one output, that which fitted last at the front."""

    known: list[Layout] = field(default_factory=list[Layout])
    lessons: int = 0

    def read(self, text: str) -> tuple[LinePattern, str | None, Told] | None:
        """Shape, name of the rank and figures of a line; None where no layout fits."""
        for place, layout in enumerate(self.known):
            found = layout.pattern.match(text)
            if found is not None:
                if place:
                    self.known.insert(0, self.known.pop(place))
                told = dict(zip(layout.names, found.groups(), strict=False))
                return layout.shape, told.pop(RANK_NAME), told
        return None

    def learn(self, shape: LinePattern, text: str, told: Mapping[str, str]) -> None:
        """Learns from a line, with its escapes, that was read field by field."""
        if self.lessons >= LESSONS_LIMIT or len(text) > LONGEST_TAUGHT or not shape.learnable:
            return
        self.lessons += 1
        made = _layout(shape, text, told)
        if made is not None:
            self.known.insert(0, made)
            del self.known[LAYOUTS_KEPT:]


def _layout(shape: LinePattern, text: str, told: Mapping[str, str]) -> Layout | None:
    """None where the figures do not stand on the line as they were read: escapes stand in them."""
    rank = RANK.match(text)
    plain, where = _without_escapes(text)
    places: list[tuple[int, int, str, str]] = []
    for name, spellings in shape.fields.items():
        if name in told:
            place = next(((at, each) for each in spellings if (at := each.place(plain))), None)
            if place is None:
                return None
            (begin, end), spelling = place
            places.append((where[begin], where[end - 1] + 1, name, spelling.expression))
    places.sort()
    expression = _prefix(rank)
    position = rank.end() if rank is not None else 0
    for begin, end, _, figure in places:
        if begin < position:
            return None
        expression += _opened(text[position:begin]) + figure
        position = end
    expression += _opened(text[position:]) + r"\Z"
    names = tuple(name for _, _, name, _ in places)
    layout = Layout(shape, re.compile(expression), (RANK_NAME, *names))
    found = layout.pattern.match(text)
    figures = [told[name] for name in names]
    return layout if found is not None and list(found.groups()[1:]) == figures else None


def _without_escapes(text: str) -> tuple[str, list[int]]:
    """The text as it is read, and where each of its characters stands in the whole."""
    plain, where, position = "", list[int](), 0
    for escape in (*ANSI.finditer(text), None):
        end = len(text) if escape is None else escape.start()
        plain += text[position:end]
        where += range(position, end)
        position = end if escape is None else escape.end()
    return plain, where


def _prefix(rank: re.Match[str] | None) -> str:
    """The name of a rank as a group, and what stands around it; an empty group where none is."""
    if rank is None:
        return "()"
    name = rank["name"] or rank["mpi"] or rank["label"]
    whole = rank[0]
    begin = whole.index(name) if rank["mpi"] is None else whole.index(",") + 1
    around = (_opened(whole[:begin]), _opened(whole[begin + len(name) :]))
    digits = re.search(r"\d{1,9}\Z", name)
    letters = name[: digits.start()] if digits is not None else name
    return rf"{around[0]}({re.escape(letters)}\d{{1,9}}){around[1]}"


def _opened(text: str) -> str:
    """A text in which every number may be another one, and every gap wider or narrower."""
    made = ""
    position = 0
    for found in _OPEN.finditer(text):
        made += re.escape(text[position : found.start()])
        made += r"[ \t]{1,200}" if found[0].isspace() else _NUMBER_LIKE
        position = found.end()
    return made + re.escape(text[position:])
