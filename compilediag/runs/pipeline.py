"""From events to a receipt, written once: fold, diagnose, build.

Live runs, `watch()`, blocks of a pytest test, `analyze` and the workers that read ranks all call
it, so that the same events give the same receipt wherever they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compilediag.receipt.assemble import build
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.diagnose import Diagnosis, diagnose
from compilediag.timeline.fold import fold
from compilediag.timeline.recorded import TrainLog
from compilediag.timeline.timeline import TextLog, Timeline
from compilediag_harness.wire import Event


@dataclass(frozen=True, slots=True)
class RunEvents:
    """Everything that was recorded of one run."""

    journals: Sequence[Iterable[Event]]
    """The events of each process, in the order of the processes."""
    user_roots: Sequence[str] = ()
    """Folders whose files are the user's own code."""
    text_log: TextLog | None = None
    """What the text log of the run says, counted independently of the events."""
    train_log: TrainLog | None = None
    """What a trainer printed of its own steps."""
    counted_ranks: tuple[int, ...] = ()
    """Ranks that count as present although none of `journals` is theirs."""
    counted_compile_s: tuple[tuple[int, float], ...] = ()
    """Their compile seconds, by rank."""


class Explained(NamedTuple):
    """What a run did, and why."""

    timeline: Timeline
    diagnosis: Diagnosis


class Reported(NamedTuple):
    """What a run did, why, and the record of both."""

    timeline: Timeline
    diagnosis: Diagnosis
    receipt: Receipt


Stage = Callable[[str], None]
"""Takes what is done next, for whoever waits."""


def unwatched(_: str) -> None:
    """The `Stage` of work that nobody waits for."""


def diagnosis_of(events: RunEvents, stage: Stage = unwatched) -> Explained:
    """The first two stages, for callers that need no receipt."""
    stage("putting the events in order")
    timeline = fold(
        events.journals,
        events.text_log,
        events.user_roots,
        events.train_log,
        events.counted_ranks,
        events.counted_compile_s,
    )
    stage(f"explaining {timeline.counts.recompiles} recompiles")
    return Explained(timeline, diagnose(timeline))


def receipt_of(
    events: RunEvents,
    run: RunMetadata | Callable[[Timeline], RunMetadata],
    stage: Stage = unwatched,
) -> Reported:
    """All stages. `run` is what the events do not say; it is a function where that is found by the
    Timeline (the source files that ran)."""
    timeline, diagnosis = diagnosis_of(events, stage)
    stage("writing the receipt")
    metadata = run(timeline) if callable(run) else run
    return Reported(timeline, diagnosis, build(timeline, diagnosis, metadata))
