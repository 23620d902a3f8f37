"""The table of lines that trainers print: templates made into bounded regular expressions.

The table that ships with the package and a user's pattern file have one form
(docs/howto/trainlog.md). A template is plain text around one figure, so that no expression can be
written that takes more than linear time: every repetition is bounded, and none is inside another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Literal, cast

import msgspec

from compilediag.errors import UsageError

Kind = Literal["step", "run", "end", "bar"]
STEP, RUN, END, BAR = "step", "run", "end", "bar"

RATES = {
    "samples_per_s": Decimal(1),
    "samples_per_step": Decimal(1),
    "tokens_per_s": Decimal(1),
    "tokens_per_s_per_device": Decimal(1),
    "tflops_per_s_per_device": Decimal(1),
    "mfu_percent": Decimal("0.01"),
    "mfu_fraction": Decimal(1),
}
"""Fields of which each line has its own, with the factor to the unit of their series."""

EPOCHS = ("epoch", "epoch_steps")
"""Of a step that is numbered within its epoch: the epoch, and how many steps it has."""

SECONDS = {"step_s": Decimal(1), "step_ms": Decimal("0.001")}
LAST = ("loss", "grad_norm")
PEAKS = {
    f"{kind}_peak_{unit}": Decimal(factor)
    for kind in ("allocated", "reserved")
    for unit, factor in (("bytes", 1), ("mib", 2**20), ("gib", 2**30), ("gb", 10**9))
}
WHOLE = ("train_s", "steps_per_s", "samples_per_s", "tokens_per_s")
"""What a line of kind "end" may hold of the whole run."""

FIELDS: Mapping[str, frozenset[str]] = {
    STEP: frozenset({"step", "time", "nan_steps", *EPOCHS, *RATES, *SECONDS, *LAST, *PEAKS}),
    RUN: frozenset(PEAKS),
    END: frozenset(WHOLE),
    BAR: frozenset(LAST),
}
"""What a line of each kind may hold."""

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
MAX_TEMPLATE_CHARS = 200


class LineTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table of a pattern file: one kind of line of one trainer."""

    trainer: str = "custom"
    kind: Kind = "step"
    """"step", "run" (about the whole run), "end" (the trainer's last line) or "bar" (tqdm's)."""
    marker: str = ""
    """Text that every such line contains; empty for a bar."""
    unless: str = ""
    """Text that no such line contains; empty where there is none."""
    needs: tuple[str, ...] = ()
    """Fields without which the line is not understood."""
    seconds: Literal["own", "mean", "between"] = "own"
    """"own" (of this one step), "mean" (of the steps since the line before), or "between" (the
    time between two lines)."""
    before: str | None = None
    """Of a bar: the template of the text before it."""
    rate: Literal["recent", "mean"] = "recent"
    """Of a bar: "mean" since its beginning, or of the last few steps."""
    below: bool = False
    """A library prints it below trainers, whose own lines are read where there are any."""
    fields: dict[str, str | list[str]] = msgspec.field(default_factory=dict[str, "str | list[str]"])
    """Name to the templates of the ways in which it is written."""


class LinePattern(LineTable, frozen=True, kw_only=True):
    """A table with its templates as expressions."""

    expressions: Mapping[str, tuple[re.Pattern[str], ...]]
    """Of `fields`; the first group is the figure."""
    bar_name: re.Pattern[str] | None
    """Of `before`."""

    def find_figures(self, text: str) -> dict[str, str]:
        """Find the figures of a line: field to figure, as the line writes it."""
        figures: dict[str, str] = {}
        for name, expressions in self.expressions.items():
            for expression in expressions:
                match = expression.search(text)
                if match is not None:
                    figures[name] = match[1]
                    break
        return figures


@cache
def load_built_in() -> tuple[LinePattern, ...]:
    """Load the table that ships with the package."""
    from importlib.resources import files

    folder = files("compilediag.extensions.train_logs")
    return parse_patterns(folder.joinpath("patterns.toml").read_text("utf-8"), "patterns.toml")


def load_patterns(path: str | None) -> tuple[LinePattern, ...]:
    """Load the user's patterns, which are taken where both fit, and behind them the package's.

    Raises:
        UsageError: the file cannot be read, or is no pattern file; the message says where.
    """
    if path is None:
        return load_built_in()
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(1 << 20)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the pattern file {path} cannot be read: {error}") from error
    return (*parse_patterns(text, path), *load_built_in())


def parse_patterns(text: str, name: str) -> tuple[LinePattern, ...]:
    """Parse the patterns of a pattern file.

    Raises:
        UsageError: as `load_patterns`; `name` is what the message calls the file.
    """
    try:
        table: Mapping[str, Any] = msgspec.toml.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"the pattern file {name} is not TOML: {error}") from error
    lines = table.get("line")
    if not isinstance(lines, list) or set(table) != {"line"}:
        raise UsageError(f"the pattern file {name} must hold tables called [[line]], nothing else")
    patterns: list[LinePattern] = []
    for row, entry in enumerate(cast(list[Any], lines), start=1):
        try:
            patterns.append(_build_pattern(msgspec.convert(entry, LineTable)))
        except ValueError as error:  # a ValidationError is one
            raise UsageError(f"the pattern file {name}: [[line]] number {row}: {error}") from error
    return tuple(patterns)


def _build_pattern(line: LineTable) -> LinePattern:
    expressions = {
        name: tuple(
            _compile_expressions(line.kind, name, [given] if isinstance(given, str) else given)
        )
        for name, given in line.fields.items()
    }
    if missing := [name for name in line.needs if name not in expressions]:
        raise ValueError(f"it needs {missing[0]!r}, which is none of its fields")
    if (line.kind == BAR) != (line.before is not None):
        raise ValueError('"before" belongs to kind = "bar", which needs it')
    if line.kind != BAR and len(line.marker.strip()) < 3:
        raise ValueError('"marker" must be a text of 3 characters or more')
    if line.kind == STEP and not (line.needs or "step" in expressions):
        raise ValueError('it has no field "step", so "needs" must say which fields it always has')
    values = msgspec.structs.asdict(line)
    values["trainer"] = line.trainer or "custom"
    values["needs"] = line.needs or (("step",) if line.kind == STEP else ())
    name = None if line.before is None else re.compile(_build_expression(line.before, whole=True))
    return LinePattern(**values, expressions=expressions, bar_name=name)


def _compile_expressions(kind: str, name: str, templates: list[str]) -> Iterator[re.Pattern[str]]:
    if name not in FIELDS[kind]:
        known = ", ".join(sorted(FIELDS[kind]))
        raise ValueError(f"a line of kind {kind!r} has no field {name!r}; there are {known}")
    for text in templates:
        figures = _FIGURE.findall(text)
        if len(figures) != 1 or (name == "time") != (figures[0] == "<timestamp>"):
            wanted = "<timestamp>" if name == "time" else "<number> or <integer>"
            raise ValueError(f"the template {text!r} must hold {wanted}, once")
        if name != "time" and not text.partition(figures[0])[0].strip():
            raise ValueError(f"the template {text!r} must begin with the text before its figure")
        if len(text) > MAX_TEMPLATE_CHARS:
            raise ValueError(f"a template has more than {MAX_TEMPLATE_CHARS} characters")
        yield re.compile(_build_expression(text))


def _build_expression(template: str, *, whole: bool = False) -> str:
    """Build the bounded expression of a template; `whole`: nothing else is beside it."""
    # Invariant: every repetition is bounded and none is inside another, so that a search is linear
    # in the line whatever a user's template holds; the text between figures is escaped.
    text = ""
    position = 0
    for figure in _FIGURE.finditer(template):
        before = template[position : figure.start()]
        blanks = r"[ \t]{1,24}" if before.endswith(" ") else ""
        text += re.escape(before.rstrip(" ")) + blanks + _FIGURES[figure[0]]
        position = figure.end()
    text += re.escape(template[position:])
    return rf"\s{{0,16}}{text}\s{{0,16}}\Z" if whole else text


RANK = re.compile(
    r"[ \t]{0,16}(?:\[(?P<name>[A-Za-z_-]{1,32}\d{1,9})\]:?"  # torchrun: [rank0]: or [default0]:
    r"|\[\d{1,9},(?P<mpi>\d{1,9})\]<std(?:out|err)>:"  # mpirun --tag-output: [1,0]<stdout>:
    r"|(?P<label>\d{1,6}):(?= ))[ \t]?"  # srun --label: 0:
)
"""The name that a launcher puts before each line of a rank."""
_BEGINS = frozenset("[ \t0123456789")


def split_rank(text: str) -> tuple[str | None, str]:
    """Split a line into the name of its rank, "rank0" or "7", None without one, and the rest."""
    match = RANK.match(text) if text[:1] in _BEGINS else None
    if match is None:
        return None, text
    return match["name"] or match["mpi"] or match["label"], text[match.end() :]
