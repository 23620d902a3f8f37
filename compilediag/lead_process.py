"""Which process of a run its step times and wall time are told from, and which ranks there are."""

from __future__ import annotations

from compilediag.timeline import Process, Timeline


def lead_process(timeline: Timeline) -> int:
    """Index of the lowest rank that made steps, else that compiled, else that imported torch.

    Ranks do the same work side by side: their seconds are not added up, one of them is told.
    """
    steppers = {step.process for step in timeline.steps}
    compilers = {attempt.process for attempt in timeline.compiles}
    importers = {process.index for process in timeline.processes if process.torch is not None}
    ranks = {process.index: rank_of(process) for process in timeline.processes}
    for candidates in (steppers, compilers, importers):
        if candidates:
            return min(candidates, key=lambda index: (_order(ranks.get(index)), index))
    return timeline.processes[0].index if timeline.processes else 0


def _order(rank: int | None) -> int:
    return 0 if rank is None else rank


def rank_of(process: Process) -> int | None:
    """The rank a launcher gave the process; None where there was no launcher."""
    return process.started.rank if process.started is not None else None


def ranks_present(timeline: Timeline) -> tuple[int, ...]:
    """The ranks whose journals arrived; without a launcher the one process is rank 0."""
    started = [process for process in timeline.processes if process.started is not None]
    ranks = {rank for process in started if (rank := rank_of(process)) is not None}
    ranks.update(timeline.counted_ranks)
    if not ranks and started:
        return (0,)
    return tuple(sorted(ranks))


def world_size(timeline: Timeline) -> int | None:
    """The largest world size a process told; None where there was no launcher."""
    sizes = [
        process.started.world_size
        for process in timeline.processes
        if process.started is not None and process.started.world_size is not None
    ]
    return max(sizes, default=None)
