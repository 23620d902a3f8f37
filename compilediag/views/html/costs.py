"""Where the time went: seconds of compiling, caches, the run as a whole, guards and memory."""

from __future__ import annotations

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import CudagraphSection, GoodputSection
from compilediag.views.compile_time import (
    CACHE_HEAD,
    FRAME_HEAD,
    PHASE_HEAD,
    cache_rows,
    cost_lines,
    frame_rows,
    phase_rows,
    refusals,
)
from compilediag.views.format import count, percent, quantity, seconds
from compilediag.views.html.parts import Section, Table, heated, shares, table
from compilediag.views.ranks import HEAD, headline, rank_row, render_ranks
from compilediag.views.steps import render_steps
from compilediag.views.style import RenderOptions


def compile_seconds(receipt: Receipt, options: RenderOptions) -> Section | None:
    """Phases as bars, the frames, the caches, then guards and memory; None without compiles."""
    found, caches = receipt.compile.seconds, receipt.caches
    sentences: list[str] = []
    tables: list[Table] = []
    if found is not None and found.total:
        sentences.append(f"{seconds(found.total)} in {count(found.attempts, 'compile')}.")
        if found.restarted > 0:
            sentences.append(
                f"{seconds(found.restarted)} of it in attempts that Dynamo began again."
            )
        rows = phase_rows(found, options)
        cells, sizes = [row for row, _ in rows], [size for _, size in rows]
        tables.append(table("by phase", PHASE_HEAD, cells, right=PHASE_HEAD[1:], bars=sizes))
        tables.append(
            table("by frame", FRAME_HEAD, frame_rows(found, options), right=FRAME_HEAD[1:4])
        )
    if caches is not None:
        tables.append(
            table("compile caches", CACHE_HEAD, cache_rows(caches, options), right=CACHE_HEAD[1:])
        )
        sentences += [f"{sentence}." for sentence in refusals(caches, options)]
    costs = "\n".join(cost_lines(receipt, options)).strip("\n")
    if not tables and not costs:
        return None
    return Section(
        "seconds",
        "Compile time",
        "Where compile seconds went",
        tuple(sentences),
        tables=tuple(tables),
        text=costs,
    )


def goodput(receipt: Receipt) -> Section | None:
    """The seconds of the run as one bar; None where they were not taken apart."""
    found = receipt.goodput
    if found is None or not found.wall_s or found.goodput_s is None:
        return None
    parts = _goodput_parts(found, found.goodput_s)
    rows = [(name, text, percent(size, found.wall_s) or "") for name, text, size in parts]
    share = percent(found.goodput_s, found.wall_s)
    return Section(
        "goodput",
        "Goodput",
        "What the run's time was for",
        (f"{share} of {seconds(found.wall_s)} went into steps as they are when all is compiled.",),
        shares(parts),
        (table("by use", ("use", "seconds", "share"), rows, right=("seconds", "share")),),
    )


def _goodput_parts(found: GoodputSection, good_s: float) -> list[tuple[str, str, float]]:
    lost = sorted(found.badput_s.items(), key=lambda item: -(item[1] or 0.0))
    parts = [("steps", seconds(good_s), good_s)]
    parts += [(name.replace("_", " "), seconds(size), size) for name, size in lost if size]
    return parts


def cuda_graphs(receipt: Receipt, options: RenderOptions) -> Section | None:
    """Recordings, replays and skips; None without a CUDA device."""
    found = receipt.cudagraph
    if found is None or not found.applicable:
        return None
    rows = [(name, text) for name, text in _graph_rows(found) if text]
    reasons = [
        *(
            (f"recorded: {name}", f"{number:,}")
            for name, number in found.recordings_by_reason.items()
        ),
        *((f"skipped: {name}", f"{number:,}") for name, number in found.skips_by_reason.items()),
    ]
    shown = [(options.text(name, 200), number) for name, number in reasons]
    tables = [table("counts", ("", "number"), rows, right=("number",))]
    tables += [table("reasons", ("reason", "times"), shown, right=("times",))] if shown else []
    return Section("graphs", "CUDA graphs", "CUDA graphs", tables=tuple(tables))


def _graph_rows(found: CudagraphSection) -> list[tuple[str, str]]:
    waste = percent(found.padding_waste_fraction, 1.0)
    return [
        ("recordings", _number(found.recordings)),
        ("replays", _number(found.replays)),
        ("warm-ups", _number(found.warmups)),
        ("skips", _number(found.skips)),
        ("distinct shapes", _number(found.distinct_shapes)),
        ("live graphs", _number(found.live_graphs)),
        ("memory pool", "" if found.pool_bytes is None else quantity(found.pool_bytes, "bytes")),
        ("padding", waste or ""),
    ]


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def steps(receipt: Receipt, options: RenderOptions) -> Section | None:
    """Phases, long steps, reads of tensors and spans, as `show --steps` has them."""
    if receipt.steps is None and not receipt.timings:
        return None
    text = render_steps(receipt, options)
    return Section("step-times", "Step times", "Where the steps' time went", text=text)


def ranks(receipt: Receipt, options: RenderOptions) -> Section | None:
    """A heat map of the ranks, and where they do not do the same."""
    found = receipt.ranks
    if found is None or not found.rows:
        return None
    made = table("ranks", HEAD, [rank_row(row) for row in found.rows], right=HEAD)
    rows = found.rows[: len(made.rows)]
    columns = (
        (),
        [row.compiles for row in rows],
        [row.recompiles for row in rows],
        [row.graph_breaks for row in rows],
        [row.eager_fallbacks for row in rows],
        [row.compile_s for row in rows],
        (),
        [row.step_median_s for row in rows],
    )
    return Section(
        "ranks",
        "Ranks",
        "Ranks",
        (f"{headline(found)}.",),
        tables=(heated(made, columns),),
        text=render_ranks(receipt, options) if found.divergences or found.stragglers else "",
    )
