"""Where the steps' time went: phases, long steps, reads of tensors, spans and hooks by phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.style import RenderOptions
from compilediag.views.table import table
from compilediag.views.text import hang
from compilediag.views.words import NOT_MEASURED, count, percent, seconds

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.receipt.schema.running import Phases, Spike, StepsSection, Timing
    from compilediag.receipt.schema.syncs import SyncLineRecord, SyncsSection

PHASES = ("data_wait", "forward", "backward", "optimizer", "spans", "rest")
HEAD = ("span or function", "what", "phase", "calls", "total", "mean", "longest")
WIDE = 80
WIDE_ONLY = frozenset({"mean", "what"})
"""Columns left out of a narrower terminal."""
MOST_SPIKES = 20
MOST_TIMINGS = 40
MOST_READS = 12
"""Rows drawn; `show --json` has the others."""

_SPOKEN = {
    "data_wait": "waiting for data",
    "spans": "named spans",
    "disabled_function": "not compiled",
    "metric": "metrics",
    "data": "waiting for data",
}


def render_steps(receipt: Receipt, look: RenderOptions) -> str:
    """Phases, spikes, synchronisations and timings of the lead process, as tables."""
    steps = receipt.steps
    if steps is None and not receipt.timings:
        nothing = "no step was seen: mark steps with compilediag.step()"
        return "\n".join(hang(nothing, look.width, "", "")) + "\n"
    lines: list[str] = []
    if steps is not None:
        lines += [_headline(steps), "", *_phases(steps.phases, look)]
        lines += _spikes(steps, look) if steps.median is not None else []
    if receipt.syncs is not None and receipt.syncs.lines:
        lines += ["", *_syncs(receipt.syncs, look)]
    if receipt.timings:
        lines += ["", *_timings(receipt.timings, look)]
    return "\n".join(lines) + "\n"


def _headline(steps: StepsSection) -> str:
    warmup = f", {count(steps.warmup, 'step')} of warm-up" if steps.warmup else ""
    timed = f", {steps.timed:,} of them timed" if steps.timed is not None else ""
    return f"{count(steps.count, 'step')}{timed}, median {seconds(steps.median)}{warmup}"


def _phases(phases: Phases, look: RenderOptions) -> list[str]:
    measured = {name: getattr(phases, name) for name in PHASES}
    if not any(value is not None for value in measured.values()):
        return ["  the phases of the steps were not measured"]
    whole = sum(value for value in measured.values() if value is not None)
    rows = [
        (
            _SPOKEN.get(name, name),
            seconds(value),
            percent(value, whole) or "",
            seconds(phases.compile_s[name]) if name in phases.compile_s else "",
        )
        for name, value in measured.items()
    ]
    head = ("phase", "seconds", "share", "of it compiling")
    lines = table(head, rows, look, right=head[1:])
    if phases.steps is not None:
        told = (
            f"of {count(phases.steps, 'step')}: so brief are the others that only their ends were "
            "noted (COMPILEDIAG_EVERY_STEP=1 watches all)"
        )
        lines += hang(told, look.width, "  ", "    ")
    for name, missing in phases.partial.items():
        told = f"{look.text(_SPOKEN.get(name, name), 40)} is measured in part: {look.text(missing)}"
        lines += hang(told, look.width, "  ", "    ")
    return lines


# --- spikes ----------------------------------------------------------------------------------


def _spikes(steps: StepsSection, look: RenderOptions) -> list[str]:
    if not steps.spikes:
        return ["", "  no step after warm-up took more than twice the median"]
    head = ("long step", "took", "compiling", "metrics", "sync", "why")
    rows = [_spike(item, look) for item in steps.spikes[:MOST_SPIKES]]
    lines = ["", *table(head, rows, look, right=head[1:5], shrink="why")]
    return lines + _more(len(steps.spikes) - MOST_SPIKES)


def _spike(item: Spike, look: RenderOptions) -> tuple[str, ...]:
    why = NOT_MEASURED if item.why is None else _SPOKEN.get(item.why, item.why)
    taken = (item.compile_s, item.metric_s, item.sync_s or 0)
    return (
        f"step {item.step}",
        seconds(item.wall_s),
        *("" if value == 0 else seconds(value) for value in taken),
        look.text(why, 60),
    )


# --- synchronisations --------------------------------------------------------------------------


def _syncs(syncs: SyncsSection, look: RenderOptions) -> list[str]:
    """The lines that read tensors most often in a step."""
    what = "synchronisations" if syncs.on_device else "reads of tensors (no device: none waits)"
    head = (what, "kind", "most in a step", "sampled steps", "seconds")
    rows = [_sync(item, syncs.sampled_steps, look) for item in syncs.lines[:MOST_READS]]
    lines = table(head, rows, look, right=head[2:], shrink=what)
    return lines + _more(len(syncs.lines) - MOST_READS)


def _sync(item: SyncLineRecord, sampled: int, look: RenderOptions) -> tuple[str, ...]:
    return (
        f"{look.path(item.file, 60)}:{item.line} {look.text(item.function, 40)}",
        look.text(item.kind, 20),
        f"{item.most_in_a_step:,}",
        f"{item.steps:,} of {sampled:,}",
        seconds(item.seconds),
    )


# --- spans and hooks -------------------------------------------------------------------------


def _timings(timings: tuple[Timing, ...], look: RenderOptions) -> list[str]:
    timed = [item for item in timings if item.count is not None]
    lines: list[str] = []
    if timed:
        head = [name for name in HEAD if name not in WIDE_ONLY or look.width >= WIDE]
        rows = [_timing(item, look) for item in timed[:MOST_TIMINGS]]
        cells = [[row[HEAD.index(name)] for name in head] for row in rows]
        lines += table(head, cells, look, right=HEAD[3:], shrink=HEAD[0])
        lines += _more(len(timed) - MOST_TIMINGS)
    unseen = [item for item in timings if item.count is None]
    for item in unseen[:MOST_TIMINGS]:
        told = f"{_kind(item, look)} {_name(item, look)}: {look.text(item.note or NOT_MEASURED)}"
        lines += hang(told, look.width, "  ", "    ")
    return lines + _more(len(unseen) - MOST_TIMINGS)


def _timing(item: Timing, look: RenderOptions) -> tuple[str, ...]:
    return (
        _name(item, look),
        _kind(item, look),
        look.text(item.phase or "?", 40),
        f"{item.count:,}",
        seconds(item.total_s),
        seconds(item.mean_s),
        seconds(item.max_s),
    )


def _name(item: Timing, look: RenderOptions) -> str:
    name = look.text(item.name, 60)
    on = f" on {look.text(item.target, 60)}" if item.target else ""
    place = f"  {look.path(item.file, 60)}:{item.line}" if item.file else ""
    return f"{name}{on}{place}"


def _kind(item: Timing, look: RenderOptions) -> str:
    return look.text(_SPOKEN.get(item.kind, item.kind.replace("_", " ")), 40)


def _more(number: int) -> list[str]:
    return [f"  +{number} more: compilediag show --json"] if number > 0 else []
