"""The HTML report of a run: verdict, steps, findings, frames, costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from compilediag import extension_points
from compilediag.project_urls import get_rule_url
from compilediag.receipt.schema.compiles import FrameDetail, GraphBreak
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import GoodputSection
from compilediag.views.compiles import show_measured_seconds
from compilediag.views.document import (
    LINE_CHARS,
    Card,
    Section,
    Table,
    compute_shares,
)
from compilediag.views.findings import build_card, join_exports
from compilediag.views.format import (
    format_number,
    format_percent,
    format_quantity,
    format_seconds,
    pluralize,
)
from compilediag.views.headline import (
    build_headline,
    describe_ending,
    list_blind_reasons,
    list_trainer_figures,
    list_trainer_notes,
)
from compilediag.views.html.page import Assets, render_page
from compilediag.views.html.step_series import StepSeries, build_longest_table
from compilediag.views.lookups import list_main_findings, number_findings
from compilediag.views.measured import list_measured_sentences
from compilediag.views.next_command import choose_command
from compilediag.views.place import format_call, format_line
from compilediag.views.ranks import show_ranks
from compilediag.views.steps import show_steps
from compilediag.views.style import RenderOptions
from compilediag.views.varied import build_varied
from compilediag_harness.wire import find_resumed_function

SCREEN_WIDTH = 100
MAX_CARDS = 200
VALUE_CHARS = 300
_SHA_CHARS = 12
MAX_RAW_CHARS = 150_000
"""Of the receipt's own text: a page stays below half a megabyte."""


@dataclass(frozen=True, slots=True)
class ReportSources:
    """Sources that a report shows beside its receipt; each may be missing."""

    series: StepSeries = field(default_factory=StepSeries)
    raw: str = ""
    """The receipt as JSON with line breaks."""
    graphs: str = ""
    """The address of tlparse's report, relative to the page."""
    editors: Mapping[str, str] = field(default_factory=dict[str, str])
    """Addresses that open the lines of findings in an editor, by id."""
    notes: tuple[str, ...] = ()
    """Why something is missing."""


def render_report(
    receipt: Receipt, sources: ReportSources, assets: Assets, *, root: str = "", suffix: str = ""
) -> str:
    """Render the page. Files below `root` are shown relative to it; `suffix` is what commands need
    to find this receipt again, such as its path."""
    options = RenderOptions(width=SCREEN_WIDTH, root=root)
    head, figures = build_headline(receipt), list_trainer_figures(receipt)
    notes = [describe_ending(receipt), options.dot.join(figures), *list_trainer_notes(receipt)]
    series = sources.series
    shown, elsewhere = build_functions(receipt, options)
    main = list_main_findings(receipt)
    exports = join_exports(finding for _, finding in main if finding.fix.recipe)
    return render_page(
        assets,
        "report.html.j2",
        series.get_columns(),
        title=options.clean(_format_command(receipt) or receipt.header.configuration.name, 120),
        kind=head.kind,
        sentence=options.clean(head.sentence),
        more=[options.clean(text) for text in head.more],
        counts=head.counts,
        remarks=[options.clean(note) for note in notes if note],
        measured=[
            (name, options.clean(sentence)) for name, sentence in list_measured_sentences(receipt)
        ],
        facts=_list_facts(receipt, options),
        unknown=_list_unknown(receipt, options),
        following=options.clean(choose_command(receipt, suffix), 400),
        exports=[options.clean(line, LINE_CHARS) for line in exports],
        seconds=_build_goodput(receipt.goodput),
        graphs=sources.graphs,
        series=series,
        longest=build_longest_table(receipt),
        cards=_build_cards(receipt, options, suffix, sources.editors),
        cards_left_out=max(0, len(receipt.findings) - MAX_CARDS),
        functions=shown,
        elsewhere=elsewhere,
        sections=_build_sections(receipt, options),
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
    sections = (
        Section("varied", "What varied", "What varied", varied),
        Section(
            "seconds",
            "Compile time",
            "Where compile seconds went",
            show_measured_seconds(receipt, options),
        ),
        Section(
            "step-times",
            "Step times",
            "Where the steps' time went",
            show_steps(receipt, options) if running else (),
        ),
        *_build_cadence(receipt, options),
        Section("ranks", "Ranks", "Ranks", show_ranks(receipt, options) if ranked else ()),
        Section("graphs", "CUDA graphs", "CUDA graphs", _build_cuda_graphs(receipt, options)),
    )
    return [section for section in sections if section.blocks or section.pictures]


def _build_cards(
    receipt: Receipt, options: RenderOptions, suffix: str, editors: Mapping[str, str]
) -> list[Card]:
    """Build the cards of findings of at least `warning`, then of notes; at most `MAX_CARDS`.
    `editors`: the addresses that open their lines, by id."""
    ordered = number_findings(receipt)
    ordered.sort(key=lambda pair: (pair[1].severity == "info", pair[1].follows is not None))
    cards = (
        (pair[1], build_card(*pair, receipt, options, VALUE_CHARS)) for pair in ordered[:MAX_CARDS]
    )
    return [
        replace(
            card,
            anchor=f"finding-{card.number}",
            more=f"compilediag explain {card.number}{suffix}",
            key=options.clean(finding.key or ""),
            editor=options.clean(editors.get(finding.id, "")),
            page=get_rule_url(card.rule) or "",
        )
        for finding, card in cards
    ]


def _format_command(receipt: Receipt) -> str:
    return " ".join(receipt.header.run.argv_redacted)


def _list_facts(receipt: Receipt, options: RenderOptions) -> list[tuple[str, str]]:
    header, machine, code = receipt.header, receipt.environment, receipt.header.provenance
    parts = (
        machine.os,
        machine.cpu_model,
        None if machine.cpu_count is None else pluralize(machine.cpu_count, "CPU"),
        None if machine.ram_bytes is None else format_quantity(machine.ram_bytes, "bytes"),
        None if machine.gpus is None else pluralize(len(machine.gpus), "GPU"),
    )
    commit = "" if code.git_commit is None else code.git_commit[:_SHA_CHARS]
    if commit:
        commit += f" on {code.git_branch}" if code.git_branch else ""
        commit += " with local changes" if code.git_dirty else ""
    facts = (
        ("command", _format_command(receipt)),
        ("started", header.created_at_utc),
        ("torch", machine.torch),
        ("Python", machine.python),
        ("machine", ", ".join(part for part in parts if part)),
        ("configuration", header.configuration.name),
        ("commit", commit),
        ("receipt", receipt.receipt_id),
        ("written by", f"{header.producer.name} {header.producer.version}"),
    )
    return [(name, options.clean(value, 1000)) for name, value in facts if value]


def _list_unknown(receipt: Receipt, options: RenderOptions) -> list[tuple[str, str]]:
    """List reasons for gaps with remedies; empty where all was seen."""
    whole = receipt.completeness
    remedies = dict[str, str]()
    if receipt.verdict == "blind":
        remedies |= {why: remedy or "" for why, remedy in list_blind_reasons(receipt)}
    remedies |= {f"sources differ: {difference}": "" for difference in whole.differences}
    lost = sum(whole.records_lost.values())
    if lost:
        remedies[f"{pluralize(lost, 'record')} of the run got lost"] = ""
    if whole.ranks_expected is not None and len(whole.ranks_present) < whole.ranks_expected:
        present = f"{len(whole.ranks_present)} of {whole.ranks_expected} ranks reported"
        remedies.setdefault(present, "")
    return [(options.clean(why), options.clean(remedy)) for why, remedy in remedies.items()]


def _build_goodput(goodput: GoodputSection | None) -> Section:
    """Build the seconds of the run as one bar; empty where they were not taken apart."""
    title = "Where the seconds of the run went"
    if goodput is None or not goodput.wall_s or goodput.goodput_s is None:
        return Section("goodput", "Goodput", title)
    lost = sorted(goodput.badput_s.items(), key=lambda loss: -(loss[1] or 0.0))
    parts = [("steps", format_seconds(goodput.goodput_s), goodput.goodput_s)]
    parts += [(name.replace("_", " "), format_seconds(size), size) for name, size in lost if size]
    shares = [
        (name, f"{text} ({format_percent(size, goodput.wall_s)})", size)
        for name, text, size in parts
    ]
    return Section("goodput", "Goodput", title, shares=compute_shares(shares))


def _build_cuda_graphs(receipt: Receipt, options: RenderOptions) -> list[Table]:
    """Build the tables of recordings, replays and skips; empty without a CUDA device."""
    section = receipt.cudagraph
    if section is None or not section.applicable:
        return []
    counts = {
        "recordings": section.recordings,
        "replays": section.replays,
        "warm-ups": section.warmups,
        "skips": section.skips,
        "distinct shapes": section.distinct_shapes,
        "live graphs": section.live_graphs,
    }
    rows = [(name, f"{number:,}") for name, number in counts.items() if number is not None]
    if section.pool_bytes is not None:
        rows.append(("memory pool", format_quantity(section.pool_bytes, "bytes")))
    if waste := format_percent(section.padding_waste_fraction, 1.0):
        rows.append(("padding", waste))
    reasons = [
        (options.clean(f"{what}: {name}", 200), f"{number:,}")
        for what, numbers in (
            ("recorded", section.recordings_by_reason),
            ("skipped", section.skips_by_reason),
        )
        for name, number in numbers.items()
    ]
    tables = [Table(("count", "number"), rows, right=("number",))]
    return tables + ([Table(("reason", "times"), reasons, right=("times",))] if reasons else [])


def _build_cadence(receipt: Receipt, options: RenderOptions) -> list[Section]:
    """Build the section of a probe; empty where its extension is missing."""
    point = extension_points.CADENCE_SECTION
    if receipt.cadence is None or not extension_points.is_installed(point):
        return []
    return [extension_points.load(point, "the section of a probe")(receipt, options)]


# --- functions and their pieces ------------------------------------------------------------------

MAX_FUNCTIONS = 200
MAX_PIECES = 60


@dataclass(frozen=True, slots=True)
class Piece:
    """A frame (a whole function, or what runs behind one of its breaks), or a graph break."""

    state: str
    """"compiled", "eager", "limit" (ran eager at its limit), or "cut" for a break."""
    name: str
    detail: str
    reason: str
    finding: int | None = None


@dataclass(frozen=True, slots=True)
class FunctionPieces:
    """A function of the program or a library, with its pieces and the breaks between them."""

    name: str
    place: str
    entered: str
    pieces: tuple[Piece, ...]
    pieces_left_out: int


def build_functions(
    receipt: Receipt, options: RenderOptions
) -> tuple[list[FunctionPieces], tuple[Piece, ...]]:
    """Build the functions with most compiles first, at most `MAX_FUNCTIONS`; and the breaks in
    functions that are inlined into others, or of which no frame was seen."""
    frames: dict[tuple[str, str], list[tuple[int, FrameDetail]]] = {}
    for detail in receipt.compile.frames_detail:
        name, line = _find_original(detail.frame.function)
        frames.setdefault((detail.frame.file, name), []).append((line or 0, detail))
    breaks: dict[tuple[str, str], list[GraphBreak]] = {}
    for site in receipt.compile.breaks:
        breaks.setdefault((site.file, _find_original(site.function)[0]), []).append(site)
    numbers = {finding.id: number for number, finding in number_findings(receipt)}
    ordered = sorted(frames, key=lambda key: -sum(detail.compiles for _, detail in frames[key]))
    shown: list[FunctionPieces] = []
    for key in ordered[:MAX_FUNCTIONS]:
        parts = [detail for _, detail in sorted(frames[key], key=lambda part: part[0])]
        first, call = parts[0].frame, parts[0].entered_at
        begin, *pieces = [_build_piece(detail, options) for detail in parts[:MAX_PIECES]]
        cuts = _build_cuts(breaks.get(key, ()), numbers, options)  # behind its first piece
        shown.append(
            FunctionPieces(
                name=options.clean(key[1], 100),
                place=options.format_place(first.file, first.line, 120),
                entered="" if call is None else format_call(call, options),
                pieces=(begin, *cuts, *pieces),
                pieces_left_out=max(0, len(parts) - MAX_PIECES),
            )
        )
    others = [site for key, sites in breaks.items() if key not in frames for site in sites]
    return shown, _build_cuts(others[:MAX_FUNCTIONS], numbers, options)


def _find_original(function: str) -> tuple[str, int | None]:
    """Find the function that a frame is a part of, and the line behind which it goes on."""
    name = find_resumed_function(function)
    return (function, None) if name is None else (name, int(function.rpartition("_at_")[2]))


def _build_piece(frame: FrameDetail, options: RenderOptions) -> Piece:
    room = frame.headroom
    full = room.limit is not None and room.variants >= room.limit
    line = _find_original(frame.frame.function)[1]
    state = "limit" if frame.ran_eager and full else "eager" if frame.ran_eager else "compiled"
    words = {"limit": "at its limit: ran eager", "eager": "ran eager", "compiled": "compiled"}
    facts = [words[state], pluralize(frame.compiles, "compile")]
    facts += [] if room.limit is None else [f"{room.variants} of {room.limit} variants"]
    facts += [] if frame.guards is None else [pluralize(frame.guards, "guard")]
    facts += (
        [] if frame.guard_eval_us is None else [f"{format_number(frame.guard_eval_us)} us a check"]
    )
    name = "from its start" if line is None else f"behind the break at line {line}"
    return Piece(state, name, options.dot.join(facts), options.clean(frame.eager_reason or "", 300))


def _build_cuts(
    breaks: Iterable[GraphBreak], numbers: dict[str, int], options: RenderOptions
) -> tuple[Piece, ...]:
    return tuple(
        Piece(
            "cut",
            format_line(site.file, site.line, site.function, options),
            pluralize(site.count, "time"),
            options.clean(site.reason, 200),
            None if site.finding is None else numbers.get(site.finding),
        )
        for site in sorted(breaks, key=lambda site: (site.file, site.line))[:MAX_PIECES]
    )
