"""Metadata of a run from outside its process, passed to `build_receipt` beside the events.

Where there is no repository, the code that ran is named by variables of ours, else of the CI
service. Pure: the caller passes the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from compilediag.receipt.schema.compiles import ExcerptRecord
from compilediag.receipt.schema.identity import Provenance
from compilediag.receipt.schema.receipt import Artifact, Status
from compilediag.receipt.schema.running import GoodputSection
from compilediag.receipt.schema.tracked import CostSection

if TYPE_CHECKING:
    # What computes them is not needed where a command only asks for the commit.
    from compilediag.timeline.timeline import Timeline


class CostEstimate(Protocol):
    """An estimator of the cost of a run, such as a price table."""

    def compute_cost(
        self, timeline: Timeline, wall_s: float | None, time: GoodputSection | None
    ) -> CostSection:
        """Estimate the cost of a run that took `wall_s`, which `time` takes apart."""
        ...


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """Counts of what the journals of all processes held."""

    records: int
    torn_tail: bool = False
    #: Reason to count: "bad_json", "bad_payload_hash", "too_long", "unknown_kind", or any other.
    records_lost: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """One run, by its parent process; all but two fields default to "not measured". Texts may hold
    secrets: `build_receipt` redacts every string before it becomes part of a receipt."""

    receipt_id: str  #: A ULID; see `compilediag.runs.pipeline`.
    created_at_utc: str  #: ISO 8601 with Z.
    status: Status = "complete"
    exit_code: int | None = None  #: The target's, 128 + signal when killed; None: none (`watch()`).
    wall_s: float | None = None  #: From the start of the target to its end on a monotonic clock.
    argv: tuple[str, ...] = ()
    #: Variables from the allow list only.
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    #: Values known to be secret (`redaction.known_values`): replaced wherever they appear.
    secret_values: tuple[str, ...] = field(default=(), repr=False)
    provenance: Provenance = field(default_factory=Provenance)
    configuration_name: str | None = None  #: None: the name of the script.
    run_id: str | None = None
    ranks_expected: int | None = None  #: None: the world size that the processes report.
    journal: JournalFacts | None = None  #: None: the events never passed through a journal.
    failure_reason: str | None = None
    #: The end of the target's output; more than 8 KiB is cut from the front, after redaction.
    log_tail: str | None = None
    warmup: int | None = None  #: Warm-up steps by the user's choice; None: by the compiles.
    bytes_written: int | None = None
    artifacts: tuple[Artifact, ...] = ()
    prices: CostEstimate | None = None  #: None: no cost is estimated.
    #: "tlparse" and "depyf" to their versions, where they are installed.
    tool_versions: Mapping[str, str] = field(default_factory=dict[str, str])
    extensions: Mapping[str, object] = field(default_factory=dict[str, object])
    #: Source lines by the id of their finding.
    excerpts: Mapping[str, tuple[ExcerptRecord, ...]] = field(
        default_factory=dict[str, "tuple[ExcerptRecord, ...]"]
    )


OURS = {
    "commit": "COMPILEDIAG_GIT_COMMIT",
    "branch": "COMPILEDIAG_GIT_BRANCH",
    "dirty": "COMPILEDIAG_GIT_DIRTY",
    "message": "COMPILEDIAG_GIT_MESSAGE",
}

SERVICES: tuple[Mapping[str, str], ...] = (
    {"commit": "GITHUB_SHA", "branch": "GITHUB_HEAD_REF", "other_branch": "GITHUB_REF_NAME"},
    {"commit": "CI_COMMIT_SHA", "branch": "CI_COMMIT_REF_NAME", "message": "CI_COMMIT_TITLE"},
    {"commit": "BUILDKITE_COMMIT", "branch": "BUILDKITE_BRANCH", "message": "BUILDKITE_MESSAGE"},
    {
        "commit": "BUILD_SOURCEVERSION",
        "branch": "BUILD_SOURCEBRANCHNAME",
        "message": "BUILD_SOURCEVERSIONMESSAGE",
    },
    {"commit": "CIRCLE_SHA1", "branch": "CIRCLE_BRANCH"},
    {"commit": "BITBUCKET_COMMIT", "branch": "BITBUCKET_BRANCH"},
    {"commit": "GIT_COMMIT", "branch": "GIT_BRANCH"},
)
"""GitHub, GitLab, Buildkite, Azure, CircleCI, Bitbucket, Jenkins: the first that names a commit."""

MAX_LENGTH = 200

_YES = frozenset({"1", "true", "yes"})
_NO = frozenset({"0", "false", "no"})


def parse_provenance(variables: Mapping[str, str]) -> Provenance:
    """Parse the code that ran from the environment: a CI service's variables only where ours name
    nothing, as a mix of two sources fits no commit."""
    ours = {key: variables.get(name) for key, name in OURS.items()}
    services = ({k: variables.get(name) for k, name in names.items()} for names in SERVICES)
    service = next((values for values in services if values["commit"]), dict[str, str | None]())
    branch = service.get("branch") or service.get("other_branch")
    return _make_provenance(ours) or _make_provenance({**service, "branch": branch}) or Provenance()


def _make_provenance(values: Mapping[str, str | None]) -> Provenance | None:
    """Make the provenance of these values; None where there is no usable one."""
    provenance = Provenance(
        git_commit=_parse_line(values.get("commit")),
        git_branch=_parse_line(values.get("branch")),
        git_dirty=_parse_flag(values.get("dirty")),
        git_message_short=_parse_line(values.get("message")),
        source="environment",
    )
    return None if provenance == Provenance(source="environment") else provenance


def _parse_line(value: str | None) -> str | None:
    """Parse the first line, as git's own subject of a commit; None without text."""
    text = (value or "").strip()
    return text.splitlines()[0][:MAX_LENGTH] if text else None


def _parse_flag(value: str | None) -> bool | None:
    text = (value or "").strip().lower()
    return True if text in _YES else False if text in _NO else None
