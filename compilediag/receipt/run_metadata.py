"""Metadata of a run from outside its process: passed to `build` beside the events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from compilediag.diagnosis.ranks.divergence import RankComparison
from compilediag.receipt.schema.identity import Provenance
from compilediag.receipt.schema.receipt import Artifact, Status
from compilediag.receipt.schema.running import GoodputSection
from compilediag.receipt.schema.tracked import CostSection
from compilediag.timeline.timeline import Timeline


class CostEstimate(Protocol):
    """What estimates the cost of a run, such as a price table."""

    def cost(
        self, timeline: Timeline, wall_s: float | None, time: GoodputSection | None
    ) -> CostSection:
        """Of a run that took `wall_s`, of which `time` says what for."""
        ...


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """What the journals of all processes held."""

    records: int
    torn_tail: bool = False
    records_lost: Mapping[str, int] = field(default_factory=dict[str, int])
    """Reason to count: "bad_json", "bad_payload_hash", "too_long", "unknown_kind", or any other."""


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """One run, by its parent process. Only the first two fields are required: everything else
    defaults to "not measured".

    Texts may hold secrets: `build` redacts every string before it becomes part of a receipt.
    """

    receipt_id: str
    """A ULID; see `compilediag.runs.metadata`."""
    created_at_utc: str
    """ISO 8601 with Z."""
    status: Status = "complete"
    exit_code: int | None = None
    """The target's own, 128 + signal when killed; None where there is none (`watch()`)."""
    wall_s: float | None = None
    """From the start of the target to its end on a monotonic clock."""
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables from the allow list only."""
    secret_values: tuple[str, ...] = field(default=(), repr=False)
    """Values known to be secret (`redaction.known_values`): replaced wherever they appear."""
    provenance: Provenance = field(default_factory=Provenance)
    lane_name: str | None = None
    """None: the name of the script."""
    preset: str | None = None
    run_id: str | None = None
    attempt: int = 1
    parent_run_id: str | None = None
    ranks_expected: int | None = None
    """None: the world size that the processes report."""
    ranks: RankComparison | None = None
    """Of all ranks, where the events are not those of all; None: compared by the events."""
    journal: JournalFacts | None = None
    """None: the events never passed through a journal."""
    failure_reason: str | None = None
    log_tail: str | None = None
    """The end of the target's output; more than 8 KiB is cut from the front, after redaction."""
    warmup: int | None = None
    """Steps that are warm-up by the user's choice; None: found from the compiles."""
    bytes_written: int | None = None
    artifacts: tuple[Artifact, ...] = ()
    prices: CostEstimate | None = None
    """None: no cost is estimated."""
    tool_versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """"tlparse" and "depyf" to their versions, where they are installed."""
    extensions: Mapping[str, object] = field(default_factory=dict[str, object])
