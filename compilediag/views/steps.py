"""The view of steps' time: phases, long steps, reads of tensors, spans and functions by phase."""

from __future__ import annotations

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import Phases, StepsSection, Timing
from compilediag.views.document import Block, Paragraph, Table
from compilediag.views.format import NOT_MEASURED, format_percent, format_seconds, pluralize
from compilediag.views.style import RenderOptions

TIMED = ("data_wait", "forward", "backward", "optimizer", "spans")
"""Phases that are timed; the rest of a step is what they leave."""
PHASES = (*TIMED, "rest")
MAX_SPIKES = 20
MAX_TIMINGS = 40
MAX_READS = 12
"""Rows drawn; `show --json` has the others."""

_LABELS = {
    "data_wait": "waiting for data",
    "spans": "named spans",
    "disabled_function": "not compiled",
    "metric": "metrics",
    "data": "waiting for data",
}


def show_steps(receipt: Receipt, options: RenderOptions) -> list[Block]:
    """Build the tables of phases, spikes, synchronisations and timings of the lead process."""
    section = receipt.steps
    if section is None and not receipt.timings:
        return [Paragraph("no step was seen: mark steps with compilediag.step()")]
    blocks = list[Block]()
    if section is not None:
        warmup = f", {pluralize(section.warmup, 'step')} of warm-up" if section.warmup else ""
        timed = f", {section.timed:,} of them timed" if section.timed is not None else ""
        steps = pluralize(section.count, "step")
        sentence = f"{steps}{timed}, median {format_seconds(section.median)}{warmup}"
        blocks += [Paragraph(sentence), _build_phase_table(section.phases, options)]
        blocks += [_build_spike_table(section, options)] if section.median is not None else []
    if receipt.syncs is not None and receipt.syncs.lines:
        # The lines that read tensors most often in a step.
        syncs = receipt.syncs
        what = "synchronisations" if syncs.on_device else "reads of tensors (no device: none waits)"
        head = (what, "kind", "most in a step", "sampled steps", "seconds")
        rows = [
            (
                f"{options.format_place(line.file, line.line)} {options.clean(line.function, 40)}",
                options.clean(line.kind, 20),
                f"{line.most_in_a_step:,}",
                f"{line.steps:,} of {syncs.sampled_steps:,}",
                format_seconds(line.seconds),
            )
            for line in syncs.lines
        ]
        blocks.append(Table(head, rows, right=head[2:], shrink=what, limit=MAX_READS))
    return [*blocks, *_build_timing_tables(receipt.timings, options)]


def _build_phase_table(phases: Phases, options: RenderOptions) -> Block:
    measured = {name: getattr(phases, name) for name in PHASES}
    known = [value for value in measured.values() if value is not None]
    if not known:
        return Paragraph(notes=("the phases of the steps were not measured",))
    rows = [
        (
            _LABELS.get(name, name),
            format_seconds(value),
            format_percent(value, sum(known)) or "",
            format_seconds(phases.compile_s[name]) if name in phases.compile_s else "",
        )
        for name, value in measured.items()
    ]
    notes: list[str] = []
    if phases.steps is not None:
        notes.append(
            f"of {pluralize(phases.steps, 'step')}: the others are so brief that only their ends "
            "were recorded (COMPILEDIAG_EVERY_STEP=1 measures all)"
        )
    head = ("phase", "seconds", "share", "of it compiling")
    return Table(head, rows, right=head[1:], notes=notes)


def _build_spike_table(steps: StepsSection, options: RenderOptions) -> Block:
    if not steps.spikes:
        return Paragraph(notes=("no step after warm-up took more than twice the median",))
    rows: list[tuple[str, ...]] = []
    for spike in steps.spikes:
        why = NOT_MEASURED if spike.why is None else _LABELS.get(spike.why, spike.why)
        taken = (spike.compile_s, spike.metric_s, spike.sync_s or 0)
        parts = ("" if value == 0 else format_seconds(value) for value in taken)
        took = format_seconds(spike.wall_s)
        rows.append((f"step {spike.step}", took, *parts, options.clean(why, 60)))
    head = ("long step", "took", "compiling", "metrics", "sync", "why")
    return Table(head, rows, right=head[1:5], shrink="why", limit=MAX_SPIKES)


def _build_timing_tables(timings: tuple[Timing, ...], options: RenderOptions) -> list[Block]:
    """Build the table of spans and of functions that are not compiled."""
    rows: list[tuple[str, ...]] = []
    for row in timings:
        place = f"  {options.format_place(row.file, row.line)}" if row.file else ""
        name = f"{options.clean(row.name, 60)}{place}"
        kind = options.clean(_LABELS.get(row.kind, row.kind), 40)
        taken = map(format_seconds, (row.total_s, row.mean_s, row.max_s))
        rows.append(
            (name, kind, options.clean(row.phase or "?", 40), f"{row.count or 0:,}", *taken)
        )
    head = ("span or function", "what", "phase", "calls", "total", "mean", "longest")
    table = Table(
        head,
        rows,
        right=head[3:],
        shrink=head[0],
        wide_only=("mean", "what"),
        limit=MAX_TIMINGS,
    )
    return [table] if rows else []
