"""An attached process from its start to its end, and what could not be seen of it."""

from __future__ import annotations

from typing import Any

from compilediag_harness.wire.event import Event, StepEvent, event


@event
class ProcessStarted(Event):
    """The process attached; the first record of every journal."""

    wire_version: int
    pid: int
    parent_pid: int
    rank: int | None
    world_size: int | None
    argv: tuple[str, ...]
    executable: str
    cwd: str
    started_utc: str
    """ISO 8601, from the wall clock: for display only."""
    python: str


@event
class TorchSeen(Event):
    """torch was imported and the collectors were installed."""

    torch: str
    torch_git: str | None
    hooks: dict[str, bool]
    """Hook name to available, for every private name of `torch_names`."""
    lost: dict[str, str]
    """For each missing hook, what cannot be observed without it."""


@event
class EnvironmentRead(Event):
    """Machine, versions and the flags that change numbers or speed; see `environment.py`."""

    facts: dict[str, Any]


@event
class ProcessEnded(Event):
    """The process is about to end in an orderly way; absent after SIGKILL or `os._exit`."""

    counters: dict[str, int]
    """torch's own totals, to reconcile with: metrics_rows, frames_total, frames_ok,
    unique_graphs, recompile_calls, break_records."""
    collector_s: float
    records_dropped: int
    host_peak_bytes: int | None
    failure: str | None = None
    """Text of the exception that ends the process, if one was seen."""


ATTACH = "attach"
"""The source that is lost where no process could be observed at all."""

OLD_TORCH = "old_torch"
"""The source that is lost in a trace of a torch that is too old to be read."""


@event
class EvidenceLost(StepEvent):
    """A source of evidence was lost: a silenced logger, a removed handler, a missing hook."""

    source: str
    reason: str


@event
class FaultOccurred(Event):
    """A fault of ours, caught before it could reach the user."""

    where: str
    error: str
