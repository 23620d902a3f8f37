"""The HTML report of a run: its summary, steps, findings, frames, costs, and what ran; and the page
of a session of tests, which leads to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from msgspec.structs import replace

from compilediag import extension_points
from compilediag.project_urls import get_rule_url
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import flatten
from compilediag.receipt.schema.running import GoodputSection
from compilediag.timeline.timeline import Step
from compilediag.views.compiles import show_frames, show_measured_seconds
from compilediag.views.document import LINE_CHARS, Block, Kind, Overview, Section, Table
from compilediag.views.findings import build_card, join_exports
from compilediag.views.format import format_metric, format_percent, format_seconds, pluralize
from compilediag.views.headline import build_headline, list_trainer_notes
from compilediag.views.html.page import Assets, render_page
from compilediag.views.lookups import list_compiles, list_main_findings, number_findings
from compilediag.views.next_command import choose_command
from compilediag.views.ranks import show_ranks
from compilediag.views.sentence import describe_finding
from compilediag.views.steps import TIMED, show_steps
from compilediag.views.style import RenderOptions
from compilediag.views.summary import list_environment, summarize
from compilediag.views.text import clean
from compilediag.views.varied import build_varied

SCREEN_WIDTH = 100
MAX_CARDS = 200
VALUE_CHARS = 300
_SHA_CHARS = 12
MAX_RAW_CHARS = 150_000
"""Of the receipt's own text: a page stays below half a megabyte."""
MAX_POINTS = 2000
"""A screen has fewer columns."""
MAX_MARKS = 1000


@dataclass(frozen=True, slots=True)
class StepSeries:
    """The steps of one process as columns that a chart draws."""

    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By the names that `assets/report.js` reads, milliseconds but for the step numbers: of several
    steps in one point the longest, with their median and shortest; and marks of compiles."""
    steps: int = 0
    """All that were timed."""
    steps_per_point: int = 1
    marks_left_out: int = 0


@dataclass(frozen=True, slots=True)
class ReportSources:
    """Sources that a report shows beside its receipt; each may be missing."""

    series: StepSeries = field(default_factory=StepSeries)
    raw: str = ""
    """The receipt as JSON with line breaks."""
    graphs: str = ""
    """The address of tlparse's report, relative to the page."""
    editors: Mapping[int, str] = field(default_factory=dict[int, str])
    """Addresses that open the lines of findings in an editor, by the findings' numbers."""
    notes: tuple[str, ...] = ()
    """Why something is missing."""


def render_report(
    receipt: Receipt, sources: ReportSources, assets: Assets, *, root: str = "", suffix: str = ""
) -> str:
    """Render the page. Files below `root` are shown relative to it; `suffix` is what commands need
    to find this receipt again, such as its path."""
    options = RenderOptions(width=SCREEN_WIDTH, root=root)
    overview = summarize(receipt, options)
    notes = (*build_headline(receipt).more, *list_trainer_notes(receipt))
    main = list_main_findings(receipt)
    exports = join_exports(finding for _, finding in main if finding.fix.recipe)
    # Findings of at least `warning`, then notes.
    ordered = number_findings(receipt)
    ordered.sort(key=lambda pair: (pair[1].severity == "info", pair[1].follows is not None))
    shown = ordered[:MAX_CARDS]
    command = " ".join(receipt.header.run.argv_redacted)
    return render_page(
        assets,
        "report.html.j2",
        sources.series.columns,
        about=replace(
            overview,
            title=options.clean(command or receipt.header.configuration.name, 120),
            notes=[options.clean(note) for note in notes],
            facts=_list_facts(receipt, options),
            sections=_build_sections(receipt, options),
        ),
        seconds=_build_goodput(receipt.goodput),
        summary=[_link_findings(block) for block in overview.blocks],
        following=options.clean(choose_command(receipt, suffix), 400),
        exports=[options.clean(line, LINE_CHARS) for line in exports],
        graphs=sources.graphs,
        series=sources.series,
        cards=[build_card(*pair, receipt, options, VALUE_CHARS) for pair in shown],
        cards_left_out=max(0, len(ordered) - MAX_CARDS),
        editors=sources.editors,
        rule_page=get_rule_url,
        compiles=_link_compiles(shown, receipt, sources.graphs),
        raw=sources.raw[:MAX_RAW_CHARS],
        raw_left_out=max(0, len(sources.raw) - MAX_RAW_CHARS),
        notes=sources.notes,
        suffix=suffix,
    )


def _build_sections(receipt: Receipt, options: RenderOptions) -> list[Section]:
    """Build the sections below the findings that have anything to show."""
    running = receipt.steps is not None or receipt.timings
    ranked = receipt.ranks is not None and receipt.ranks.rows
    varied = build_varied(receipt, options, complete=True)
    compiling = show_measured_seconds(receipt, options)
    steps = show_steps(receipt, options) if running else ()
    sections = [
        Section("frames", "Frames", "What was compiled", show_frames(receipt, options)),
        Section("varied", "What varied", "What varied", varied),
        Section("seconds", "Compile time", "Where compile seconds went", compiling),
        Section("step-times", "Step times", "Where the steps' time went", steps),
        Section("ranks", "Ranks", "Ranks", show_ranks(receipt, options) if ranked else ()),
        Section("graphs", "CUDA graphs", "CUDA graphs", _build_cuda_graphs(receipt, options)),
    ]
    point = extension_points.CADENCE_SECTION
    if receipt.cadence is not None and extension_points.is_installed(point):
        sections.append(extension_points.load(point, "the section of a probe")(receipt, options))
    return [section for section in sections if section.blocks or section.pictures]


def _link_findings(block: Block) -> Block:
    """Lead from the table of findings to their cards, which have what to do."""
    if not isinstance(block, Table):
        return block
    rows, title = [row[:-1] for row in block.rows], "Findings, the most important first"
    links = [f"#finding-{row[0]}" for row in rows]
    return replace(block, title=title, head=block.head[:-1], rows=rows, links=links)


def _link_compiles(
    findings: Sequence[tuple[int, FindingRecord]], receipt: Receipt, graphs: str
) -> dict[int, str]:
    """Link what tlparse's report has of each finding's first compile, by the finding's number; of
    several reports none: the ids of compiles are those of one process."""
    if not graphs or sum(each.role == "tlparse_report" for each in receipt.artifacts) > 1:
        return {}
    found = {number: list_compiles(finding, receipt)[:1] for number, finding in findings}
    return {n: f"{graphs}#[{e.compile_id}]" for n, first in found.items() for e in first}


def _list_facts(receipt: Receipt, options: RenderOptions) -> list[tuple[str, str]]:
    header, code = receipt.header, receipt.header.provenance
    commit = "" if code.git_commit is None else code.git_commit[:_SHA_CHARS]
    if commit:
        commit += f" on {code.git_branch}" if code.git_branch else ""
        commit += " with local changes" if code.git_dirty else ""
    facts = (
        ("started", header.created_at_utc),
        ("configuration", header.configuration.name),
        ("commit", commit),
        ("receipt", receipt.receipt_id),
    )
    every = (*list_environment(receipt), *facts)
    return [(name, options.clean(value, 1000)) for name, value in every if value]


def _build_goodput(goodput: GoodputSection | None) -> list[tuple[str, float, float]]:
    """Lay the run's seconds side by side: text, start and width in percent; empty where they were
    not taken apart."""
    if goodput is None or not goodput.wall_s or goodput.goodput_s is None:
        return []
    lost = sorted(goodput.badput_s.items(), key=lambda loss: -(loss[1] or 0.0))
    sizes = [("steps", goodput.goodput_s), *((name, size) for name, size in lost if size)]
    whole = sum(size for _, size in sizes) or 1.0
    parts: list[tuple[str, float, float]] = []
    start = 0.0
    for name, size in sizes:
        share = format_percent(size, goodput.wall_s)
        text = f"{name.replace('_', ' ')} {format_seconds(size)} ({share})"
        parts.append((text, round(start, 2), round(100 * size / whole, 2)))
        start += 100 * size / whole
    return parts


def _build_cuda_graphs(receipt: Receipt, options: RenderOptions) -> list[Table]:
    """Build the table of all that is known of them; empty without a CUDA device."""
    section = receipt.cudagraph
    if section is None or not section.applicable:
        return []
    rows = [
        (options.clean(path.replace("_", " ").replace(".", ": "), 200), format_metric(path, value))
        for path, value in flatten(section)
        if value is not None and path != "applicable"
    ]
    return [Table(("count", "number"), rows, right=("number",))]


# --- steps ---------------------------------------------------------------------------------------


def build_step_series(steps: Sequence[Step], receipt: Receipt) -> StepSeries:
    """Build the columns of the steps of one process, and marks for the receipt's compiles. A long
    run is thinned out: of neighbouring steps the longest stands for all of them."""
    per_point = max(1, -(-len(steps) // MAX_POINTS))
    points = [steps[first : first + per_point] for first in range(0, len(steps), per_point)]
    shown = [max(point, key=lambda step: step.wall_s) for point in points]
    walls = [[step.wall_s for step in point] for point in points] if per_point > 1 else []
    phases: list[dict[str, Any]] = []
    for name in TIMED:
        values: list[float | None] = [getattr(step, f"{name}_s") for step in shown]
        if any(values):
            in_ms = [None if value is None else _round_to_ms(value) for value in values]
            phases.append({"name": name.replace("_", " "), "ms": in_ms})
    marks = _list_marks(receipt)
    columns = {
        "steps": [step.number for step in shown],
        "wall": [_round_to_ms(step.wall_s) for step in shown],
        "compile": [_round_to_ms(step.compile_s) for step in shown],
        "median": [_round_to_ms(median(seconds)) for seconds in walls],
        "shortest": [_round_to_ms(min(seconds)) for seconds in walls],
        "phases": phases,
        "marks": marks[:MAX_MARKS],
    }
    return StepSeries(columns, len(steps), per_point, max(0, len(marks) - MAX_MARKS))


def _list_marks(receipt: Receipt) -> list[dict[str, Any]]:
    """List the marks of compiles: step, kind, text, number of the finding."""
    marks: list[dict[str, Any]] = []
    number_of = {record.id: number for number, record in number_findings(receipt)}
    for event in receipt.compile.events:
        if event.step is None:
            continue
        cause = next((candidate for candidate in event.causes if candidate.primary), None)
        what = f"{event.kind} of {event.frame.function}"
        what += "" if event.seconds is None else f", {format_seconds(event.seconds)}"
        what += "" if cause is None else f": {cause.variable}"
        finding = None if cause is None else number_of.get(cause.finding or "")
        named = {"step": event.step, "kind": event.kind, "text": clean(what, limit=200)}
        marks.append({**named, "finding": finding})
    return marks


def _round_to_ms(value: float) -> float:
    return round(1000 * value, 4)


# --- a session of tests --------------------------------------------------------------------------


class SessionTest(NamedTuple):
    """A watched test."""

    name: str
    receipt: Receipt
    failed: bool
    page: str
    """The address of its own page, relative to that of the session; empty without one."""


def build_session_page(tests: Sequence[SessionTest], options: RenderOptions) -> Overview:
    """Build the page of a session, the worst tests first: pass or fail, counts, first finding."""

    def get_badness(test: SessionTest) -> tuple[bool, int, int]:
        seen = test.receipt.compile
        return (not test.failed, -seen.recompiles, -seen.graph_breaks)

    tests = sorted(tests, key=get_badness)
    rows: list[tuple[str, ...]] = []
    for name, receipt, failed, _ in tests:
        main = list_main_findings(receipt)[:1]
        first = [f"{each.rule} {describe_finding(each, receipt, options)}" for _, each in main]
        if receipt.verdict == "blind" and not main:
            first = [build_headline(receipt).sentence]
        result, seen = "failed" if failed else "passed", receipt.compile
        numbers = (f"{count:,}" for count in (seen.recompiles, seen.graph_breaks))
        rows.append((options.clean(name, 200), result, *numbers, "".join(first)))
    head = ("test", "result", "recompiles", "graph breaks", "first finding")
    table = Table(head, rows, right=head[2:4], links=[test.page for test in tests])
    failures = sum(test.failed for test in tests)
    found = sum(bool(list_main_findings(test.receipt)) for test in tests)
    rest: Kind = "blind" if any(test.receipt.verdict == "blind" for test in tests) else "good"
    return Overview(
        title="tests",
        kind="bad" if failures else "warn" if found else rest,
        sentence=f"{pluralize(len(tests), 'watched test')}, {failures:,} failed, "
        f"{found:,} with findings",
        sections=[Section("tests", "All tests", "All tests", (table,))],
    )
