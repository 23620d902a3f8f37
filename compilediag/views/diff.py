"""Two receipts side by side: what changed in counts, causes, breaks and frames; seconds last."""

from __future__ import annotations

from collections.abc import Sequence

from compilediag.compare.diff import (
    BreakChange,
    CauseChange,
    Comparison,
    CountChange,
    FieldChange,
    FrameChange,
    NumberChange,
    TimingChange,
)
from compilediag.views.format import measured, seconds
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

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
    numbers = [row for item in found.numbers if len(set((row := _number(item, options))[1:])) > 1]
    if numbers:
        lines += ["", "numbers that differ (for information)"]
        head = ("figure", "before", "after")
        lines += table(head, numbers, options, right=head[1:], shrink="figure")
    timings = [_timing(item) for item in found.timings if _measured(item)]
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
        parts.insert(0, f"{options.text(before)} {options.arrow} {options.text(after)}")
    if not parts:
        return [options.styled(f"the same counts; {_other_changes(found)}", "bold")]
    return options.wrap_items(parts, style="bold")


def _other_changes(found: Comparison) -> str:
    if found.changed:
        return "other things changed"
    beside = found.provenance or found.environment or found.tracked_lanes
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
        ("causes that are new", [_cause(item, options) for item in found.causes_new]),
        ("causes that are gone", [_cause(item, options) for item in found.causes_gone]),
        (
            "causes that hit another number of compiles",
            [_cause(item, options) for item in differing],
        ),
        ("graph breaks that are new", [_break(item, options) for item in found.breaks_new]),
        ("graph breaks that are gone", [_break(item, options) for item in found.breaks_gone]),
        ("frames", [_frame(item, options) for item in found.frames]),
        ("findings that are new", _texts(found.findings_new, options)),
        ("findings that are gone", _texts(found.findings_gone, options)),
        ("checks", [_field(item, options) for item in found.checks]),
        ("environment", [_field(item, options) for item in found.environment]),
        ("tracked runs of other lanes", [_field(item, options) for item in found.tracked_lanes]),
        (
            "lane, not in the older receipt",
            [_field(item, options) for item in found.lane_not_recorded],
        ),
        ("code", [_field(item, options) for item in found.provenance]),
    ]


def _list(title: str, parts: Sequence[str], options: RenderOptions) -> list[str]:
    if not parts:
        return []
    lines = ["", options.styled(f"{title} ({len(parts)})", "bold")]
    for text in parts[:MAX_ITEMS]:
        lines += options.wrap(text, "  ", "    ")
    if len(parts) > MAX_ITEMS:
        lines.append(f"  +{len(parts) - MAX_ITEMS} more: compilediag diff --json")
    return lines


def _texts(texts: Sequence[str], options: RenderOptions) -> list[str]:
    return [options.text(text) for text in texts]


def _cause(item: CauseChange, options: RenderOptions) -> str:
    key = item.key
    sentence = f"{options.text(key.rule, 60)} {options.text(key.variable, 120)}"
    if item.expected is not None and item.actual is not None:
        sentence += (
            f"  {options.text(item.expected, 80)} {options.arrow} {options.text(item.actual, 80)}"
        )
    if key.file:
        sentence += f"{options.dot}{options.path(key.file, 60)}:{item.line}"
    return f"{sentence}{options.dot}compiles {item.before} {options.arrow} {item.after}"


def _break(item: BreakChange, options: RenderOptions) -> str:
    category = f"{options.text(item.category, 60)} " if item.category else ""
    where = f"{options.place(item.file, item.line)} in {options.text(item.function, 60)}"
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


def _field(item: FieldChange, options: RenderOptions) -> str:
    before, after = (_value(value, options) for value in (item.before, item.after))
    return f"{options.text(item.path.partition('.')[2], 80)}: {before} {options.arrow} {after}"


def _value(value: object, options: RenderOptions) -> str:
    return "not known" if value is None else options.text(value, 80)


def _measured(item: TimingChange) -> bool:
    return item.before_s is not None or item.after_s is not None


def _timing(item: TimingChange) -> tuple[str, ...]:
    return item.name, seconds(item.before_s), seconds(item.after_s)


def _number(item: NumberChange, options: RenderOptions) -> tuple[str, ...]:
    parts = (measured(item.name, value) for value in (item.before, item.after))
    return options.text(item.name, 60), *parts
