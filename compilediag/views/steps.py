"""The view of steps' time: phases, long steps, reads of tensors, spans and hooks by phase."""

from __future__ import annotations

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import Phases, StepsSection, Timing
from compilediag.views.document import Block, Paragraph, Table
from compilediag.views.format import NOT_MEASURED, count, more, percent, seconds
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
    found = receipt.steps
    if found is None and not receipt.timings:
        return [Paragraph("no step was seen: mark steps with compilediag.step()")]
    blocks = list[Block]()
    if found is not None:
        warmup = f", {count(found.warmup, 'step')} of warm-up" if found.warmup else ""
        timed = f", {found.timed:,} of them timed" if found.timed is not None else ""
        sentence = f"{count(found.count, 'step')}{timed}, median {seconds(found.median)}{warmup}"
        blocks += [Paragraph(sentence), _phases(found.phases, options)]
        blocks += [_spikes(found, options)] if found.median is not None else []
    if receipt.syncs is not None and receipt.syncs.lines:
        # The lines that read tensors most often in a step.
        syncs = receipt.syncs
        what = "synchronisations" if syncs.on_device else "reads of tensors (no device: none waits)"
        head = (what, "kind", "most in a step", "sampled steps", "seconds")
        rows = [
            (
                f"{options.place(item.file, item.line)} {options.text(item.function, 40)}",
                options.text(item.kind, 20),
                f"{item.most_in_a_step:,}",
                f"{item.steps:,} of {syncs.sampled_steps:,}",
                seconds(item.seconds),
            )
            for item in syncs.lines
        ]
        blocks.append(Table(head, rows, right=head[2:], shrink=what, limit=MAX_READS))
    return [*blocks, *_timings(receipt.timings, options)]


def _phases(phases: Phases, options: RenderOptions) -> Block:
    measured = {name: getattr(phases, name) for name in PHASES}
    known = [value for value in measured.values() if value is not None]
    if not known:
        return Paragraph(notes=("the phases of the steps were not measured",))
    rows = [
        (
            _LABELS.get(name, name),
            seconds(value),
            percent(value, sum(known)) or "",
            seconds(phases.compile_s[name]) if name in phases.compile_s else "",
        )
        for name, value in measured.items()
    ]
    notes: list[str] = []
    if phases.steps is not None:
        notes.append(
            f"of {count(phases.steps, 'step')}: the others are so brief that only their ends were "
            "recorded (COMPILEDIAG_EVERY_STEP=1 measures all)"
        )
    for name, missing in phases.partial.items():
        phase = options.text(_LABELS.get(name, name), 40)
        notes.append(f"{phase} is measured in part: {options.text(missing)}")
    head = ("phase", "seconds", "share", "of it compiling")
    return Table(head, rows, right=head[1:], notes=notes)


def _spikes(steps: StepsSection, options: RenderOptions) -> Block:
    if not steps.spikes:
        return Paragraph(notes=("no step after warm-up took more than twice the median",))
    rows: list[tuple[str, ...]] = []
    for item in steps.spikes:
        why = NOT_MEASURED if item.why is None else _LABELS.get(item.why, item.why)
        taken = (item.compile_s, item.metric_s, item.sync_s or 0)
        parts = ("" if value == 0 else seconds(value) for value in taken)
        rows.append((f"step {item.step}", seconds(item.wall_s), *parts, options.text(why, 60)))
    head = ("long step", "took", "compiling", "metrics", "sync", "why")
    return Table(head, rows, right=head[1:5], shrink="why", limit=MAX_SPIKES)


def _timings(timings: tuple[Timing, ...], options: RenderOptions) -> list[Block]:
    """Build the table of spans and hooks; in notes those that were not measured."""
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for item in timings:
        on = f" on {options.text(item.target, 60)}" if item.target else ""
        place = f"  {options.place(item.file, item.line)}" if item.file else ""
        name = f"{options.text(item.name, 60)}{on}{place}"
        kind = options.text(_LABELS.get(item.kind, item.kind.replace("_", " ")), 40)
        if item.count is None:
            notes.append(f"{kind} {name}: {options.text(item.note or NOT_MEASURED)}")
            continue
        taken = map(seconds, (item.total_s, item.mean_s, item.max_s))
        rows.append((name, kind, options.text(item.phase or "?", 40), f"{item.count:,}", *taken))
    hidden = more(len(notes) - MAX_TIMINGS, ": compilediag show --json", "")
    notes[MAX_TIMINGS:] = hidden
    head = ("span or function", "what", "phase", "calls", "total", "mean", "longest")
    table = Table(
        head,
        rows,
        right=head[3:],
        notes=notes,
        shrink=head[0],
        wide_only=("mean", "what"),
        limit=MAX_TIMINGS,
    )
    if rows:
        return [table]
    return [Paragraph(notes=notes)] if notes else []
