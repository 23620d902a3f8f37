"""Receipt 1.0: the durable record of one run.

The keys are fixed; what stands after "#:" is their meaning, of which docs/reference/receipt.md is
made; it keeps the id of each.
Units are in the names. None is null in JSON and means "not measured", never zero.
"""

from typing import Any, Literal

import msgspec

from compilediag.receipt.schema.caches import CacheSection
from compilediag.receipt.schema.cadence import CadenceSection
from compilediag.receipt.schema.comparisons import (
    AgainstEagerSection,
    ColdAndWarmSection,
    RanksSection,
)
from compilediag.receipt.schema.compiles import CompileSection, FindingRecord, WriteTracingSection
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
    #: The run did not end for want of memory; null when it was killed or failed for another or an
    #: unknown reason.
    no_oom: bool | None = None
    #: No record was torn, lost or dropped, no source fell silent, no hook was missing, every
    #: process ended in an orderly way.
    evidence_complete: bool | None = None
    all_ranks_reported: bool | None = None  #: Every expected rank is present.
    #: No NaN or infinity had to be turned into null to write this receipt.
    values_finite: bool | None = None


class Failure(Record, frozen=True, kw_only=True):
    """The reason why the run did not end well; both texts are bounded and redacted."""

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
    #: Version of this format as MAJOR.MINOR: a minor version adds optional fields, a major one
    #: changes a meaning.
    schema_version: str
    #: Oldest version of the format that a reader must know.
    min_reader_version: str = MIN_READER_VERSION
    receipt_id: str  #: ULID: 26 characters that sort by the time they were made.
    #: How the run ended: complete, failed (a code other than 0), killed (by a signal), interrupted
    #: (Ctrl-C), partial (part of it is missing).
    status: Status
    #: clean (seen, and nothing found), findings, or blind (nothing was compiled, evidence was lost,
    #: or sources disagree).
    verdict: VerdictName | None = None
    completeness: Completeness  #: How much of the evidence arrived.
    header: Header  #: Who wrote the receipt, of which code, configuration and run.
    environment: Environment  #: The machine and the versions.
    compile: CompileSection  #: What was compiled, and why again.
    findings: tuple[FindingRecord, ...] = ()  #: What to know, most important first.
    #: The one command that leads on, as the screen has it, in what a command prints with `--json`;
    #: null in the file, since it depends on where that is.
    next: str | None = None
    #: Step times of one rank, in seconds, warm-up included; null when no step was seen.
    steps: StepsSection | None = None
    #: Spans, functions behind torch.compiler.disable, and hooks on compiled modules, by phase of
    #: the step; one rank, the longest first.
    timings: tuple[Timing, ...] = ()
    #: Where the host waits for tensor data outside compiled code, in sampled steps; null when no
    #: step was sampled.
    syncs: SyncsSection | None = None
    #: Periodic groups and what each costs; null when no probe ran.
    cadence: CadenceSection | None = None
    #: Hits and misses of torch's compile caches; null where no lookup was recorded.
    caches: CacheSection | None = None
    #: Whether compiling pays: the program compiled and eager, in runs that took turns (`measure
    #: against-eager`); null where that was not run.
    against_eager: AgainstEagerSection | None = None
    #: What this start still compiles after another one with the same caches, which were empty
    #: before (`measure cold-and-warm`); null where that was not run.
    cold_and_warm: ColdAndWarmSection | None = None
    #: Wall time of one rank taken apart: goodput plus all badput is the wall time.
    goodput: GoodputSection | None = None
    memory: MemorySection | None = None  #: Peaks of memory.
    cudagraph: CudagraphSection | None = None  #: CUDA graphs.
    #: What the target reported or the harness counted; null when neither did.
    throughput: Throughput | None = None
    #: Compiled callables as eager code called them, in the lead process.
    invocations: tuple[Invocation, ...] = ()
    #: Callables that run at fixed sizes (`FixedShape`); null when there are none.
    shapes: ShapesSection | None = None
    #: Capacities of a producer-consumer loop and its bottleneck; null when there is none.
    pipeline: PipelineSection | None = None
    #: The ranks of a run compared; null where there are fewer than two.
    ranks: RanksSection | None = None
    #: Runs that the program tracked itself with `tracker()`, in the order in which they began; at
    #: most 200, see `completeness.reasons`. Name and config are the configuration: what must
    #: be equal for two of them to be comparable.
    tracked: tuple[TrackedRecord, ...] = ()
    #: Reports of ablations that were validated and written; the files are among the artifacts.
    ablations: tuple[AblationRecord, ...] = ()
    #: What the run cost by the price table that was given (`--prices`); null without one.
    cost: CostSection | None = None
    #: How the program's lines were followed to see who changes what is guarded (`run
    #: --trace-writes`); null where they were not to be.
    write_tracing: WriteTracingSection | None = msgspec.field(default=None, name="witness")
    checks: Checks  #: Yes or no; null where nothing was observed. No threshold on speed, ever.
    failure: Failure | None = None  #: Why the run did not end well; null when it did.
    overhead: Overhead | None = None  #: What measuring cost.
    artifacts: tuple[Artifact, ...] = ()  #: Files beside the receipt: linked, never inlined.
    extensions: dict[str, Any] = EMPTY  #: Anything else; every reader keeps it untouched.
