"""A run as its trainer printed it: steps, rates, how it ended; an extension reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LoggedEnding:
    """Why the run did not end well, by its log."""

    status: str
    """"failed", "killed" or "interrupted"."""
    reason: str
    exit_code: int | None = None
    """As the launcher printed it, 128 + signal when killed; None where it printed none."""


@dataclass(frozen=True, slots=True)
class TrainLog:
    """The step lines of one trainer in one rank, in their order, and what stands around them.

    All series have one place a line and hold NaN where a line has no such number.
    """

    trainer: str
    rank: str | None
    """The name in the lines, such as "rank0"; None where they have none."""
    numbers: Sequence[float] = ()
    """The number of the step, as the trainer counts."""
    seconds: Sequence[float] = ()
    """Wall seconds of a step."""
    covered: Sequence[float] = ()
    """Of how many steps those seconds are the mean."""
    clock: str | None = None
    """Where the seconds are from: "trainer", "timestamps" of the lines, a progress "bar"."""
    ended_steps: int | None = None
    """Steps that ended, by their numbers; None where lines have none."""
    rates: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """Other series by the name of their field: "tokens_per_s", "mfu"..."""
    last: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of fields that are no rates, the last value: "loss", "grad_norm". May be NaN."""
    peaks: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of peaks of memory the highest, in bytes."""
    whole: Mapping[str, float] = field(default_factory=dict[str, float])
    """What the trainer printed of the whole run at its end: "train_s", "steps_per_s"..."""
    losses: int = 0
    losses_not_finite: int = 0
    finished: bool = False
    """The trainer printed that it had ended."""
    ending: LoggedEnding | None = None
    tail: str | None = None
    """The end of the output; the receipt cuts it."""
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """How much was read, and how much of it could not be used: see docs/howto/trainlog.md."""
    notes: tuple[str, ...] = ()
    """What must be known to read the figures, one sentence each."""

    @property
    def step_lines(self) -> int:
        """Lines with a step."""
        return len(self.numbers)
