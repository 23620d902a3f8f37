"""Identity of a receipt: completeness of its evidence, header and environment."""

from typing import Any

import msgspec

from compilediag.receipt.schema.record import EMPTY, Record


class Sources(Record, frozen=True, kw_only=True):
    """The sources of evidence that spoke, and whether their counts are the same."""

    events: bool | None = None  #: Events of the collectors in the process.
    metrics: bool | None = None  #: torch's own totals at the end of the process.
    text_log: bool | None = None  #: What torch wrote under TORCH_LOGS.
    #: The counts of the sources are the same; null when fewer than two can be compared.
    agree: bool | None = None


class Completeness(Record, frozen=True, kw_only=True):
    """The part of the evidence that arrived."""

    #: Records read from the journals of all processes; null when the events never passed through
    #: one.
    journal_records: int | None
    journal_torn_tail: bool | None  #: A journal ends in the middle of a record, as after a kill.
    records_lost: dict[str, int]  #: Records that could not be used, by reason.
    ranks_expected: int | None  #: Ranks requested from the launcher; 1 without a launcher.
    ranks_present: tuple[int, ...]  #: Ranks whose journal arrived.
    sources: Sources  #: Which independent sources of evidence spoke.
    differences: tuple[str, ...] = ()  #: One sentence for each count on which the sources differ.
    #: The counts that were compared, by source; as entries_left_out and text_lines_left_out what
    #: was counted instead of recorded; as train_log_* those of the lines of a trainer's output, the
    #: ones that could not be used included.
    numbers: dict[str, Any] = EMPTY
    reasons: tuple[str, ...] = ()  #: What could not be observed, and why.


class Producer(Record, frozen=True, kw_only=True):
    """The program that wrote the receipt."""

    name: str  #: Its name.
    version: str  #: Its version.


class Provenance(Record, frozen=True, kw_only=True):
    """The code that ran."""

    git_commit: str | None = None  #: Commit that was checked out.
    git_branch: str | None = None  #: Its branch.
    git_dirty: bool | None = None  #: The working tree had changes.
    git_message_short: str | None = None  #: First line of the commit's message.
    source: str | None = None  #: Where this comes from: git, or environment where there is no .git.
    #: SHA-256 of each source file of the run, by path: of the files of the repository that it
    #: imported or was given as arguments, and of tracked files with changes. Empty where the file
    #: did not exist, `changed` where it was written while the run went on.
    source_sha256: dict[str, str] = EMPTY
    #: Whether `source_sha256` has every file of the repository that the run imported; null where
    #: that was not recorded.
    imports_complete: bool | None = None
    #: Working directory of the run, to which paths are relative, below the root of the repository;
    #: null outside one.
    folder: str | None = None


class NumericsFlags(Record, frozen=True, kw_only=True):
    """Flags that change numbers or speed, as they were in force."""

    mode: str | None = None  #: mode of torch.compile.
    backend: str | None = None  #: backend of torch.compile.
    dynamic: bool | None = None  #: dynamic of torch.compile; null is torch's own default.
    fullgraph: bool | None = None  #: fullgraph of torch.compile.
    cudagraphs: bool | None = None  #: CUDA graphs are requested.
    matmul_precision: str | None = None  #: float32 matmul precision.
    allow_tf32_matmul: bool | None = None  #: TF32 is allowed in CUDA matrix products.
    allow_tf32_cudnn: bool | None = None  #: TF32 is allowed in cuDNN.
    cudnn_benchmark: bool | None = None  #: cuDNN picks kernels by timing.
    cudnn_deterministic: bool | None = None  #: cuDNN is deterministic.
    deterministic: bool | None = None  #: Deterministic algorithms are requested.
    default_dtype: str | None = None  #: Default dtype.
    autocast_cpu: str | None = None  #: Autocast dtype on the CPU at the end; null is off.
    autocast_cuda: str | None = None  #: Autocast dtype on CUDA at the end; null is off.


class Configuration(Record, frozen=True, kw_only=True):
    """The facts that must be equal for two receipts to be comparable."""

    name: str  #: Name of the work; by default the script.
    preset: str | None = None  #: Name of its configuration.
    precision: str | None = None  #: Precision of the computation, as far as it is a flag.
    numerics_flags: NumericsFlags = NumericsFlags()  #: Flags that change numbers or speed.
    #: true: the recompile limit was lifted (`run --past-limit`); null: torch's holds.
    past_limit: bool | None = None


class Redactions(Record, frozen=True, kw_only=True):
    """The number of secrets that were replaced, and by which rules."""

    count: int = 0  #: How many times.
    rules: tuple[str, ...] = ()  #: By which rules.


class Run(Record, frozen=True, kw_only=True):
    """One run of the target."""

    run_id: str | None = None  #: Shared by all ranks and attempts of one run.
    attempt: int = 1  #: 1 for the first attempt, more after restarts.
    parent_run_id: str | None = None  #: The run this one repeats or varies.
    rank: int | None = None  #: Rank whose step times and wall time the receipt has.
    world_size: int | None = None  #: Number of ranks; 1 without a launcher.
    argv_redacted: tuple[str, ...] = ()  #: The command line, secrets replaced.
    #: Environment variables from a fixed list, secrets replaced.
    env_allowlisted: dict[str, str] = EMPTY
    redactions: Redactions = Redactions()  #: Secrets that were replaced anywhere in this receipt.
    #: The target's exit code, 128 + signal when killed; null in process.
    exit_code: int | None = None


class Header(Record, frozen=True, kw_only=True):
    """Who wrote the receipt, of which code, configuration and run."""

    created_at_utc: str  #: When the receipt was made: ISO 8601, UTC.
    producer: Producer  #: The program that wrote the receipt.
    provenance: Provenance  #: The code that ran.
    #: What must be equal for two receipts to be comparable.
    configuration: Configuration = msgspec.field(name="lane")
    run: Run  #: One run of the target.


class Environment(Record, frozen=True, kw_only=True):
    """The machine and the versions."""

    os: str | None = None  #: Operating system.
    python: str | None = None  #: Python version.
    torch: str | None = None  #: torch version.
    torch_git: str | None = None  #: Commit torch was built from.
    triton: str | None = None  #: triton version; null when not installed.
    cuda: str | None = None  #: CUDA version torch was built for; null without.
    driver: str | None = None  #: Version of the GPU driver.
    tlparse: str | None = None  #: tlparse version; null when not installed.
    depyf: str | None = None  #: depyf version; null when not installed.
    cpu_model: str | None = None  #: Name of the CPU.
    cpu_count: int | None = None  #: CPUs the process may use.
    ram_bytes: int | None = None  #: Memory of the machine.
    gpus: tuple[Any, ...] | None = None  #: GPUs the process sees; empty where there are none.
    load_avg_1m: float | None = None  #: Load average over one minute when the run began.
    #: For every hook into torch, whether this version of torch has it.
    hooks_available: dict[str, bool] | None = None
    num_threads: int | None = None  #: Threads torch computes with.
    #: Flags of torch.compile's configuration, such as recompile_limit; null until the program loads
    #: Dynamo.
    compile_flags: dict[str, Any] = EMPTY
