"""From a Timeline to a receipt, written once: diagnose, build.

Live runs, `watch()`, blocks of a pytest test, `analyze` and the workers that read ranks all fold
their events and call it, so that the same events give the same receipt wherever they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from compilediag.receipt.assemble import build
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.diagnose import Diagnosis, diagnose
from compilediag.timeline.timeline import Timeline


class Reported(NamedTuple):
    """What a run did, why, and the record of both."""

    timeline: Timeline
    diagnosis: Diagnosis
    receipt: Receipt


Stage = Callable[[str], None]
"""Takes what is done next, for whoever waits."""


def unwatched(_: str) -> None:
    """The `Stage` of work that nobody waits for."""


def receipt_of(timeline: Timeline, run: RunMetadata, stage: Stage = unwatched) -> Reported:
    """All stages. `run` is what the events do not say."""
    stage(f"explaining {timeline.counts.recompiles} recompiles")
    diagnosis = diagnose(timeline)
    stage("writing the receipt")
    return Reported(timeline, diagnosis, build(timeline, diagnosis, run))
