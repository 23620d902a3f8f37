"""What a receipt is of: completeness, header and environment."""

from typing import Any

from msgspec import field

from compilediag.receipt.schema.record import Record


class Sources(Record, frozen=True, kw_only=True):
    """Which sources of evidence spoke, and whether their counts are the same."""

    events: bool | None = None
    metrics: bool | None = None
    text_log: bool | None = None
    agree: bool | None = None


class Completeness(Record, frozen=True, kw_only=True):
    """How much of the evidence arrived."""

    journal_records: int | None
    journal_torn_tail: bool | None
    records_lost: dict[str, int]
    ranks_expected: int | None
    ranks_present: tuple[int, ...]
    sources: Sources
    differences: tuple[str, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])
    reasons: tuple[str, ...] = ()


class Producer(Record, frozen=True, kw_only=True):
    """The program that wrote the receipt."""

    name: str
    version: str


class Provenance(Record, frozen=True, kw_only=True):
    """The code that ran."""

    git_commit: str | None = None
    git_branch: str | None = None
    git_dirty: bool | None = None
    git_message_short: str | None = None
    source: str | None = None
    source_sha256: dict[str, str] = field(default_factory=dict[str, str])
    imports_complete: bool | None = None
    folder: str | None = None


class NumericsFlags(Record, frozen=True, kw_only=True):
    """Flags that change numbers or speed, as they were in force."""

    mode: str | None = None
    backend: str | None = None
    dynamic: bool | None = None
    fullgraph: bool | None = None
    cudagraphs: bool | None = None
    matmul_precision: str | None = None
    allow_tf32_matmul: bool | None = None
    allow_tf32_cudnn: bool | None = None
    cudnn_benchmark: bool | None = None
    cudnn_deterministic: bool | None = None
    deterministic: bool | None = None
    default_dtype: str | None = None
    autocast_cpu: str | None = None
    autocast_cuda: str | None = None


class Lane(Record, frozen=True, kw_only=True):
    """What must be equal for two receipts to be comparable."""

    name: str
    preset: str | None = None
    precision: str | None = None
    numerics_flags: NumericsFlags = NumericsFlags()


class Redactions(Record, frozen=True, kw_only=True):
    """How many secrets were replaced, and by which rules."""

    count: int = 0
    rules: tuple[str, ...] = ()


class Run(Record, frozen=True, kw_only=True):
    """One run of the target."""

    run_id: str | None = None
    attempt: int = 1
    parent_run_id: str | None = None
    rank: int | None = None
    world_size: int | None = None
    argv_redacted: tuple[str, ...] = ()
    env_allowlisted: dict[str, str] = field(default_factory=dict[str, str])
    redactions: Redactions = Redactions()
    exit_code: int | None = None


class Header(Record, frozen=True, kw_only=True):
    """Who wrote the receipt, of which code, in which lane and run."""

    created_at_utc: str
    producer: Producer
    provenance: Provenance
    lane: Lane
    run: Run


class Environment(Record, frozen=True, kw_only=True):
    """The machine and the versions."""

    os: str | None = None
    python: str | None = None
    torch: str | None = None
    torch_git: str | None = None
    triton: str | None = None
    cuda: str | None = None
    driver: str | None = None
    tlparse: str | None = None
    depyf: str | None = None
    cpu_model: str | None = None
    cpu_count: int | None = None
    ram_bytes: int | None = None
    gpus: tuple[Any, ...] | None = None
    load_avg_1m: float | None = None
    hooks_available: dict[str, bool] | None = None
    num_threads: int | None = None
    compile_flags: dict[str, Any] = field(default_factory=dict[str, Any])
