"""Events of an attached process: start, environment, end, faults, and lost evidence."""

from __future__ import annotations

from dataclasses import field
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
    records_left_out: dict[str, int] = field(default_factory=dict[str, int])
    """By kind of event, records that are not written because the journal is over its limit."""
    sources: tuple[str, ...] | None = None
    """Files of every module it has imported, those of torch, the standard library and installed
    packages left out; None: not recorded, or too many."""


@event
class JournalLimited(Event):
    """The journal is over its limit: from now on it has what counts are made of, and no more."""

    limit_bytes: int


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

    @property
    def in_recording(self) -> bool:
        """True if only what is recorded for `certify` lacks something: what is counted is whole."""
        return self.where.startswith(("recorder:", "recording:"))

    @property
    def raised(self) -> str:
        """The last line of its traceback."""
        return self.error.rstrip().rpartition("\n")[2]
