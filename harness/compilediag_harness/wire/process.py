"""An attached process from its start to its end, and what could not be seen of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """The process attached; the first record of every journal."""

    t: float
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


@dataclass(frozen=True, slots=True)
class TorchSeen:
    """torch was imported and the collectors were installed."""

    t: float
    torch: str
    torch_git: str | None
    hooks: dict[str, bool]
    """Hook name to available, for every private name of `torch_names`."""
    lost: dict[str, str]
    """For each missing hook, what cannot be observed without it."""


@dataclass(frozen=True, slots=True)
class EnvironmentRead:
    """Machine, versions and the flags that change numbers or speed; see `environment.py`."""

    t: float
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The process is about to end in an orderly way; absent after SIGKILL or `os._exit`."""

    t: float
    counters: dict[str, int]
    """torch's own totals, to reconcile with: metrics_rows, frames_total, frames_ok,
    unique_graphs, recompile_calls, break_records."""
    collector_s: float
    records_dropped: int
    host_peak_bytes: int | None
    failure: str | None = None
    """Text of the exception that ends the process, if one was seen."""


@dataclass(frozen=True, slots=True)
class EvidenceLost:
    """A source of evidence stopped telling: a silenced logger, a removed handler, a lost hook."""

    t: float
    step: int
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class FaultOccurred:
    """A fault of ours, caught before it could reach the user."""

    t: float
    where: str
    error: str
