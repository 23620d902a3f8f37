"""The producer-consumer loops of a run, from the batches in which they were recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compilediag_harness.wire import PipelineWorked


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
