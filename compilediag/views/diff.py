"""Two receipts side by side: what changed in counts, causes, breaks and frames; seconds last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from compilediag.compare.changed_data import OPTION, CacheKeyChange, ChangedData, FieldChange
from compilediag.compare.changes import CountChange
from compilediag.compare.diff import BreakChange, CauseChange, Comparison, FrameChange
from compilediag.compare.keys import portable_file
from compilediag.diagnosis.figures.key_difference import in_words
from compilediag.receipt.user_line import is_foreign
from compilediag.views.document import Code, Listing, Overview, Section, Table
from compilediag.views.format import count, measured, seconds
from compilediag.views.place import called
from compilediag.views.style import RenderOptions

_Changed = TypeVar("_Changed")
_SIDES = ("before", "after")
_SHORT = {"lane.name": "lane", "steps.count": "steps"}
"""Names in the sentence, where the path's last part is not enough."""


def show_comparison(found: Comparison, options: RenderOptions) -> Overview:
    """What was accepted as changed, the verdict and the counts that changed in one sentence, then
    every list that changed and what was measured."""
    accepted = _changed_data_sentence(found.changed_data, options)
    head = ("count", *_SIDES, "change")
    counts = Table(head, [_count_cells(item) for item in found.counts], right=head[1:])
    sections = (
        Section("counts", "Counts", "Counts", (counts,)),
        Section("changes", "Changes", "What came, went or changed", _lists(found, options)),
        Section("figures", "Figures", "What was measured", _figures(found, options)),
    )
    return Overview(
        title="two receipts compared",
        kind="warn" if found.changed else "good",
        sentence=options.dot.join(_summary_parts(found, options))
        or f"the same counts; {_other_changes(found)}",
        sections=[each for each in sections if each.blocks],
        notes=() if accepted is None else (accepted,),
    )


def _changed_data_sentence(data: ChangedData | None, options: RenderOptions) -> str | None:
    """What was accepted as changed, and what that leaves to compare; None where nothing was."""
    if data is None:
        return None
    parts = [
        f"{_SHORT.get(item.path) or _plain(item.path.rpartition('.')[2])} "
        f"{_known(item.before, options)} {options.arrow} {_known(item.after, options)}"
        for item in data.fields
    ]
    of = f" of {options.text(data.callable, 60)}" if data.callable else ""
    changed = ", ".join(parts) or (f"the same work{of}" if data.same_work else "not recorded")
    named = of if parts else ""
    if data.same_work:
        return f"changed data ({OPTION}): {changed}{named}; counts, causes and times are compared"
    return (
        f"changed data ({OPTION}): {changed}{named}; counts and causes are compared, times and "
        "memory are not"
    )


def _known(value: object, options: RenderOptions) -> str:
    return "not set" if value is None else options.text(value, 60)


def _figures(found: Comparison, options: RenderOptions) -> list[Table]:
    """Tables of what was measured: what differs, the seconds, and what cannot be compared."""
    numbers: dict[bool, list[tuple[str, str, str]]] = {True: [], False: []}
    for item in found.numbers:
        before, after = (measured(item.name, value) for value in (item.before, item.after))
        if before != after:
            numbers[item.comparable].append((item.name, before, after))
    timings: dict[bool, list[tuple[str, str, str]]] = {True: [], False: []}
    for item in found.timings:
        if item.before_s is not None or item.after_s is not None:
            row = (item.name, seconds(item.before_s), seconds(item.after_s))
            timings[item.comparable].append(row)
    tables = (
        ("numbers that differ (for information)", numbers[True]),
        ("seconds (for information: another machine or moment changes them)", timings[True]),
        ("not comparable: the runs did other work", [*numbers[False], *timings[False]]),
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


def _summary_parts(found: Comparison, options: RenderOptions) -> list[str]:
    """The verdict and the counts that changed, "recompiles 3 → 0"; empty where none did."""
    changed = [item for item in found.counts if item.change]
    parts = [f"{_plain(item.name)} {item.before} {options.arrow} {item.after}" for item in changed]
    if found.verdict[0] != found.verdict[1]:
        before, after = (value or "no verdict" for value in found.verdict)
        parts.insert(0, options.change(before, after))
    return parts


def _other_changes(found: Comparison) -> str:
    if found.changed:
        return "other things changed"
    beside = (
        *(*found.moves, *found.provenance, *found.environment),
        *(*found.tracked_lanes, *found.command),
    )
    return "only code, environment or tracked lanes differ" if beside else "nothing changed"


def _count_cells(item: CountChange) -> tuple[str, ...]:
    """One row of the table of counts."""
    change = f"{item.change:+d}" if item.change else "="
    return Code(_plain(item.name)), str(item.before), str(item.after), change


def _plain(name: str) -> str:
    return name.replace("_", " ")


def _lists(found: Comparison, options: RenderOptions) -> list[Listing]:
    """Every list of changes that is not empty."""
    differing = [item for item in found.causes_same if item.before != item.after]
    lists = (
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
        ("command line and variables", _drawn(_field, found.command, options)),
        ("tracked runs of other lanes", _drawn(_field, found.tracked_lanes, options)),
        ("keys of compile caches (CD612)", _drawn(_cache_key, found.cache_keys, options)),
        ("lane, not in the older receipt", _drawn(_field, found.lane_not_recorded, options)),
        ("code", _drawn(_field, found.provenance, options)),
    )
    return [
        Listing(title, [Code(item) for item in items], ": compilediag diff --json")
        for title, items in lists
        if items
    ]


def _drawn(
    draw: Callable[[_Changed, RenderOptions], str],
    changes: Iterable[_Changed],
    options: RenderOptions,
) -> list[str]:
    return [draw(item, options) for item in changes]


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
