"""The table of lines that trainers print: templates made into bounded regular expressions.

The table that ships with the package and a pattern file of the user have one form
(docs/trainlog.md). A template is plain text around one figure, so that no expression can be written
that takes more than linear time: every repetition is bounded, and none stands inside another.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any, cast

from compilediag.errors import UsageError

_TOML_PARSER = "tomllib" if sys.version_info >= (3, 11) else "tomli"

STEP, RUN, END, BAR = "step", "run", "end", "bar"

Told = dict[str, str]
"""Field to figure, as one line spells it."""

RATES = {
    "samples_per_s": Decimal(1),
    "samples_per_step": Decimal(1),
    "tokens_per_s": Decimal(1),
    "tokens_per_s_per_device": Decimal(1),
    "tflops_per_s_per_device": Decimal(1),
    "mfu_percent": Decimal("0.01"),
    "mfu_fraction": Decimal(1),
}
"""Fields of which each line has its own; with what makes them the unit of their series."""

SECONDS = {"step_s": Decimal(1), "step_ms": Decimal("0.001")}
LAST = ("loss", "grad_norm")
PEAKS = {
    f"{kind}_peak_{unit}": Decimal(factor)
    for kind in ("allocated", "reserved")
    for unit, factor in (("bytes", 1), ("mib", 2**20), ("gib", 2**30), ("gb", 10**9))
}
WHOLE = ("train_s", "steps_per_s", "samples_per_s", "tokens_per_s")
"""What a line of kind "end" may tell of the whole run."""

FIELDS: Mapping[str, frozenset[str]] = {
    STEP: frozenset({"step", "time", "nan_steps", *RATES, *SECONDS, *LAST, *PEAKS}),
    RUN: frozenset(PEAKS),
    END: frozenset(WHOLE),
    BAR: frozenset(LAST),
}
"""What a line of each kind may tell."""

_NUMBER = (
    r"([-+]?\d{1,24}(?:,\d{3}){0,6}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,3})?(?!\.?\d)"
    r"|[-+]?(?:nan|NaN|NAN|inf|Inf|INF)(?:inity)?\b)"
)
_FIGURES = {
    "<number>": _NUMBER,
    "<integer>": r"(\d{1,15}(?:,\d{3}){0,4})(?![\d.]\d|\d)",
    "<timestamp>": r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)",
}
_FIGURE = re.compile(r"<(?:number|integer|timestamp)>")
TEMPLATE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way in which a figure stands on a line."""

    literal: str
    """The text before the figure and its blanks: found many times faster than an expression."""
    rest: re.Pattern[str]
    """What follows it; its first group is the figure."""
    expression: str
    """Of the figure alone, as a group."""

    def place(self, text: str) -> tuple[int, int] | None:
        """Where the figure begins and ends; None where it is not on the line."""
        place = text.find(self.literal)
        while place >= 0:
            found = self.rest.match(text, place + len(self.literal))
            if found is not None:
                return found.span(1)
            place = text.find(self.literal, place + 1)
        return None


@dataclass(frozen=True, slots=True)
class Moment:
    """The timestamp of a line, wherever it stands."""

    rest: re.Pattern[str]
    expression: str

    def place(self, text: str) -> tuple[int, int] | None:
        """As of `Spelling`."""
        found = self.rest.search(text)
        return None if found is None else found.span(1)


@dataclass(frozen=True, slots=True)
class LinePattern:
    """One kind of line of one trainer."""

    trainer: str
    kind: str
    """"step", "run" (tells of the whole run), "end" (its last words) or "bar" (tqdm's)."""
    marker: bytes
    """Without this text a line is none of these; empty for a bar."""
    unless: bytes
    """With this text it is none of these either; empty where there is no such text."""
    needs: tuple[str, ...]
    """Fields without which the line is not understood."""
    fields: Mapping[str, tuple[Spelling | Moment, ...]]
    """Name to the ways in which it is spelled."""
    seconds: str = "own"
    """"own" (of this one step), "mean" (of the steps since the line before), or "between" (the
    time between two lines)."""
    before: re.Pattern[str] | None = None
    """Of a bar: what stands before it."""
    mean_rate: bool = False
    """Of a bar: its rate is the mean since its beginning, not of the last few steps."""
    learnable: bool = True
    """No text of it holds a digit, so that its lines stay its own when all numbers are others."""


@cache
def built_in() -> tuple[LinePattern, ...]:
    """The table that ships with the package."""
    from importlib.resources import files

    text = (
        files("compilediag.readers.train_logs")
        .joinpath("patterns.toml")
        .read_text(encoding="utf-8")
    )
    return shapes_in(text, "patterns.toml")


def shapes_with(path: str | None) -> tuple[LinePattern, ...]:
    """The user's patterns first, so that theirs are taken where both fit; then the package's.

    Raises:
        UsageError: the file cannot be read, or is no pattern file; the message says where.
    """
    if path is None:
        return built_in()
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(1 << 20)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the pattern file {path} cannot be read: {error}") from error
    return (*shapes_in(text, path), *built_in())


def shapes_in(text: str, name: str) -> tuple[LinePattern, ...]:
    """The shapes of a pattern file.

    Raises:
        UsageError: as of `shapes_with`; `name` is what the message calls the file.
    """
    parser = import_module(_TOML_PARSER)
    try:
        table = cast(Mapping[str, Any], parser.loads(text))
    except parser.TOMLDecodeError as error:
        raise UsageError(f"the pattern file {name} is no TOML: {error}") from error
    lines = table.get("line")
    if not isinstance(lines, list) or set(table) != {"line"}:
        raise UsageError(f"the pattern file {name} must hold tables called [[line]], nothing else")
    made: list[LinePattern] = []
    for number, entry in enumerate(cast(list[Any], lines), start=1):
        try:
            made.append(_shape(entry))
        except ValueError as error:
            raise UsageError(
                f"the pattern file {name}: [[line]] number {number}: {error}"
            ) from error
    return tuple(made)


_KEYS = frozenset(
    {"trainer", "kind", "marker", "unless", "needs", "seconds", "before", "rate", "fields"}
)


def _shape(entry: Any) -> LinePattern:
    if not isinstance(entry, dict):
        raise ValueError("it is no table")  # noqa: TRY004 - as of every fault of a pattern file
    given = cast(dict[str, Any], entry)
    if unknown := sorted(set(given) - _KEYS):
        raise ValueError(f"unknown key {unknown[0]!r}; there are {', '.join(sorted(_KEYS))}")
    kind = _choice(given, "kind", (STEP, RUN, END, BAR))
    fields = {name: tuple(_templates(kind, name, told)) for name, told in _fields(given)}
    needs = tuple(given.get("needs", ()))
    if missing := [name for name in needs if name not in fields]:
        raise ValueError(f"it needs {missing[0]!r}, which is none of its fields")
    marker, before = _text(given, "marker"), given.get("before")
    if (kind == BAR) != (before is not None):
        raise ValueError('"before" belongs to kind = "bar", which needs it')
    if kind != BAR and len(marker.strip()) < 3:
        raise ValueError('"marker" must be a text of 3 characters or more')
    if kind == STEP and not (needs or "step" in fields):
        raise ValueError('it has no field "step", so "needs" must say which fields it always has')
    return LinePattern(
        trainer=_text(given, "trainer") or "custom",
        kind=kind,
        marker=marker.encode(),
        unless=_text(given, "unless").encode(),
        needs=needs or (("step",) if kind == STEP else ()),
        fields=fields,
        seconds=_choice(given, "seconds", ("own", "mean", "between")),
        before=None if before is None else re.compile(_expression(str(before), whole=True)),
        mean_rate=_choice(given, "rate", ("recent", "mean")) == "mean",
        learnable=not re.search(r"\d", f"{marker}{given.get('unless')}{given.get('fields')}"),
    )


def _choice(given: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    """The value of a key that has few; the first where it is not given."""
    value = given.get(key, allowed[0])
    if value not in allowed:
        raise ValueError(f"{key} = {value!r} is none of {', '.join(allowed)}")
    return str(value)


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key!r} must be a text")  # noqa: TRY004 - one type says what is wrong
    return value


def _fields(given: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Each field with its spellings."""
    fields = given.get("fields", {})
    if not isinstance(fields, dict):
        raise ValueError('"fields" must be a table')  # noqa: TRY004 - as above
    for name, told in cast(dict[str, Any], fields).items():
        spellings = cast(list[Any], told) if isinstance(told, list) else [told]
        if not all(isinstance(each, str) for each in spellings):
            raise ValueError(f"{name!r} must be a template or a list of templates")
        yield name, [str(each) for each in spellings]


def _templates(kind: str, name: str, told: list[str]) -> Iterator[Spelling | Moment]:
    if name not in FIELDS[kind]:
        known = ", ".join(sorted(FIELDS[kind]))
        raise ValueError(f"a line of kind {kind!r} has no field {name!r}; there are {known}")
    for template in told:
        figures = _FIGURE.findall(template)
        if len(figures) != 1 or (name == "time") != (figures[0] == "<timestamp>"):
            wanted = "<timestamp>" if name == "time" else "<number> or <integer>"
            raise ValueError(f"the template {template!r} must hold {wanted}, once")
        if name != "time" and not template.partition(figures[0])[0].strip():
            raise ValueError(
                f"the template {template!r} must begin with the text before its figure"
            )
        if len(template) > TEMPLATE_CHARS:
            raise ValueError(f"a template has more than {TEMPLATE_CHARS} characters")
        if name == "time":
            yield Moment(re.compile(_expression(template)), _FIGURES[figures[0]])
            continue
        literal = template.partition(figures[0])[0].rstrip(" ")
        rest = re.compile(_expression(template[len(literal) :]))
        yield Spelling(literal, rest, _FIGURES[figures[0]])


def _expression(template: str, *, whole: bool = False) -> str:
    """The bounded expression of a template; `whole`: nothing else stands beside it."""
    text = ""
    position = 0
    for figure in _FIGURE.finditer(template):
        before = template[position : figure.start()]
        blanks = r"[ \t]{1,24}" if before.endswith(" ") else ""
        text += re.escape(before.rstrip(" ")) + blanks + _FIGURES[figure[0]]
        position = figure.end()
    text += re.escape(template[position:])
    return rf"\s{{0,16}}{text}\s{{0,16}}\Z" if whole else text
