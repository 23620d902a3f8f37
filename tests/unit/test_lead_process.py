"""Which process leads, and which ranks there are."""

from compilediag.timeline.timeline import Process, Step, Timeline
from compilediag_harness.wire import ProcessStarted, TorchSeen


def process(
    index: int, rank: int | None, size: int | None = None, *, torch: bool = True
) -> Process:
    started = ProcessStarted(0.0, 1, index, 0, rank, size, (), "", "/", "", "3.11")
    return Process(
        index, started, TorchSeen(0.0, "2.13", None, {}, {}) if torch else None, {}, None
    )


def step(process: int) -> Step:
    return Step(process, 0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0)


def test_the_lowest_rank_that_made_steps() -> None:
    """A launcher that only imports torch, and rank 0 without steps, do not lead."""
    timeline = Timeline(
        processes=(process(0, None), process(1, 2), process(2, 1), process(3, 0)),
        steps=(step(1), step(2)),
    )
    assert timeline.lead == 2


def test_without_steps_and_compiles() -> None:
    """A process that imported torch goes before one that did not; the first before none."""
    assert Timeline(processes=(process(0, None, torch=False), process(1, None))).lead == 1
    assert Timeline(processes=(process(0, None, torch=False),)).lead == 0
    assert Timeline().lead == 0
