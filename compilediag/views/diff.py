"""The view of a comparison of two receipts: counts, causes, breaks and frames that changed; seconds
last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compilediag.compare.changed_data import OPTION, CacheKeyChange, ChangedData, FieldChange
from compilediag.compare.diff import BreakChange, CauseChange, Comparison, FrameChange
from compilediag.compare.keys import portable_file
from compilediag.diagnosis.figures.key_difference import in_words
from compilediag.receipt.user_line import is_foreign
from compilediag.views.document import Code, Listing, Overview, Section, Table
from compilediag.views.format import count, measured, seconds
from compilediag.views.place import called
from compilediag.views.style import RenderOptions

_SIDES = ("before", "after")
_SHORT = {"lane.name": "lane", "steps.count": "steps"}
"""Names in the sentence, where the path's last part is not enough."""


def show_comparison(found: Comparison, options: RenderOptions) -> Overview:
    """Build the document: what was accepted as changed, the verdict and the counts that changed in
    one sentence, then every list that changed and what was measured."""
    parts: list[str] = []
    if found.verdict[0] != found.verdict[1]:
        before, after = (value or "no verdict" for value in found.verdict)
        parts.append(options.change(before, after))
    rows: list[tuple[str, ...]] = []
    for item in found.counts:
        name, change = _plain(item.name), f"{item.change:+d}" if item.change else "="
        rows.append((Code(name), str(item.before), str(item.after), change))
        if item.change:
            parts.append(f"{name} {item.before} {options.arrow} {item.after}")
    beside = (*found.moves, *found.provenance, *found.environment, *found.tracked_lanes)
    others = "nothing changed"
    if found.changed:
        others = "other things changed"
    elif beside or found.command:
        others = "only code, environment or tracked lanes differ"
    head = ("count", *_SIDES, "change")
    counts = Table(head, rows, right=head[1:])
    sections = (
        Section("counts", "Counts", "Counts", (counts,)),
        Section("changes", "Changes", "What came, went or changed", _lists(found, options)),
        Section("figures", "Figures", "What was measured", _figures(found, options)),
    )
    data = found.changed_data
    return Overview(
        title="two receipts compared",
        kind="warn" if found.changed else "good",
        sentence=options.dot.join(parts) or f"the same counts; {others}",
        sections=[each for each in sections if each.blocks],
        notes=() if data is None else (_changed_data(data, options),),
    )


def _changed_data(data: ChangedData, options: RenderOptions) -> str:
    """Describe what was accepted as changed, and what that leaves to compare."""
    parts: list[str] = []
    for item in data.fields:
        before, after = (
            "not set" if value is None else options.text(value, 60)
            for value in (item.before, item.after)
        )
        name = _SHORT.get(item.path) or _plain(item.path.rpartition(".")[2])
        parts.append(f"{name} {before} {options.arrow} {after}")
    of = f" of {options.text(data.callable, 60)}" if data.callable else ""
    if parts:
        changed = ", ".join(parts) + of
    else:
        changed = f"the same work{of}" if data.same_work else "not recorded"
    compared = "counts and causes are compared, times and memory are not"
    if data.same_work:
        compared = "counts, causes and times are compared"
    return f"changed data ({OPTION}): {changed}; {compared}"


def _figures(found: Comparison, options: RenderOptions) -> list[Table]:
    """Build the tables of measurements: those that differ, seconds, and those not comparable."""
    numbers: list[tuple[str, str, str]] = []
    timings: list[tuple[str, str, str]] = []
    others: list[tuple[str, str, str]] = []
    for item in found.numbers:
        before, after = (measured(item.name, value) for value in (item.before, item.after))
        if before != after:
            (numbers if item.comparable else others).append((item.name, before, after))
    for item in found.timings:
        if item.before_s is not None or item.after_s is not None:
            row = (item.name, seconds(item.before_s), seconds(item.after_s))
            (timings if item.comparable else others).append(row)
    tables = (
        ("numbers that differ (for information)", numbers),
        ("seconds (for information: another machine or moment changes them)", timings),
        ("not comparable: the runs did other work", others),
    )
    return [
        Table(
            ("figure", *_SIDES),
            [(Code(options.text(name, 60)), *sides) for name, *sides in rows],
            title,
            right=_SIDES,
            shrink="figure",
        )
        for title, rows in tables
        if rows
    ]


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _lists(found: Comparison, options: RenderOptions) -> list[Listing]:
    """Build every list of changes that is not empty."""
    differing = [item for item in found.causes_same if item.before != item.after]
    lists: list[tuple[str, Sequence[Any], Callable[[Any, RenderOptions], str]]] = [
        ("causes that are new", found.causes_new, _cause),
        ("causes that are gone", found.causes_gone, _cause),
        ("causes that hit another number of compiles", differing, _cause),
        ("graph breaks that are new", found.breaks_new, _break),
        ("graph breaks that are gone", found.breaks_gone, _break),
        ("frames", found.frames, _frame),
        ("moved, and the same otherwise", found.moves, _move),
        ("findings that are new", found.findings_new, _title),
        ("findings that are gone", found.findings_gone, _title),
        ("checks", found.checks, _field),
        ("environment", found.environment, _field),
        ("command line and variables", found.command, _field),
        ("tracked runs of other lanes", found.tracked_lanes, _field),
        ("keys of compile caches (CD612)", found.cache_keys, _cache_key),
        ("lane, not in the older receipt", found.lane_not_recorded, _field),
        ("code", found.provenance, _field),
    ]
    return [
        Listing(title, [Code(shown(each, options)) for each in items], ": compilediag diff --json")
        for title, items, shown in lists
        if items
    ]


def _title(finding: str, options: RenderOptions) -> str:
    return options.text(finding)


def _cause(item: CauseChange, options: RenderOptions) -> str:
    key = item.key
    sentence = f"{options.text(key.rule, 60)} {options.text(key.variable, 120)}"
    sentence += options.change_behind("  ", item.expected, item.actual, 80)
    if item.call is not None:
        sentence += f"{options.dot}{called(item.call, options)}"
    if key.file:
        sentence += f"{options.dot}{'at ' if item.call else ''}{_at(key.file, item.line, options)}"
    return f"{sentence}{options.dot}compiles {item.before} {options.arrow} {item.after}"


def _at(file: str, line: int | None, options: RenderOptions) -> str:
    """Format a place; a package's file by the package, which is the same on every machine."""
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


def _cache_key(item: CacheKeyChange, options: RenderOptions) -> str:
    named = ", ".join(options.text(name, 60) for name in item.functions[:3]) or "a graph"
    sentence = (
        f"{item.cache} missed for {count(len(item.compile_ids), 'compile')} ({named}): "
        f"the key differs in {options.text(in_words(item.changes), 300)}"
    )
    first = item.changes[0]
    if first.before is None and first.after is None:
        return sentence
    sides = first.before or "nothing", first.after or "nothing"
    return f"{sentence}{options.dot}{options.text(first.name, 80)}: {options.change(*sides, 80)}"


def _field(item: FieldChange, options: RenderOptions) -> str:
    before, after = ("not known" if v is None else v for v in (item.before, item.after))
    return f"{options.text(item.path.partition('.')[2], 80)}: {options.change(before, after, 80)}"
