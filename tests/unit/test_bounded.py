"""Twice as much of anything is twice the work and twice the receipt, never four times.

Work is counted in calls of functions, which no load of the machine changes.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from built_receipt import BREAK, CWD, FRAME, compiled, ended, flag_guard, started, torch_seen

from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.file import encode_receipt
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import fold
from compilediag.views.verdict import render
from compilediag_harness.wire import (
    EntryDiff,
    Event,
    FalseGuard,
    FrameSkipped,
    GraphBroke,
    Location,
    Recompiled,
    StepsEnded,
)

RUN = RunMetadata("01J", "2026-11-20T14:45:00Z", status="complete", exit_code=0, wall_s=9.0)


def value_guard(n: int) -> FalseGuard:
    """An argument that held the n-th of many values."""
    return FalseGuard("L['name']", "EQUALS_MATCH", f"L['name'] == 'v{n}'", actual=f"'v{n + 1}'")


def again(compile_id: str, at: int, where: Location, entries: Sequence[EntryDiff]) -> list[Event]:
    reasons = tuple(f"{item.compile_id}: {item.guards[0].text}" for item in entries)
    asked = Recompiled(
        at, at, compile_id, 0, where, reasons, tuple(entries), 0.0, entries_left_out=max(0, at - 8)
    )
    return [asked, compiled(compile_id, at, at, 0.1, frame=where, recompile_reason=reasons[0])]


def one_frame(n: int) -> list[Event]:
    """A frame with a raised limit, whose records hold the nearest eight entries."""
    found: list[Event] = [compiled("0/0", 0.0, 0, 0.1, limit=100_000)]
    for at in range(1, n + 1):
        nearest = range(max(0, at - 8), at)
        entries = [EntryDiff(f"0/{entry}", (value_guard(entry),)) for entry in reversed(nearest)]
        found += again(f"0/{at}", at, FRAME, entries)
    return found


def many_frames(n: int) -> list[Event]:
    """Functions that recompile, break and are skipped, each once."""
    found: list[Event] = []
    for at in range(n):
        where = replace(FRAME, line=100 * at, function=f"f{at}")
        skipped = replace(FRAME, line=100 * at + 50, function=f"g{at}")
        found.append(compiled(f"{at}/0", at, at, 0.1, frame=where))
        found += again(f"{at}/1", at, where, [EntryDiff(f"{at}/0", (flag_guard(),))])
        text = BREAK.replace(":31", f":{100 * at + 31}").replace("line 31", f"line {100 * at + 31}")
        found.append(GraphBroke(at, at, f"{at}/0", 0, text))
        found.append(FrameSkipped(at, at, skipped, "torch dispatch mode"))
    return found


def many_breaks(n: int) -> list[Event]:
    """One function that breaks at many lines, each with a frame that resumes after it."""
    found: list[Event] = []
    for at in range(n):
        resumed = replace(FRAME, function=f"torch_dynamo_resume_in_forward_at_{at + 1}")
        text = BREAK.replace(":31", f":{at + 1}").replace("line 31", f"line {at + 1}")
        found.append(compiled(f"{at}/0", at, 0, 0.1, frame=resumed if at else FRAME))
        found.append(GraphBroke(at, 0, f"{at}/0", 0, text))
    return found


def many_causes(n: int) -> list[Event]:
    """One recompile with many false guards."""
    guards = [
        FalseGuard(f"L['self'].a{at}", "EQUALS_MATCH", f"L['self'].a{at} == 1", actual="2")
        for at in range(n)
    ]
    entry = EntryDiff("0/0", tuple(guards))
    return [compiled("0/0", 0.0, 0, 0.1), *again("0/1", 1, FRAME, [entry])]


def many_steps(n: int) -> list[Event]:
    """Nothing compiles after the first of many steps."""
    ends = tuple(float(at) for at in range(1, n + 1))
    return [compiled("0/0", 0.0, 0, 0.1), StepsEnded(n, 0, "optimizer", ends, (0.5,) * n)]


def work(events: Sequence[Event]) -> tuple[int, Receipt]:
    """Calls of functions from the events to everything on the screen, and the receipt."""
    calls = 0

    def count(frame: object, what: str, argument: object) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    sys.setprofile(count)
    try:
        timeline = fold([[started(), torch_seen(), *events, ended(counters={})]], user_roots=(CWD,))
        receipt = build_receipt(timeline, diagnose(timeline), RUN)
        render(receipt, complete=True)
    finally:
        sys.setprofile(None)
    return calls, receipt


@pytest.mark.parametrize("program", [one_frame, many_frames, many_breaks, many_causes, many_steps])
def test_twice_as_much_is_twice_the_work(program: Callable[[int], list[Event]]) -> None:
    """The second hundred costs as much as the first, in calls and in bytes of the receipt."""
    work(program(50))  # fills caches
    found = [work(program(n)) for n in (100, 200, 300)]
    (first, _), (second, _), (third, _) = found
    assert third - second <= 1.2 * (second - first) + 500
    sizes = [len(encode_receipt(receipt)) for _, receipt in found]
    assert sizes[2] - sizes[1] <= 1.2 * (sizes[1] - sizes[0]) + 500
