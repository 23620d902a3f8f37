"""What the program and its trainer recorded: tracked runs, loops of producers, printed steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from compilediag_harness.wire import PipelineWorked, RunTracked


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


_LOSS = re.compile(r"(?:.*[/.\-: _])?loss", re.IGNORECASE | re.DOTALL)


def newest_of(_: int, records: Iterable[RunTracked]) -> list[RunTracked]:
    """Each run of one process as it was recorded last, in the order in which they began."""
    last = {record.number: record for record in records}
    return [last[number] for number in sorted(last)]


def losses_finite(runs: Iterable[RunTracked]) -> bool | None:
    """Whether every loss that was recorded is finite; None where none was. A loss is a metric with
    "loss" for the last word of its name."""
    losses = [metric for run in runs for metric in run.metrics if _LOSS.fullmatch(metric.name)]
    if any(metric.not_finite for metric in losses):
        return False
    return True if any(metric.count for metric in losses) else None


@dataclass(frozen=True, slots=True)
class StageRun:
    """One training step, one call of inference, or one wait for samples."""

    stage: str
    """"train", "infer", "wait"."""
    start: float
    wall_s: float
    samples: int
    thread: int
    slot: int
    """-1 where the program named none."""

    @property
    def end(self) -> float:
        return self.start + self.wall_s


@dataclass(frozen=True, slots=True)
class PipelineLoop:
    """One loop of one process, in the order its stage runs ended."""

    process: int
    name: str
    slots: int | None
    """As declared."""
    stages: tuple[StageRun, ...]
    pool: tuple[tuple[float, int], ...]
    """When, and how many samples the pool held."""


def loops_of(process: int, batches: Iterable[PipelineWorked]) -> list[PipelineLoop]:
    """The loops of one process, each once."""
    by_name: dict[str, list[PipelineWorked]] = {}
    for batch in batches:
        by_name.setdefault(batch.name, []).append(batch)
    return [
        PipelineLoop(
            process=process,
            name=name,
            slots=parts[-1].slots,
            stages=tuple(item for part in parts for item in _stage_runs(part)),
            pool=tuple(
                pair for part in parts for pair in zip(part.pool_at, part.pool_sizes, strict=False)
            ),
        )
        for name, parts in by_name.items()
    ]


def _stage_runs(batch: PipelineWorked) -> Iterable[StageRun]:
    columns = (batch.stages, batch.starts, batch.walls, batch.samples)
    for row in zip(*columns, batch.threads, batch.infer_slots, strict=False):
        yield StageRun(*row)
