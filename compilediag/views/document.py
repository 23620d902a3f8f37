"""Documents: sections of sentences, tables and lists that a view makes of a record.

A view is written once, from a record to sections of blocks; `terminal.py`, `markdown.py` and
`html/` draw them. Texts of the target are made safe for a screen (`RenderOptions.text`) when they
enter a block; what else a format needs is done where it is drawn.

Invariant: the templates in `html/assets/` read fields of these types by their names.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Literal

from msgspec import Struct

from compilediag.views.format import compute_log_share

LINE_CHARS = 4096
"""Of a line to be copied, which is of no use when it is cut."""
LINE_BREAK = "\n"
"""A part of a text that begins a new line in a cell."""

Kind = Literal["bad", "good", "blind", "warn"]


class Code(str):
    """A text of the target: code where a format has markup."""

    __slots__ = ()


class Linked(str):
    """The code of a rule of ours: a link to its page where a format has links."""

    __slots__ = ()


Text = str | tuple[str, ...]
"""A sentence, or its parts: our own words, and `Code`."""


class Paragraph(Struct, frozen=True):
    """A sentence, and what is to be said below it."""

    text: Text = ""
    notes: Sequence[str] = ()
    label: str = ""
    """What the sentence is about, before it."""
    style: str = ""


class Listing(Struct, frozen=True):
    """Texts below a title, each on a line of its own."""

    title: str
    items: Sequence[Text]
    more: str = ""
    """Where the others are found, behind the number of those that are left out."""


class Preformatted(Struct, frozen=True):
    """Lines of a screen, for what no table has."""

    lines: Sequence[str]


class Table(Struct, frozen=True):
    """Cells as texts."""

    head: Sequence[str]
    rows: Sequence[Sequence[Text]]
    title: str = ""
    right: Sequence[str] = ()
    """Names of the columns with numbers."""
    notes: Sequence[str] = ()
    """Sentences below the table."""
    bars: Sequence[float] = ()
    """A number of each row, drawn as a bar in a column of its own."""
    shrink: str = ""
    """The column that is cut where the table is wider than the terminal."""
    keep_start: bool = False
    """It is cut at its end."""
    wide_only: Container[str] = ()
    """Names of the columns that a narrow terminal has no room for."""
    limit: int | None = None
    """Rows to draw on a terminal; a last line counts the others."""
    links: Sequence[str] = ()
    """On a page: an address for the first cell of each row, empty for none; all rows are drawn."""

    @property
    def shares(self) -> list[float]:
        """The bars, 0 to 1."""
        most = max(self.bars, default=0.0)
        return [max(0.0, bar) / most for bar in self.bars] if most > 0 else []


class LineChart(Struct, frozen=True):
    """A small line chart: a line through the values on a logarithmic scale from `low` to `high`, so
    that charts with the same bounds can be compared by eye."""

    title: str
    caption: str
    values: Sequence[float]
    low: float
    high: float
    width: int = 240
    height: int = 40

    @property
    def points(self) -> str:
        """The points of an SVG polyline in a box of `width` by `height`."""
        step = self.width / max(1, len(self.values) - 1)
        shares = (min(1.0, compute_log_share(value, self.low, self.high)) for value in self.values)
        return " ".join(
            f"{index * step:.1f},{(1 - share) * (self.height - 2) + 1:.1f}"
            for index, share in enumerate(shares)
        )


class SourceLine(Struct, frozen=True):
    """A line of the program's own."""

    number: int
    text: str
    blamed: bool


class Excerpt(Struct, frozen=True):
    """The lines around one that a finding is about; without any where they are not known."""

    place: str = ""
    lines: tuple[SourceLine, ...] = ()


class ProvedChange(Struct, frozen=True):
    """A certificate: each point with its figures before and after."""

    change: str
    effect: str
    runs: int
    points: tuple[tuple[str, bool | None, str, tuple[str, ...]], ...]
    doubt: str | None
    """Why it is not valid for this run."""


class Card(Struct, frozen=True):
    """A finding, as texts."""

    number: int
    rule: str
    severity: str
    variable: str
    before: str | None
    after: str | None
    line: str
    """The program's own line to look at first."""
    other_lines: tuple[str, ...]
    """Other lines of the program that led there."""
    library: tuple[str, ...]
    """The place in a library that the line calls, or what is known instead of a line."""
    calls: bool
    """Whether the line is a call of the library's."""
    changed: str
    written: tuple[str, ...]
    when: str
    first_step: int | None
    cost: str
    parts: tuple[str, ...]
    """What else changed by the same common cause."""
    fix: str
    label: str
    """"fix" before a recipe, "advice" before anything else."""
    caveat: str
    settings: tuple[str, ...]
    """What can be typed without an edit."""
    proof: ProvedChange | None
    refused: tuple[tuple[str, str], ...]
    sentence: str = ""
    """What happened, in the program's own names."""
    key: str = ""
    history: str = ""
    """What the variable was, graph by graph."""
    excerpt: Excerpt = Excerpt()
    change: Excerpt = Excerpt()
    """The line that changes the value, where it is another one."""
    relation: str = ""
    """Which findings follow from it, or which one it follows from."""

    @property
    def places(self) -> list[str]:
        """Every line that has to do with it."""
        places = (self.line, *self.library, self.changed, *self.written)
        return [place for place in places if place]

    @property
    def what(self) -> tuple[str, ...]:
        """The sentence, names as code, and what the variable was."""
        parts = enumerate(self.sentence.split("`"))
        named = [Code(part) if n % 2 else part for n, part in parts if part]
        return (*named, *([": ", Code(self.history)] if self.history else []))


Block = Paragraph | Listing | Preformatted | Table


class Section(Struct, frozen=True):
    """A part of a page under a heading."""

    id: str
    short: str
    """Its name among the links at the top."""
    title: str
    blocks: Sequence[Block] = ()
    pictures: Sequence[LineChart] = ()


class Overview(Struct, frozen=True):
    """The first lines of a document, and its sections."""

    title: str
    kind: Kind
    sentence: str
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    """What must be known before the sentence is read."""
    facts: Sequence[tuple[str, str]] = ()

    @property
    def blocks(self) -> list[Block]:
        """The blocks of all sections."""
        return [block for section in self.sections for block in section.blocks]
