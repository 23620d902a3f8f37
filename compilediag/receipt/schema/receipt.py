"""Receipt 1.0: the durable record of one run.

The keys are fixed; `fields.toml` holds their meaning; docs/reference/receipt.md is made from it.
Units are in the names. None is null in JSON and means "not measured", never zero.

History
    1.0  the first version
"""

from typing import Any, Literal

from msgspec import field

from compilediag.receipt.schema.caches import CacheSection, PrecompiledRecord
from compilediag.receipt.schema.cadence import CadenceSection
from compilediag.receipt.schema.comparisons import AgainstEagerSection, ColdAndWarmSection
from compilediag.receipt.schema.compiles import CompileSection, FindingRecord, WitnessSection
from compilediag.receipt.schema.identity import Completeness, Environment, Header
from compilediag.receipt.schema.invocations import Invocation, ShapesSection, Throughput
from compilediag.receipt.schema.ranks import RanksSection
from compilediag.receipt.schema.record import Record
from compilediag.receipt.schema.running import (
    CudagraphSection,
    GoodputSection,
    MemorySection,
    Overhead,
    StepsSection,
    SyncsSection,
    Timing,
)
from compilediag.receipt.schema.tracked import (
    AblationRecord,
    CostSection,
    PipelineSection,
    Profile,
    TrackedRecord,
)

SCHEMA = "compilediag.receipt"
SCHEMA_VERSION = "1.0"
MIN_READER_VERSION = "1.0"

Status = Literal["complete", "failed", "killed", "interrupted", "partial"]
VerdictName = Literal["clean", "findings", "blind"]


class Checks(Record, frozen=True, kw_only=True):
    """Answers that are yes or no; None where nothing was observed. No speed threshold, ever."""

    exit_code_zero: bool | None = None
    steps_present: bool | None = None
    losses_finite: bool | None = None
    no_oom: bool | None = None
    evidence_complete: bool | None = None
    all_ranks_reported: bool | None = None
    values_finite: bool | None = None


class Failure(Record, frozen=True, kw_only=True):
    """Why the run did not end well; both texts are bounded and redacted."""

    reason: str | None
    log_tail: str | None


class Artifact(Record, frozen=True, kw_only=True):
    """A file beside the receipt, linked and never inlined."""

    role: str
    uri: str
    media_type: str
    bytes: int | None
    sha256: str | None


class Receipt(Record, frozen=True, kw_only=True):
    """One run."""

    schema: str
    schema_version: str
    min_reader_version: str = MIN_READER_VERSION
    receipt_id: str
    status: Status
    verdict: VerdictName | None = None
    completeness: Completeness
    header: Header
    environment: Environment
    compile: CompileSection
    findings: tuple[FindingRecord, ...] = ()
    steps: StepsSection | None = None
    timings: tuple[Timing, ...] = ()
    syncs: SyncsSection | None = None
    cadence: CadenceSection | None = None
    caches: CacheSection | None = None
    against_eager: AgainstEagerSection | None = None
    precompiled: tuple[PrecompiledRecord, ...] = ()
    cold_and_warm: ColdAndWarmSection | None = None
    goodput: GoodputSection | None = None
    memory: MemorySection | None = None
    cudagraph: CudagraphSection | None = None
    throughput: Throughput | None = None
    invocations: tuple[Invocation, ...] = ()
    shapes: ShapesSection | None = None
    pipeline: PipelineSection | None = None
    profiles: tuple[Profile, ...] = ()
    ranks: RanksSection | None = None
    tracked: tuple[TrackedRecord, ...] = ()
    ablations: tuple[AblationRecord, ...] = ()
    cost: CostSection | None = None
    witness: WitnessSection | None = None
    checks: Checks
    failure: Failure | None = None
    overhead: Overhead | None = None
    artifacts: tuple[Artifact, ...] = ()
    extensions: dict[str, Any] = field(default_factory=dict[str, Any])
