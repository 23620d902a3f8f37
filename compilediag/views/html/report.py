"""The HTML report of a run: verdict, steps, findings, frames, costs; and that of a test session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from compilediag import extension_points
from compilediag.receipt.schema.compiles import FrameDetail, GraphBreak
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import GoodputSection
from compilediag.views.compiles import show_measured_seconds
from compilediag.views.document import (
    LINE_CHARS,
    Card,
    Excerpt,
    Kind,
    Overview,
    Paragraph,
    Section,
    Table,
    shares,
)
from compilediag.views.findings import card_of, joined_exports
from compilediag.views.format import count, figure, percent, quantity, seconds
from compilediag.views.headline import ending, headline, reasons, trainer_figures, trainer_notes
from compilediag.views.html.page import Assets, render_page
from compilediag.views.html.step_series import StepSeries, longest
from compilediag.views.lookups import main_findings, numbered
from compilediag.views.measured import measured_sentences
from compilediag.views.place import called, line_of
from compilediag.views.ranks import show_ranks
from compilediag.views.steps import show_steps
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import resumed_function

SCREEN_WIDTH = 100
MAX_CARDS = 200
MAX_TESTS = 40
"""Of a session, whose findings are shown; the table has all."""
_WORST: tuple[Kind, ...] = ("bad", "blind", "warn", "good")
_COUNTS = ("frames", "compiles", "recompiles", "graph_breaks", "eager_fallbacks")
NONE = Excerpt()
VALUE_CHARS = 300
_SHA_CHARS = 12
MAX_RAW_CHARS = 150_000
"""Of the receipt's own text: a page stays below half a megabyte."""


@dataclass(frozen=True, slots=True)
class ReportSources:
    """What a report shows beside its receipt; each may be missing."""

    series: StepSeries = field(default_factory=StepSeries)
    excerpts: Mapping[str, Excerpt] = field(default_factory=dict[str, Excerpt])
    raw: str = ""
    """The receipt as JSON with line breaks."""
    notes: tuple[str, ...] = ()
    """Why something is missing."""


def render_report(
    receipt: Receipt, sources: ReportSources, assets: Assets, *, root: str = "", suffix: str = ""
) -> str:
    """Render the page. Files below `root` are shown relative to it; `suffix` is what commands need
    to find this receipt again, such as its path."""
    options = RenderOptions(width=SCREEN_WIDTH, root=root)
    head, figures = headline(receipt), trainer_figures(receipt)
    notes = [ending(receipt), options.dot.join(figures), *trainer_notes(receipt)]
    running = receipt.steps is not None or receipt.timings
    ranked = receipt.ranks is not None and receipt.ranks.rows
    sections = (
        Section(
            "seconds",
            "Compile time",
            "Where compile seconds went",
            show_measured_seconds(receipt, options),
        ),
        *_goodput(receipt.goodput),
        Section(
            "step-times",
            "Step times",
            "Where the steps' time went",
            show_steps(receipt, options) if running else (),
        ),
        *_cadence(receipt, options),
        Section("ranks", "Ranks", "Ranks", show_ranks(receipt, options) if ranked else ()),
        Section("graphs", "CUDA graphs", "CUDA graphs", _cuda_graphs(receipt, options)),
    )
    series = sources.series
    shown, elsewhere = functions(receipt, options)
    exports = joined_exports(item for _, item in main_findings(receipt))
    return render_page(
        assets,
        "report.html.j2",
        series.data(),
        title=options.text(_command(receipt) or receipt.header.lane.name, 120),
        kind=head.kind,
        sentence=options.text(head.sentence),
        counts=head.counts,
        remarks=[options.text(each) for each in notes if each],
        measured=[(name, options.text(each)) for name, each in measured_sentences(receipt)],
        facts=_facts(receipt, options),
        unknown=_unknown(receipt, options),
        exports=[options.text(line, LINE_CHARS) for line in exports],
        series=series,
        longest=longest(receipt),
        cards=[
            replace(card, excerpt=sources.excerpts.get(receipt.findings[card.number - 1].id, NONE))
            for card in _cards(receipt, options, suffix)
        ],
        cards_left_out=max(0, len(receipt.findings) - MAX_CARDS),
        functions=shown,
        elsewhere=elsewhere,
        sections=[each for each in sections if each.blocks or each.pictures],
        raw=sources.raw[:MAX_RAW_CHARS],
        raw_left_out=max(0, len(sources.raw) - MAX_RAW_CHARS),
        notes=sources.notes,
        suffix=suffix,
    )


def _cards(receipt: Receipt, options: RenderOptions, suffix: str, prefix: str = "") -> list[Card]:
    """Build the cards of findings of at least `warning`, then of notes; at most `MAX_CARDS`."""
    ordered = sorted(numbered(receipt), key=lambda pair: pair[1].severity == "info")
    found = (card_of(*pair, receipt, options, VALUE_CHARS) for pair in ordered[:MAX_CARDS])
    return [
        replace(
            card,
            anchor=f"{prefix}finding-{card.number}",
            more=f"compilediag explain {card.number}{suffix}",
        )
        for card in found
    ]


def _command(receipt: Receipt) -> str:
    return " ".join(receipt.header.run.argv_redacted)


def _facts(receipt: Receipt, options: RenderOptions) -> list[tuple[str, str]]:
    header, machine, code = receipt.header, receipt.environment, receipt.header.provenance
    parts = (
        machine.os,
        machine.cpu_model,
        None if machine.cpu_count is None else count(machine.cpu_count, "CPU"),
        None if machine.ram_bytes is None else quantity(machine.ram_bytes, "bytes"),
        None if machine.gpus is None else count(len(machine.gpus), "GPU"),
    )
    commit = "" if code.git_commit is None else code.git_commit[:_SHA_CHARS]
    if commit:
        commit += f" on {code.git_branch}" if code.git_branch else ""
        commit += " with local changes" if code.git_dirty else ""
    found = (
        ("command", _command(receipt)),
        ("started", header.created_at_utc),
        ("torch", machine.torch),
        ("Python", machine.python),
        ("machine", ", ".join(part for part in parts if part)),
        ("lane", header.lane.name),
        ("commit", commit),
        ("receipt", receipt.receipt_id),
        ("written by", f"{header.producer.name} {header.producer.version}"),
    )
    return [(name, options.text(value, 1000)) for name, value in found if value]


def _unknown(receipt: Receipt, options: RenderOptions) -> list[tuple[str, str]]:
    """List reasons for gaps with remedies; empty where all was seen."""
    whole = receipt.completeness
    found = dict[str, str]()
    if receipt.verdict == "blind":
        found |= {why: remedy or "" for why, remedy in reasons(receipt)}
    found |= {f"sources differ: {each}": "" for each in whole.differences}
    lost = sum(whole.records_lost.values())
    if lost:
        found[f"{count(lost, 'record')} of the run got lost"] = ""
    if whole.ranks_expected is not None and len(whole.ranks_present) < whole.ranks_expected:
        present = f"{len(whole.ranks_present)} of {whole.ranks_expected} ranks reported"
        found.setdefault(present, "")
    return [(options.text(why), options.text(remedy)) for why, remedy in found.items()]


def _goodput(found: GoodputSection | None) -> list[Section]:
    """Build the seconds of the run as one bar; empty where they were not taken apart."""
    if found is None or not found.wall_s or found.goodput_s is None:
        return []
    lost = sorted(found.badput_s.items(), key=lambda item: -(item[1] or 0.0))
    parts = [("steps", seconds(found.goodput_s), found.goodput_s)]
    parts += [(name.replace("_", " "), seconds(size), size) for name, size in lost if size]
    rows = [(name, text, percent(size, found.wall_s) or "") for name, text, size in parts]
    share = percent(found.goodput_s, found.wall_s)
    about = f"{share} of {seconds(found.wall_s)} went into steps as they are when all is compiled."
    table = Table(("use", "seconds", "share"), rows, right=("seconds", "share"))
    title = "What the run's time was for"
    return [Section("goodput", "Goodput", title, (Paragraph(about), table), shares(parts))]


def _cuda_graphs(receipt: Receipt, options: RenderOptions) -> list[Table]:
    """Build the tables of recordings, replays and skips; empty without a CUDA device."""
    found = receipt.cudagraph
    if found is None or not found.applicable:
        return []
    counts = {
        "recordings": found.recordings,
        "replays": found.replays,
        "warm-ups": found.warmups,
        "skips": found.skips,
        "distinct shapes": found.distinct_shapes,
        "live graphs": found.live_graphs,
    }
    rows = [(name, f"{number:,}") for name, number in counts.items() if number is not None]
    if found.pool_bytes is not None:
        rows.append(("memory pool", quantity(found.pool_bytes, "bytes")))
    if waste := percent(found.padding_waste_fraction, 1.0):
        rows.append(("padding", waste))
    reasons = [
        (options.text(f"{what}: {name}", 200), f"{number:,}")
        for what, numbers in (
            ("recorded", found.recordings_by_reason),
            ("skipped", found.skips_by_reason),
        )
        for name, number in numbers.items()
    ]
    tables = [Table(("count", "number"), rows, right=("number",))]
    return tables + ([Table(("reason", "times"), reasons, right=("times",))] if reasons else [])


def _cadence(receipt: Receipt, options: RenderOptions) -> list[Section]:
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


def functions(
    receipt: Receipt, options: RenderOptions
) -> tuple[list[FunctionPieces], tuple[Piece, ...]]:
    """Build the functions with most compiles first, at most `MAX_FUNCTIONS`; and the breaks in
    functions that are inlined into others, or of which no frame was seen."""
    frames: dict[tuple[str, str], list[tuple[int, FrameDetail]]] = {}
    for each in receipt.compile.frames_detail:
        name, line = _original(each.frame.function)
        frames.setdefault((each.frame.file, name), []).append((line or 0, each))
    breaks: dict[tuple[str, str], list[GraphBreak]] = {}
    for item in receipt.compile.breaks:
        breaks.setdefault((item.file, _original(item.function)[0]), []).append(item)
    numbers = {item.id: number for number, item in numbered(receipt)}
    ordered = sorted(frames, key=lambda key: -sum(each.compiles for _, each in frames[key]))
    shown: list[FunctionPieces] = []
    for key in ordered[:MAX_FUNCTIONS]:
        parts = [each for _, each in sorted(frames[key], key=lambda part: part[0])]
        first, call = parts[0].frame, parts[0].entered_at
        begin, *pieces = [_piece(each, options) for each in parts[:MAX_PIECES]]
        cuts = _cuts(breaks.get(key, ()), numbers, options)  # behind its first piece
        shown.append(
            FunctionPieces(
                name=options.text(key[1], 100),
                place=options.place(first.file, first.line, 120),
                entered="" if call is None else called(call, options),
                pieces=(begin, *cuts, *pieces),
                pieces_left_out=max(0, len(parts) - MAX_PIECES),
            )
        )
    others = [item for key, items in breaks.items() if key not in frames for item in items]
    return shown, _cuts(others[:MAX_FUNCTIONS], numbers, options)


def _original(function: str) -> tuple[str, int | None]:
    """Find the function that a frame is a part of, and the line behind which it goes on."""
    name = resumed_function(function)
    return (function, None) if name is None else (name, int(function.rpartition("_at_")[2]))


def _piece(item: FrameDetail, options: RenderOptions) -> Piece:
    room = item.headroom
    full = room.limit is not None and room.variants >= room.limit
    line = _original(item.frame.function)[1]
    state = "limit" if item.ran_eager and full else "eager" if item.ran_eager else "compiled"
    words = {"limit": "at its limit: ran eager", "eager": "ran eager", "compiled": "compiled"}
    detail = [words[state], count(item.compiles, "compile")]
    detail += [] if room.limit is None else [f"{room.variants} of {room.limit} variants"]
    detail += [] if item.guards is None else [count(item.guards, "guard")]
    detail += [] if item.guard_eval_us is None else [f"{figure(item.guard_eval_us)} us a check"]
    name = "from its start" if line is None else f"behind the break at line {line}"
    return Piece(state, name, options.dot.join(detail), options.text(item.eager_reason or "", 300))


def _cuts(
    breaks: Iterable[GraphBreak], numbers: dict[str, int], options: RenderOptions
) -> tuple[Piece, ...]:
    return tuple(
        Piece(
            "cut",
            line_of(item.file, item.line, item.function, options),
            count(item.count, "time"),
            options.text(item.reason, 200),
            None if item.finding is None else numbers.get(item.finding),
        )
        for item in sorted(breaks, key=lambda each: (each.file, each.line))[:MAX_PIECES]
    )


# --- a session of tests --------------------------------------------------------------------------


def show_session(
    receipts: Mapping[str, Receipt], suffixes: Mapping[str, str], options: RenderOptions
) -> Overview:
    """Build the page of a test session: `receipts` and `suffixes` (what commands need to find each
    receipt) by the names of the tests."""
    heads = {name: headline(each) for name, each in receipts.items()}
    found = [
        name
        for name, each in receipts.items()
        if any(item.severity != "info" for item in each.findings)
    ]
    head = ("test", "verdict", *(name.replace("_", " ") for name in _COUNTS))
    rows = [
        (
            options.text(name, 200),
            heads[name].sentence,
            *(str(getattr(each.compile, name)) for name in _COUNTS),
        )
        for name, each in receipts.items()
    ]
    sections = [Section("tests", "All tests", "All tests", (Table(head, rows, right=head[2:]),))]
    for index, name in enumerate(found[:MAX_TESTS], 1):
        suffix = options.text(suffixes.get(name, ""), 1000)
        cards = _cards(receipts[name], options, suffix, f"test-{index}-")
        # A page of many tests has no chart in which a step could be shown.
        blocks = [Paragraph(heads[name].sentence), *(replace(c, first_step=None) for c in cards)]
        title = options.text(name, 200)
        sections.append(Section(f"test-{index}", f"Test {index}", title, blocks))
    left = len(found) - MAX_TESTS
    more = f"{left} more tests with findings are not shown; their receipts are beside this page"
    return Overview(
        title="tests",
        kind=min([each.kind for each in heads.values()] or _WORST[-1:], key=_WORST.index),
        sentence=f"{count(len(receipts), 'watched test')}, {len(found):,} with findings",
        sections=sections,
        notes=(more,) if left > 0 else (),
    )
