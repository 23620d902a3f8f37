"""Which ranks a run has, and of how many."""

from __future__ import annotations

from compilediag.timeline.timeline import Timeline


def ranks_present(timeline: Timeline) -> tuple[int, ...]:
    """The ranks whose journals arrived; without a launcher the one process is rank 0."""
    started = [process for process in timeline.processes if process.started is not None]
    ranks = {process.rank for process in started if process.rank is not None}
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
