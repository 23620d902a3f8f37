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
from compilediag.views.quantities import measured
from compilediag.views.style import RenderOptions
from compilediag.views.table import table
from compilediag.views.text import flow, hang
from compilediag.views.words import seconds

MOST_ITEMS = 30
"""Of one list; `diff --json` has them all."""


def render_comparison(found: Comparison, look: RenderOptions) -> str:
    """The comparison as text: the changed counts in one sentence, then every list that changed."""
    lines = [*_summary(found, look), ""]
    lines += table(
        ("", "before", "after", "change"),
        [_count(item) for item in found.counts],
        look,
        right=("before", "after", "change"),
    )
    for title, told in _lists(found, look):
        lines += _list(title, told, look)
    numbers = [row for item in found.numbers if len(set((row := _number(item, look))[1:])) > 1]
    if numbers:
        lines += ["", "numbers that differ (for information)"]
        head = ("figure", "before", "after")
        lines += table(head, numbers, look, right=head[1:], shrink="figure")
    timings = [_timing(item) for item in found.timings if _measured(item)]
    if timings:
        note = "seconds (for information: another machine or moment changes them)"
        lines += ["", *hang(note, look.width, "", "  ")]
        lines += table(("", "before", "after"), timings, look, right=("before", "after"))
    return "\n".join(lines) + "\n"


def _summary(found: Comparison, look: RenderOptions) -> list[str]:
    changed = [item for item in found.counts if item.change]
    told = [f"{_plain(item.name)} {item.before} {look.arrow} {item.after}" for item in changed]
    if found.verdict[0] != found.verdict[1]:
        before, after = (value or "no verdict" for value in found.verdict)
        told.insert(0, f"{look.text(before)} {look.arrow} {look.text(after)}")
    if not told:
        return [look.styled(f"the same counts; {_other_changes(found)}", "bold")]
    return [look.styled(line, "bold") for line in flow(told, look.dot, look.width, "", "")]


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


def _lists(found: Comparison, look: RenderOptions) -> list[tuple[str, list[str]]]:
    """Every list of changes with its title; what is empty is left out by `_list`."""
    differing = [item for item in found.causes_same if item.before != item.after]
    return [
        ("causes that are new", [_cause(item, look) for item in found.causes_new]),
        ("causes that are gone", [_cause(item, look) for item in found.causes_gone]),
        ("causes that hit another number of compiles", [_cause(item, look) for item in differing]),
        ("graph breaks that are new", [_break(item, look) for item in found.breaks_new]),
        ("graph breaks that are gone", [_break(item, look) for item in found.breaks_gone]),
        ("frames", [_frame(item, look) for item in found.frames]),
        ("findings that are new", _texts(found.findings_new, look)),
        ("findings that are gone", _texts(found.findings_gone, look)),
        ("checks", [_field(item, look) for item in found.checks]),
        ("environment", [_field(item, look) for item in found.environment]),
        ("tracked runs of other lanes", [_field(item, look) for item in found.tracked_lanes]),
        (
            "lane, not in the older receipt",
            [_field(item, look) for item in found.lane_not_recorded],
        ),
        ("code", [_field(item, look) for item in found.provenance]),
    ]


def _list(title: str, told: Sequence[str], look: RenderOptions) -> list[str]:
    if not told:
        return []
    lines = ["", look.styled(f"{title} ({len(told)})", "bold")]
    for text in told[:MOST_ITEMS]:
        lines += hang(text, look.width, "  ", "    ")
    if len(told) > MOST_ITEMS:
        lines.append(f"  +{len(told) - MOST_ITEMS} more: compilediag diff --json")
    return lines


def _texts(texts: Sequence[str], look: RenderOptions) -> list[str]:
    return [look.text(text) for text in texts]


def _cause(item: CauseChange, look: RenderOptions) -> str:
    key = item.key
    told = f"{look.text(key.rule, 60)} {look.text(key.variable, 120)}"
    if item.expected is not None and item.actual is not None:
        told += f"  {look.text(item.expected, 80)} {look.arrow} {look.text(item.actual, 80)}"
    if key.file:
        told += f"{look.dot}{look.path(key.file, 60)}:{item.line}"
    return f"{told}{look.dot}compiles {item.before} {look.arrow} {item.after}"


def _break(item: BreakChange, look: RenderOptions) -> str:
    category = f"{look.text(item.category, 60)} " if item.category else ""
    where = f"{look.path(item.file, 60)}:{item.line} in {look.text(item.function, 60)}"
    sites = f"{look.dot}sites {item.before} {look.arrow} {item.after}"
    return f"{category}{where}{sites}: {look.text(item.reason, 160)}"


def _frame(item: FrameChange, look: RenderOptions) -> str:
    where = f"{look.text(item.function, 60)}, {look.path(item.file, 60)}"
    if not item.present_before:
        told = f"new, compiles {item.after}"
    elif not item.present_after:
        told = f"gone, compiles {item.before} before"
    else:
        told = f"compiles {item.before} {look.arrow} {item.after}"
    if item.eager_before != item.eager_after:
        told += ", runs eager now" if item.eager_after else ", no longer runs eager"
    return f"{where}: {told}"


def _field(item: FieldChange, look: RenderOptions) -> str:
    before, after = (_value(value, look) for value in (item.before, item.after))
    return f"{look.text(item.path.partition('.')[2], 80)}: {before} {look.arrow} {after}"


def _value(value: object, look: RenderOptions) -> str:
    return "not known" if value is None else look.text(value, 80)


def _measured(item: TimingChange) -> bool:
    return item.before_s is not None or item.after_s is not None


def _timing(item: TimingChange) -> tuple[str, ...]:
    return item.name, seconds(item.before_s), seconds(item.after_s)


def _number(item: NumberChange, look: RenderOptions) -> tuple[str, ...]:
    told = (measured(item.name, value) for value in (item.before, item.after))
    return look.text(item.name, 60), *told
