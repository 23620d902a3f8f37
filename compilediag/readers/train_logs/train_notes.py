"""What must be known to read the figures of a trainer's output, as sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from compilediag.timeline.train_log import TrainLog

BETWEEN = (
    "step times are the time between two lines, by their timestamps: evaluations and checkpoints "
    "between them are in it"
)
DRAWN = (
    "step times are means over stretches of a progress bar: evaluations while it is drawn are in "
    "them"
)

NAMED = 4
"""Most other ranks and trainers that are named."""


def notes_of(log: TrainLog, counts: Mapping[str, int], others: Sequence[str]) -> tuple[str, ...]:
    """Where the seconds are from, and what of the output was left out."""
    return (*_clock(log), *_left_out(counts), *_others(others))


def _clock(log: TrainLog) -> list[str]:
    if log.clock == "timestamps":
        return [BETWEEN]
    if log.clock == "bar":
        return [DRAWN]
    means = [covered for covered in log.covered if covered > 1]
    if log.clock == "trainer" and means and not all(map(math.isnan, log.seconds)):
        return [f"step times are means over {means[0]:g} steps each, as the trainer printed them"]
    if log.clock is None:
        return ["the log tells no time of a step"]
    return []


def _left_out(counts: Mapping[str, int]) -> list[str]:
    told = {
        "unread": "like the line of a step, but not to be read",
        "cut": "too long, and cut",
        "repeated": "a step that was told before, as by ranks whose lines bear no name",
        "backwards": "back in time or in steps, so that no step time was made of it",
        "over_limit": "more than are kept",
        "grad_norms_not_finite": "the norm of the gradients was not finite",
    }
    return [
        f"{counts[name]:,} line{'s' if counts[name] > 1 else ''}: {text}"
        for name, text in told.items()
        if counts.get(name)
    ]


def _others(others: Sequence[str]) -> list[str]:
    if not others:
        return []
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    return [f"other step lines are not in the figures: {', '.join(others[:NAMED])}{more}"]
