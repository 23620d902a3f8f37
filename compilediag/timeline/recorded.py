"""Records of the program and its trainer: tracked runs, producer loops, printed steps, cadences.

A cadence is periodic work that the program declared with `cadence()`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from compilediag.timeline.process import extend_record
from compilediag_harness import wire


@dataclass(frozen=True, slots=True)
class LoggedEnding:
    """The reason why the run did not end well, by its log."""

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


def select_newest_runs(_: int, records: Iterable[wire.RunTracked]) -> list[wire.RunTracked]:
    """Select each run of one process as it was recorded last, in the order in which they began."""
    last = {record.number: record for record in records}
    return [last[number] for number in sorted(last)]


def are_losses_finite(runs: Iterable[wire.RunTracked]) -> bool | None:
    """True if every recorded loss (a metric whose last word is "loss") is finite."""
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


def collect_loops(process: int, batches: Iterable[wire.PipelineWorked]) -> list[PipelineLoop]:
    """Collect the loops of one process, each once."""
    by_name: dict[str, list[wire.PipelineWorked]] = {}
    for batch in batches:
        by_name.setdefault(batch.name, []).append(batch)
    return [
        PipelineLoop(
            process=process,
            name=name,
            slots=parts[-1].slots,
            stages=tuple(run for part in parts for run in _list_stage_runs(part)),
            pool=tuple(
                pair for part in parts for pair in zip(part.pool_at, part.pool_sizes, strict=False)
            ),
        )
        for name, parts in by_name.items()
    ]


def _list_stage_runs(batch: wire.PipelineWorked) -> Iterable[StageRun]:
    columns = (batch.stages, batch.starts, batch.walls, batch.samples)
    for row in zip(*columns, batch.threads, batch.infer_slots, strict=False):
        yield StageRun(*row)


CadenceEvent = wire.CadenceDeclared | wire.CadenceAsked | wire.CadenceFired


@dataclass(frozen=True, slots=True)
class CadenceGroup(wire.CadenceDeclared):
    """Periodic work that the program declared with `cadence()`, and when it fired."""

    fires: tuple[int, ...]
    """The steps in which it fired, each once, in order: of one firing in two steps the first."""
    shift: int | None
    """The program's number of a step minus ours; None when the program never checked the group."""
    ends: tuple[int, ...] = ()
    """Parallel to `fires`: the last step of each firing. Where a step ends with the optimizer, work
    before and after it in one round of the program's loop lies in two of our steps. Empty: `fires`.
    """

    @property
    def steps(self) -> tuple[int, ...]:
        """Every step in which a firing went on."""
        return tuple(s for first in self.fires for s in (first, *self.get_rest(first)))

    def get_rest(self, step: int) -> range:
        """Get the steps after `step` that the firing which began there went on in."""
        last = dict(zip(self.fires, self.ends, strict=False)).get(step, step)
        return range(step + 1, last + 1)


def collect_cadences(_: int, events: Iterable[CadenceEvent]) -> tuple[CadenceGroup, ...]:
    """Collect the groups of one process in declaration order; the newest of a name holds."""
    declared: dict[str, wire.CadenceDeclared] = {}
    shifts: dict[str, int] = {}
    fires: dict[str, list[_Firing]] = {}
    for event in events:
        match event:
            case wire.CadenceDeclared():
                declared[event.name] = event
            case wire.CadenceAsked():
                shifts.setdefault(event.name, event.number - event.step)
            case wire.CadenceFired():
                numbers = event.numbers or event.steps
                for index, step, number in zip(event.name, event.steps, numbers, strict=False):
                    if index < len(event.names):
                        _add_firing(fires.setdefault(event.names[index], []), number, step)
    spans: dict[str, dict[int, int]] = {}
    for name, firings in fires.items():
        # First steps, each once and in order, to the last ones; the next firing ends one.
        ordered = sorted(firings, key=lambda firing: (firing.first, firing.last))
        own = spans[name] = {firing.first: firing.last for firing in ordered}
        for start, following in pairwise(list(own)):
            own[start] = min(own[start], following - 1)
    groups: list[CadenceGroup] = []
    for name, event in declared.items():
        own, shift = spans.get(name, {}), shifts.get(name)
        fired = {"fires": tuple(own), "shift": shift, "ends": tuple(own.values())}
        groups.append(extend_record(event, CadenceGroup, **fired))
    return tuple(groups)


@dataclass(slots=True)
class _Firing:
    number: int
    first: int
    last: int


def _add_firing(firings: list[_Firing], number: int, step: int) -> None:
    """Add a firing. A number that a later round has too is another: the program counts anew."""
    if firings and firings[-1].number == number and 0 <= step - firings[-1].last <= 1:
        firings[-1].last = step
    else:
        firings.append(_Firing(number, step, step))
