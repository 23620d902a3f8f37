"""What the shell around a run knows and its events do not tell: handed to `build`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compilediag.receipt.prices import PriceTable
from compilediag.receipt.provenance_variables import told_by
from compilediag.receipt.schema.receipt import Status

if TYPE_CHECKING:
    from compilediag.diagnosis.ranks.divergence import RankComparison


@dataclass(frozen=True, slots=True)
class ProvenanceFacts:
    """The code that ran; None where there is no git and nothing was given instead."""

    git_commit: str | None = None
    git_branch: str | None = None
    git_dirty: bool | None = None
    git_message_short: str | None = None
    source: str | None = None
    """"git", "environment" (overrides where there is no .git), or None."""
    source_sha256: Mapping[str, str] = field(default_factory=dict[str, str])
    """Path relative to the working directory to the digest of the file's bytes."""


def facts_told_by(variables: Mapping[str, str]) -> ProvenanceFacts:
    """The code that ran as the environment tells it, where no repository does."""
    told = told_by(variables)
    return ProvenanceFacts(
        git_commit=told.commit,
        git_branch=told.branch,
        git_dirty=told.dirty,
        git_message_short=told.message,
        source="environment" if told.anything else None,
    )


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """A file of the run, linked from the receipt."""

    role: str
    uri: str
    media_type: str
    bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """What reading the journals of all processes met."""

    records: int
    torn_tail: bool = False
    records_lost: Mapping[str, int] = field(default_factory=dict[str, int])
    """Reason to count: "bad_json", "bad_payload_hash", "too_long", "unknown_kind", or any other."""


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """One run as its parent saw it. Only the first three fields are needed: `watch()` gives them
    and the wall time; everything else defaults to "not measured".

    Texts may hold secrets: `build` redacts every string before it becomes part of a receipt.
    """

    receipt_id: str
    """A ULID; see `compilediag.receipt.ulid`."""
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
    """Values known to be secret (`redact.secret_values`): replaced wherever they appear."""
    provenance: ProvenanceFacts = ProvenanceFacts()
    lane_name: str | None = None
    """None: the name of the script."""
    preset: str | None = None
    run_id: str | None = None
    attempt: int = 1
    parent_run_id: str | None = None
    ranks_expected: int | None = None
    """None: the world size the processes tell."""
    ranks: RankComparison | None = None
    """Of all ranks, where the events are not those of all; None: compared as the events tell."""
    journal: JournalFacts | None = None
    """None: the events never passed through a journal."""
    failure_reason: str | None = None
    log_tail: str | None = None
    """The end of the target's output; more than 8 KiB is cut from the front, after redaction."""
    warmup: int | None = None
    """Steps the user called warm-up; None: found from the compiles."""
    bytes_written: int | None = None
    artifacts: tuple[ArtifactFacts, ...] = ()
    prices: PriceTable | None = None
    """None: no cost is estimated."""
    tool_versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """"tlparse" and "depyf" to their versions, where they are installed."""
    extensions: Mapping[str, object] = field(default_factory=dict[str, object])
