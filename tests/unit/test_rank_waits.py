"""CD641: ranks that wait for others' compiles, by step and of a whole run."""

from dataclasses import replace

import pytest
from timelines import ROOT, attempt, process

from compilediag.diagnosis.findings import Finding
from compilediag.rules.costs import TIMEOUT_S, WAIT_S, find_waits_for_compiles
from compilediag.timeline.frames import collect_frames
from compilediag.timeline.timeline import Compile, Process, Step, Timeline
from compilediag_harness.wire import ProcessStarted


def rank(index: int, number: int) -> Process:
    started = ProcessStarted(0.0, 1, 100 + index, 1, number, 4, (), "", ROOT, "", "3.11")
    return replace(process(index), started=started)


def run(
    seconds: dict[int, dict[int, float]], *, waits: bool = True, steps: bool = True, **more: object
) -> Timeline:
    """Compile seconds by rank and step. Where ranks meet, a step is as long for all of them."""
    compiles: list[Compile] = []
    made: list[Step] = []
    for at, by_step in seconds.items():
        compiles += [
            attempt(f"{step}/0", step=step, seconds=took, process=at)
            for step, took in by_step.items()
            if took
        ]
    for number in range(6):
        longest = max(by_step.get(number, 0.0) for by_step in seconds.values())
        for at, by_step in seconds.items():
            own = by_step.get(number, 0.0)
            wall = 0.01 + (longest if waits else own)
            made.append(Step(at, number, float(number), wall, None, None, None, own))
    return Timeline(
        processes=tuple(rank(index, index) for index in seconds),
        compiles=tuple(compiles),
        frames=tuple(collect_frames(compiles)),
        steps=tuple(made) if steps else (),
        user_roots=(ROOT,),
        **more,  # pyright: ignore[reportArgumentType]
    )


def only(timeline: Timeline) -> Finding:
    (found,) = find_waits_for_compiles(timeline)
    return found


@pytest.mark.parametrize(
    "timeline",
    [
        run({0: {0: 400.0}, 1: {0: 400.0 + WAIT_S * 0.9}}),  # alike, and a little apart
        run({0: {3: 50.0}, 1: {}}, waits=False),  # where ranks do not meet
        run({0: {0: 60.0}}),  # one rank alone
        replace(run({0: {0: 60.0}}), processes=(process(),)),  # without ranks
    ],
)
def test_nobody_waits(timeline: Timeline) -> None:
    assert list(find_waits_for_compiles(timeline)) == []


@pytest.mark.parametrize(("seconds", "severity"), [(TIMEOUT_S, "error"), (400.0, "warning")])
def test_a_wait_as_long_as_a_timeout_is_an_error(seconds: float, severity: str) -> None:
    """NCCL ends the run."""
    found = only(run({0: {0: seconds + 30.0}, 1: {0: 30.0}}))
    assert found.severity == severity
    assert ("init_process_group(timeout=...)" in found.fix.summary) == (severity == "error")


def test_a_recompile_of_one_rank_is_to_be_removed() -> None:
    """Of a size that only it saw."""
    again = attempt("0/1", kind="recompile", step=3, seconds=30.0)
    timeline = run({0: {3: 30.0}, 1: {}})
    found = only(replace(timeline, compiles=(again,)))
    assert "maybe_mark_dynamic" in found.fix.summary
    assert "hangs" in (found.fix.caveat or "")


def test_without_steps_the_whole_run_is_compared() -> None:
    """A trace has none. Whether ranks meet is not known then, and not claimed."""
    found = only(run({0: {0: 3.0, 1: 3.0}, 1: {0: 40.0}}, steps=False))
    assert found.title == (
        "rank 1 compiles 34.0 s longer: the others wait where they meet in a collective"
    )
    assert found.steps == ()
