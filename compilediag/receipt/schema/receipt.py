"""Receipt 1.0: the durable record of one run.

The keys are fixed; what stands after "#:" is their meaning, of which docs/reference/receipt.md is
made; it keeps the id of each.
Units are in the names. None is null in JSON and means "not measured", never zero.
"""

from typing import Any, Literal

from compilediag.receipt.schema.caches import CacheSection, PrecompiledRecord
from compilediag.receipt.schema.cadence import CadenceSection
from compilediag.receipt.schema.comparisons import (
    AgainstEagerSection,
    ColdAndWarmSection,
    RanksSection,
)
from compilediag.receipt.schema.compiles import CompileSection, FindingRecord, WitnessSection
from compilediag.receipt.schema.identity import Completeness, Environment, Header
from compilediag.receipt.schema.invocations import Invocation, ShapesSection, Throughput
from compilediag.receipt.schema.record import EMPTY, Record
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

    exit_code_zero: bool | None = None  #: The target ended with code 0; null in process.
    steps_present: bool | None = None  #: At least one step was seen.
    losses_finite: bool | None = None  #: Every loss was finite; null when no loss was observed.
    no_oom: bool | None = None  #: Memory did not end the run; null: another or unknown reason did.
    #: Nothing was torn, lost, dropped or silent, no hook missing, every process ended in order.
    evidence_complete: bool | None = None
    all_ranks_reported: bool | None = None  #: Every expected rank is present.
    values_finite: bool | None = None  #: No NaN or infinity had to become null here.


class Failure(Record, frozen=True, kw_only=True):
    """Why the run did not end well; both texts are bounded and redacted."""

    reason: str | None  #: The exception or signal, redacted, at most 8 KiB.
    log_tail: str | None  #: The end of the output, redacted, at most 8 KiB.


class Artifact(Record, frozen=True, kw_only=True):
    """A file beside the receipt, linked and never inlined."""

    role: str  #: What the file is.
    uri: str  #: Where it is, relative to the receipt.
    media_type: str  #: Media type.
    bytes: int | None  #: Size.
    sha256: str | None  #: Digest.


class Receipt(Record, frozen=True, kw_only=True):
    """One run."""

    schema: str  #: Always "compilediag.receipt".
    #: MAJOR.MINOR: a minor version adds optional fields, a major one changes a meaning.
    schema_version: str
    min_reader_version: str = MIN_READER_VERSION  #: Oldest version a reader must know.
    receipt_id: str  #: ULID: 26 characters that sort by the time they were made.
    #: complete, failed (a code not 0), killed (signal), interrupted (Ctrl-C), partial (incomplete).
    status: Status
    #: clean (seen, and nothing found), findings, or blind (nothing was compiled, evidence was lost,
    #: or sources disagree).
    verdict: VerdictName | None = None
    completeness: Completeness  #: How much of the evidence arrived.
    header: Header  #: Who wrote the receipt, of which code, in which lane and run.
    environment: Environment  #: The machine and the versions.
    compile: CompileSection  #: What was compiled, and why again.
    findings: tuple[FindingRecord, ...] = ()  #: What to know, most important first.
    steps: StepsSection | None = None  #: Step times of one rank in seconds, with warm-up, or null.
    #: Spans, disabled functions and hooks on compiled modules by phase; one rank, longest first.
    timings: tuple[Timing, ...] = ()
    syncs: SyncsSection | None = None  #: Where the host waits for tensor data, in sampled steps.
    cadence: CadenceSection | None = None  #: Periodic groups and their cost; null without a probe.
    caches: CacheSection | None = None  #: What torch's compile caches answered; null: no lookup.
    #: Whether compiling pays: compiled and eager runs that took turns (`--against-eager`), or null.
    against_eager: AgainstEagerSection | None = None
    precompiled: tuple[PrecompiledRecord, ...] = ()  #: Functions loaded with others' compiled code.
    #: What a start with filled caches still compiles (`run --cold-and-warm`), or null.
    cold_and_warm: ColdAndWarmSection | None = None
    goodput: GoodputSection | None = None  #: Wall time of one rank: goodput plus all badput.
    memory: MemorySection | None = None  #: Peaks of memory.
    cudagraph: CudagraphSection | None = None  #: CUDA graphs.
    throughput: Throughput | None = None  #: What the target reported or we counted, or null.
    #: Compiled callables as eager code called them, in the lead process.
    invocations: tuple[Invocation, ...] = ()
    shapes: ShapesSection | None = None  #: Callables at fixed sizes (`FixedShape`), or null.
    pipeline: PipelineSection | None = None  #: Capacities of producer-consumer loops, or null.
    profiles: tuple[Profile, ...] = ()  #: Windows of torch.profiler, by a signal: slower steps.
    ranks: RanksSection | None = None  #: The ranks of a run compared; null for fewer than two.
    #: Runs tracked with `tracker()` in the order of their beginnings, at most 200; name and config
    #: are the evaluation lane: what must be equal for two of them to be comparable.
    tracked: tuple[TrackedRecord, ...] = ()
    ablations: tuple[AblationRecord, ...] = ()  #: Reports of ablations; their files are artifacts.
    cost: CostSection | None = None  #: What it cost by the given price table (`--prices`), or null.
    witness: WitnessSection | None = None  #: How lines were followed (`run --witness`), or null.
    checks: Checks  #: Yes or no; null where nothing was observed. No threshold on speed, ever.
    failure: Failure | None = None  #: Why the run did not end well; null when it did.
    overhead: Overhead | None = None  #: What measuring cost.
    artifacts: tuple[Artifact, ...] = ()  #: Files beside the receipt: linked, never inlined.
    extensions: dict[str, Any] = EMPTY  #: Anything else; every reader keeps it untouched.
