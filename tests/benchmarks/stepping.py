"""What our own code costs in a step: a span, and all that tells where a step ends and its phases.

Called alone, without a program around it: what remains of the noise is that of a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bench import Bench, Benchmark, Row

SPAN_GOAL_US, STEP_GOAL_US = 1.0, 10.0
SPANS, STEPS = 20_000, 5_000
FEW = 400
"""Spans that end before they are placed."""


def _listening(bench: Bench, name: str) -> tuple[Any, Any]:
    """A session that writes to a journal, with the hooks of steps and spans in place; and torch."""
    import torch

    from compilediag_harness.base.journal import Journal
    from compilediag_harness.base.session import Session
    from compilediag_harness.steps import steps
    from compilediag_harness.wire import Event, ProcessStarted, encode

    folder = bench.folder / name
    folder.mkdir()
    opening = encode(ProcessStarted(0.0, 1, 0, 0, None, None, (), "", "", "", ""))
    journal = Journal(str(folder), lambda: opening)

    def write(event: Event) -> None:
        journal.write(event)

    session = Session(write)
    steps.install(session, torch)
    return session, torch


def _row(what: str, used_us: float, goal_us: float) -> Row:
    verdict = "holds" if used_us <= goal_us else "fails"
    return Row(what, "", f"{used_us:.1f} µs CPU", f"≤ {goal_us:.0f} µs", verdict)


def spans(bench: Bench) -> Iterator[Row]:
    """A span with a handle that is used again: what its line pays, and all of it, with the step
    and phase it belongs to, its encoding and writing."""
    from compilediag_harness.steps import steps
    from compilediag_harness.user_api.spans import catch_up, span

    session, _ = _listening(bench, "spans")
    handle = span("metrics")

    def handles() -> float:
        used = 0.0
        for _ in range(SPANS // FEW):
            began = time.process_time()
            for _ in range(FEW):
                with handle:
                    pass
            used += time.process_time() - began
            catch_up()
        return used / SPANS * 1e6

    def block() -> float:
        began = time.process_time()
        for _ in range(SPANS):
            with handle:
                pass
        return (time.process_time() - began) / SPANS * 1e6

    try:
        yield _row("span, its handle", bench.median(handles), SPAN_GOAL_US)
        whole = f"{bench.median(block):.1f} µs CPU"
        yield Row("span, placed, encoded and written", "", whole, "", "")
    finally:
        steps.uninstall(session)


def step_clock(bench: Bench) -> Iterator[Row]:
    """Every hook of a usual step: a batch, a compiled call, a backward, an optimizer step."""
    from compilediag_harness.steps import step_hooks, steps
    from compilediag_harness.user_api.spans import BACKWARD, DATA_WAIT

    session, torch = _listening(bench, "step_clock")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    before = session.step

    def block() -> float:
        began = time.process_time()
        for _ in range(STEPS):
            step_hooks.phase_ends(DATA_WAIT, step_hooks.phase_begins(DATA_WAIT))
            step_hooks.call_begins(1)
            step_hooks.call_ends(1)
            step_hooks.phase_ends(BACKWARD, step_hooks.backward_begins())
            step_hooks.optimizer_ends(step_hooks.optimizer_begins(optimizer), raised=False)
        return (time.process_time() - began) / STEPS * 1e6

    try:
        used = bench.median(block)
    finally:
        steps.uninstall(session)
    if session.step - before < STEPS * bench.rounds:
        raise RuntimeError(f"{session.step - before} steps ended: not what was to be measured")
    yield _row("step clock, all hooks of a step", used, STEP_GOAL_US)


BENCHMARKS: dict[str, Benchmark] = {"spans": spans, "step_clock": step_clock}
