"""Two receipts side by side: what changed in counts, causes, breaks and frames; seconds last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from compilediag.compare.diff import (
    BreakChange,
    CauseChange,
    Comparison,
    CountChange,
    FieldChange,
    FrameChange,
)
from compilediag.compare.keys import portable_file
from compilediag.receipt.user_line import is_foreign
from compilediag.views.format import measured, more, seconds
from compilediag.views.place import called
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

_Changed = TypeVar("_Changed")
MAX_ITEMS = 30
"""Of one list; `diff --json` has them all."""


def render_comparison(found: Comparison, options: RenderOptions) -> str:
    """The comparison as text: the changed counts in one sentence, then every list that changed."""
    lines = [*_summary(found, options), ""]
    lines += table(
        ("", "before", "after", "change"),
        [_count(item) for item in found.counts],
        options,
        right=("before", "after", "change"),
    )
    for title, entries in _lists(found, options):
        lines += _list(title, entries, options)
    numbers: list[tuple[str, str, str]] = []
    for item in found.numbers:
        before, after = (measured(item.name, value) for value in (item.before, item.after))
        if before != after:
            numbers.append((options.text(item.name, 60), before, after))
    if numbers:
        lines += ["", "numbers that differ (for information)"]
        head = ("figure", "before", "after")
        lines += table(head, numbers, options, right=head[1:], shrink="figure")
    timings = [
        (item.name, seconds(item.before_s), seconds(item.after_s))
        for item in found.timings
        if item.before_s is not None or item.after_s is not None
    ]
    if timings:
        note = "seconds (for information: another machine or moment changes them)"
        lines += ["", *options.wrap(note, "", "  ")]
        lines += table(("", "before", "after"), timings, options, right=("before", "after"))
    return "\n".join(lines) + "\n"


def _summary(found: Comparison, options: RenderOptions) -> list[str]:
    changed = [item for item in found.counts if item.change]
    parts = [f"{_plain(item.name)} {item.before} {options.arrow} {item.after}" for item in changed]
    if found.verdict[0] != found.verdict[1]:
        before, after = (value or "no verdict" for value in found.verdict)
        parts.insert(0, options.change(before, after))
    if not parts:
        return [options.styled(f"the same counts; {_other_changes(found)}", "bold")]
    return options.wrap_items(parts, style="bold")


def _other_changes(found: Comparison) -> str:
    if found.changed:
        return "other things changed"
    beside = found.moves or found.provenance or found.environment or found.tracked_lanes
    return "only code, environment or tracked lanes differ" if beside else "nothing changed"


def _count(item: CountChange) -> tuple[str, ...]:
    change = f"{item.change:+d}" if item.change else "="
    return _plain(item.name), str(item.before), str(item.after), change


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _lists(found: Comparison, options: RenderOptions) -> list[tuple[str, list[str]]]:
    """Every list of changes with its title; what is empty is left out by `_list`."""
    differing = [item for item in found.causes_same if item.before != item.after]
    return [
        ("causes that are new", _drawn(_cause, found.causes_new, options)),
        ("causes that are gone", _drawn(_cause, found.causes_gone, options)),
        ("causes that hit another number of compiles", _drawn(_cause, differing, options)),
        ("graph breaks that are new", _drawn(_break, found.breaks_new, options)),
        ("graph breaks that are gone", _drawn(_break, found.breaks_gone, options)),
        ("frames", _drawn(_frame, found.frames, options)),
        ("moved, and the same otherwise", _drawn(_move, found.moves, options)),
        ("findings that are new", [options.text(text) for text in found.findings_new]),
        ("findings that are gone", [options.text(text) for text in found.findings_gone]),
        ("checks", _drawn(_field, found.checks, options)),
        ("environment", _drawn(_field, found.environment, options)),
        ("tracked runs of other lanes", _drawn(_field, found.tracked_lanes, options)),
        ("lane, not in the older receipt", _drawn(_field, found.lane_not_recorded, options)),
        ("code", _drawn(_field, found.provenance, options)),
    ]


def _drawn(
    draw: Callable[[_Changed, RenderOptions], str],
    changes: Iterable[_Changed],
    options: RenderOptions,
) -> list[str]:
    return [draw(item, options) for item in changes]


def _list(title: str, texts: Sequence[str], options: RenderOptions) -> list[str]:
    if not texts:
        return []
    lines = ["", options.styled(f"{title} ({len(texts)})", "bold")]
    for text in texts[:MAX_ITEMS]:
        lines += options.wrap(text, "  ", "    ")
    return lines + more(len(texts) - MAX_ITEMS, ": compilediag diff --json")


def _cause(item: CauseChange, options: RenderOptions) -> str:
    key = item.key
    sentence = f"{options.text(key.rule, 60)} {options.text(key.variable, 120)}"
    if item.expected is not None and item.actual is not None:
        sentence += f"  {options.change(item.expected, item.actual, 80)}"
    if item.call is not None:
        sentence += f"{options.dot}{called(item.call, options)}"
    if key.file:
        sentence += f"{options.dot}{'at ' if item.call else ''}{_at(key.file, item.line, options)}"
    return f"{sentence}{options.dot}compiles {item.before} {options.arrow} {item.after}"


def _at(file: str, line: int | None, options: RenderOptions) -> str:
    """A package's file by the package, which is the same on every machine."""
    return options.place(portable_file(file) if is_foreign(None, file) else file, line)


def _break(item: BreakChange, options: RenderOptions) -> str:
    category = f"{options.text(item.category, 60)} " if item.category else ""
    where = f"{_at(item.file, item.line, options)} in {options.text(item.function, 60)}"
    if item.call is not None:
        where = f"{called(item.call, options)}{options.dot}at {where}"
    sites = f"{options.dot}sites {item.before} {options.arrow} {item.after}"
    return f"{category}{where}{sites}: {options.text(item.reason, 160)}"


def _frame(item: FrameChange, options: RenderOptions) -> str:
    where = f"{options.text(item.function, 60)}, {options.path(item.file, 60)}"
    if not item.present_before:
        sentence = f"new, compiles {item.after}"
    elif not item.present_after:
        sentence = f"gone, compiles {item.before} before"
    else:
        sentence = f"compiles {item.before} {options.arrow} {item.after}"
    if item.eager_before != item.eager_after:
        sentence += ", runs eager now" if item.eager_after else ", no longer runs eager"
    return f"{where}: {sentence}"


def _move(item: FieldChange, options: RenderOptions) -> str:
    return f"{options.text(item.path)}: {options.change(item.before, item.after, 120)}"


def _field(item: FieldChange, options: RenderOptions) -> str:
    before, after = ("not known" if v is None else v for v in (item.before, item.after))
    return f"{options.text(item.path.partition('.')[2], 80)}: {options.change(before, after, 80)}"
