"""The view of a comparison of two receipts: what changed of counts, causes, breaks and frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compilediag.compare.changed_data import OPTION, CacheKeyChange, ChangedData, FieldChange
from compilediag.compare.diff import BreakChange, CauseChange, Comparison, FrameChange
from compilediag.diagnosis.figures.key_difference import describe_changes
from compilediag.receipt.finding_keys import normalize_file
from compilediag.receipt.user_line import is_foreign
from compilediag.views.document import Code, Listing, Overview, Section, Table
from compilediag.views.format import format_metric, format_seconds, pluralize
from compilediag.views.place import format_call
from compilediag.views.style import RenderOptions

_SIDES = ("before", "after")
_SHORT = {"lane.name": "configuration", "steps.count": "steps"}
"""Names in the sentence, where the path's last part is not enough."""


def show_comparison(diff: Comparison, options: RenderOptions) -> Overview:
    """Build the document: what was accepted as changed, the verdict and the counts that changed in
    one sentence, then every list that changed and what was measured."""
    parts: list[str] = []
    if diff.verdict[0] != diff.verdict[1]:
        before, after = (value or "no verdict" for value in diff.verdict)
        parts.append(options.format_change(before, after))
    rows: list[tuple[str, ...]] = []
    for count in diff.counts:
        name, change = count.name.replace("_", " "), f"{count.change:+d}" if count.change else "="
        rows.append((Code(name), str(count.before), str(count.after), change))
        if count.change:
            parts.append(f"{name} {count.before} {options.arrow} {count.after}")
    beside = (*diff.moves, *diff.provenance, *diff.environment, *diff.tracked_configurations)
    others = "nothing changed"
    if diff.changed:
        others = "other things changed"
    elif beside or diff.command:
        others = "only code, environment or tracked configurations differ"
    head = ("count", *_SIDES, "change")
    counts = Table(head, rows, right=head[1:])
    sections = (
        Section("counts", "Counts", "Counts", (counts,)),
        Section("changes", "Changes", "What came, went or changed", _build_listings(diff, options)),
        Section("figures", "Figures", "What was measured", _build_number_tables(diff, options)),
    )
    data = diff.changed_data
    return Overview(
        title="two receipts compared",
        kind="warn" if diff.changed else "good",
        sentence=options.dot.join(parts) or f"the same counts; {others}",
        sections=[section for section in sections if section.blocks],
        notes=() if data is None else (_describe_changed_data(data, options),),
    )


def _describe_changed_data(data: ChangedData, options: RenderOptions) -> str:
    """Describe what was accepted as changed, and what that leaves to compare."""
    parts: list[str] = []
    for field in data.fields:
        before, after = (
            "not set" if value is None else options.clean(value, 60)
            for value in (field.before, field.after)
        )
        name = _SHORT.get(field.path) or field.path.rpartition(".")[2].replace("_", " ")
        parts.append(f"{name} {before} {options.arrow} {after}")
    of = f" of {options.clean(data.callable, 60)}" if data.callable else ""
    if parts:
        changed = ", ".join(parts) + of
    else:
        changed = f"the same work{of}" if data.same_work else "not recorded"
    compared = "counts and causes are compared, times and memory are not"
    if data.same_work:
        compared = "counts, causes and times are compared"
    return f"changed data ({OPTION}): {changed}; {compared}"


def _build_number_tables(diff: Comparison, options: RenderOptions) -> list[Table]:
    """Build the tables of measurements: those that differ, seconds, and those not comparable."""
    numbers: list[tuple[str, str, str]] = []
    timings: list[tuple[str, str, str]] = []
    others: list[tuple[str, str, str]] = []
    for entry in diff.numbers:
        before, after = (format_metric(entry.name, value) for value in (entry.before, entry.after))
        if before != after:
            (numbers if entry.comparable else others).append((entry.name, before, after))
    for entry in diff.timings:
        if entry.before_s is not None or entry.after_s is not None:
            row = (entry.name, format_seconds(entry.before_s), format_seconds(entry.after_s))
            (timings if entry.comparable else others).append(row)
    tables = (
        ("numbers that differ (for information)", numbers),
        ("seconds (for information: another machine or moment changes them)", timings),
        ("not comparable: the runs did other work", others),
    )
    return [
        Table(
            ("figure", *_SIDES),
            [(Code(options.clean(name, 60)), *sides) for name, *sides in rows],
            title,
            right=_SIDES,
            shrink="figure",
        )
        for title, rows in tables
        if rows
    ]


def _build_listings(diff: Comparison, options: RenderOptions) -> list[Listing]:
    """Build every list of changes that is not empty."""
    differing = [cause for cause in diff.causes_same if cause.before != cause.after]
    lists: list[tuple[str, Sequence[Any], Callable[[Any, RenderOptions], str]]] = [
        ("causes that are new", diff.causes_new, _describe_cause),
        ("causes that are gone", diff.causes_gone, _describe_cause),
        ("causes that hit another number of compiles", differing, _describe_cause),
        ("graph breaks that are new", diff.breaks_new, _describe_break),
        ("graph breaks that are gone", diff.breaks_gone, _describe_break),
        ("frames", diff.frames, _describe_frame),
        ("moved, and the same otherwise", diff.moves, _describe_move),
        ("findings that are new", diff.findings_new, _format_title),
        ("findings that are gone", diff.findings_gone, _format_title),
        ("checks", diff.checks, _describe_field),
        ("environment", diff.environment, _describe_field),
        ("command line and variables", diff.command, _describe_field),
        ("tracked runs of other configurations", diff.tracked_configurations, _describe_field),
        ("keys of compile caches (CD612)", diff.cache_keys, _describe_cache_key),
        (
            "configuration, not in the older receipt",
            diff.configuration_not_recorded,
            _describe_field,
        ),
        ("code", diff.provenance, _describe_field),
    ]
    return [
        Listing(
            title, [Code(shown(change, options)) for change in changes], ": compilediag diff --json"
        )
        for title, changes, shown in lists
        if changes
    ]


def _format_title(finding: str, options: RenderOptions) -> str:
    return options.clean(finding)


def _describe_cause(cause: CauseChange, options: RenderOptions) -> str:
    key = cause.key
    sentence = f"{options.clean(key.rule, 60)} {options.clean(key.variable, 120)}"
    sentence += options.format_change_after("  ", cause.expected, cause.actual, 80)
    if cause.call is not None:
        sentence += f"{options.dot}{format_call(cause.call, options)}"
    if key.file:
        place = _format_place(key.file, cause.line, options)
        sentence += f"{options.dot}{'at ' if cause.call else ''}{place}"
    return f"{sentence}{options.dot}compiles {cause.before} {options.arrow} {cause.after}"


def _format_place(file: str, line: int | None, options: RenderOptions) -> str:
    """Format a place; a package's file by the package, which is the same on every machine."""
    return options.format_place(normalize_file(file) if is_foreign(None, file) else file, line)


def _describe_break(site: BreakChange, options: RenderOptions) -> str:
    category = f"{options.clean(site.category, 60)} " if site.category else ""
    where = f"{_format_place(site.file, site.line, options)} in {options.clean(site.function, 60)}"
    if site.call is not None:
        where = f"{format_call(site.call, options)}{options.dot}at {where}"
    sites = f"{options.dot}sites {site.before} {options.arrow} {site.after}"
    return f"{category}{where}{sites}: {options.clean(site.reason, 160)}"


def _describe_frame(frame: FrameChange, options: RenderOptions) -> str:
    where = f"{options.clean(frame.function, 60)}, {options.format_path(frame.file, 60)}"
    if not frame.present_before:
        sentence = f"new, compiles {frame.after}"
    elif not frame.present_after:
        sentence = f"gone, compiles {frame.before} before"
    else:
        sentence = f"compiles {frame.before} {options.arrow} {frame.after}"
    if frame.eager_before != frame.eager_after:
        sentence += ", runs eager now" if frame.eager_after else ", no longer runs eager"
    return f"{where}: {sentence}"


def _describe_move(move: FieldChange, options: RenderOptions) -> str:
    return f"{options.clean(move.path)}: {options.format_change(move.before, move.after, 120)}"


def _describe_cache_key(change: CacheKeyChange, options: RenderOptions) -> str:
    named = ", ".join(options.clean(name, 60) for name in change.functions[:3]) or "a graph"
    sentence = (
        f"{change.cache} missed for {pluralize(len(change.compile_ids), 'compile')} ({named}): "
        f"the key differs in {options.clean(describe_changes(change.changes), 300)}"
    )
    first = change.changes[0]
    if first.before is None and first.after is None:
        return sentence
    sides = first.before or "nothing", first.after or "nothing"
    name = options.clean(first.name, 80)
    return f"{sentence}{options.dot}{name}: {options.format_change(*sides, 80)}"


def _describe_field(field: FieldChange, options: RenderOptions) -> str:
    before, after = ("not known" if v is None else v for v in (field.before, field.after))
    name = options.clean(field.path.partition(".")[2], 80)
    return f"{name}: {options.format_change(before, after, 80)}"
