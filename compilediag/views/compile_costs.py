"""What compiled code costs beside seconds of compiling: guards of each call, memory of compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.views.format import NOT_MEASURED, count, percent
from compilediag.views.style import RenderOptions
from compilediag.views.table import table

if TYPE_CHECKING:
    from compilediag.receipt.schema.compile_costs import (
        CompileMemory,
        CompileMemorySection,
        FrameGuards,
        GuardsSection,
    )
    from compilediag.receipt.schema.receipt import Receipt

MAX_ROWS = 10


def cost_lines(receipt: Receipt, options: RenderOptions) -> list[str]:
    """Guards, then memory; empty where neither was measured."""
    guards, memory = receipt.compile.guards, receipt.compile.memory
    return [
        *([] if guards is None else _guards(guards, options)),
        *([] if memory is None else _memory(memory, receipt, options)),
    ]


def _guards(section: GuardsSection, options: RenderOptions) -> list[str]:
    if section.us_per_step is None or not section.step_s:
        sentence = "guards: evaluated before every call; their part of a step is not known"
    else:
        share = percent(section.us_per_step / 1e6, section.step_s) or "less than 1 %"
        sentence = (
            f"guards: at least {_us(section.us_per_step)} of each {_us(section.step_s * 1e6)} step "
            f"({share}), evaluated before every call"
        )
    head = ("frame", "guards", "in Python", "once", "runs a step", "a step")
    lines = ["", *options.wrap(sentence), ""]
    rows = [_row(item, options) for item in section.frames]
    lines += table(head, rows, options, right=head[1:], shrink="frame", limit=MAX_ROWS)
    known = [item for item in section.calls if item.before_graph_us is not None]
    for item in known[:MAX_ROWS]:
        told = (
            f"{options.text(item.callable, 70)}: {_us(item.before_graph_us)} from the call to its "
            f"graph, guards included (median of {count(item.calls, 'warm call')})"
        )
        lines += options.wrap(told, "  ", "    ")
    return lines


def _row(item: FrameGuards, options: RenderOptions) -> tuple[str, ...]:
    return (
        options.text(f"{item.frame.function} ({item.frame.file}:{item.frame.line})", 70),
        NOT_MEASURED if item.evaluated is None else f"{item.evaluated:,}",
        NOT_MEASURED if item.in_python is None else f"{item.in_python:,}",
        _us(item.eval_us),
        NOT_MEASURED if item.runs_per_step is None else f"{item.runs_per_step:g}",
        _us(item.us_per_step),
    )


def _memory(section: CompileMemorySection, receipt: Receipt, options: RenderOptions) -> list[str]:
    grown = _mib(section.grown_bytes)
    sentence = f"host memory: the process grew by {grown} in {count(section.compiles, 'compile')}"
    peak = (
        "; none raised the most that it had held before"
        if section.peak_bytes is None
        else f", and held {_mib(section.peak_bytes)} at most in one of them"
    )
    frames = {
        (item.process, item.epoch, item.compile_id): item.frame.function
        for item in receipt.compile.events
    }
    head = ("compile", "grew by", "peak")
    rows = [_memory_row(item, frames, options) for item in section.events]
    return [
        "",
        *options.wrap(sentence + peak),
        "",
        *table(head, rows, options, right=head[1:], shrink="compile", limit=MAX_ROWS),
    ]


def _memory_row(
    item: CompileMemory, frames: dict[tuple[int, int, str], str], options: RenderOptions
) -> tuple[str, ...]:
    function = frames.get((item.process, item.epoch, item.compile_id), "")
    name = f"{item.compile_id} {function}{'' if item.forward else ' backward'}"
    peak = "not above earlier" if item.peak_bytes is None else _mib(item.peak_bytes)
    return (options.text(name, 70), _mib(item.grown_bytes), peak)


def _us(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.0f} us"


def _mib(value: int) -> str:
    return f"{value / (1 << 20):,.0f} MiB"
