"""What a cadence probe found: its variants, and what each group of periodic work costs."""

from msgspec import field

from compilediag.receipt.schema.compiles import VariantCounts
from compilediag.receipt.schema.record import Record
from compilediag.receipt.schema.running import ByPhase


class GroupRecord(Record, frozen=True, kw_only=True):
    """Periodic work that the probe moved."""

    name: str
    origin: str
    template: str | None = None
    own_every: int | None = None


class VariantSteps(Record, frozen=True, kw_only=True):
    """Step times of a variant, in seconds, warm-up left out of all but the count."""

    count: int
    median: float | None
    min: float | None
    max: float | None


class Picture(Record, frozen=True, kw_only=True):
    """The step times after warm-up, in order; of several steps in one cell the longest."""

    first_step: int
    steps_per_cell: int
    cells_s: tuple[float, ...]


class VariantRecord(Record, frozen=True, kw_only=True):
    """One run of the program."""

    name: str
    kind: str
    groups_on: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict[str, str])
    receipt: str | None = None
    status: str | None = None
    exit_code: int | None = None
    wall_s: float | None = None
    steps: VariantSteps | None = None
    counts: VariantCounts | None = None
    fires: dict[str, tuple[int, ...]] = field(default_factory=dict[str, "tuple[int, ...]"])
    picture: Picture | None = None
    problem: str | None = None


class ExtraByPhase(ByPhase, frozen=True, kw_only=True):
    """Extra seconds, compiling included; None: not measured, or within the noise."""


class CostSplit(Record, frozen=True, kw_only=True):
    """Extra seconds of one firing; None: not measured, or within the noise."""

    total_s: float | None
    compile_s: float | None
    metric_s: float | None
    sync_s: float | None
    by_phase: ExtraByPhase = ExtraByPhase()
    noise_s: float | None = None
    """The largest metric that would not have been noticed."""


class CadenceCause(Record, frozen=True, kw_only=True):
    """Why a group made torch compile again."""

    rule: str | None
    variable: str
    file: str | None
    line: int | None
    recompiles: int


class Attribution(Record, frozen=True, kw_only=True):
    """What one group costs."""

    group: str
    every: int
    fires: int
    first_hit_s: float | None
    recurring_s: float | None
    compile_s: float | None
    metric_s: float | None
    sync_s: float | None
    by_phase: ExtraByPhase = ExtraByPhase()
    first_hit: CostSplit | None = None
    recurring: CostSplit | None = None
    between_s: float | None = None
    quiet_s: float | None = None
    recompiles: int | None = None
    extra_reads: int | None = None
    extra_calls: int | None = None
    causes: tuple[CadenceCause, ...] = ()
    fires_from: str | None = None
    problem: str | None = None


class CollisionRecord(Record, frozen=True, kw_only=True):
    """All groups in the same steps, and what that costs beyond their sum."""

    groups: tuple[str, ...]
    every: int
    fires: int
    first_hit: CostSplit | None = None
    recurring: CostSplit | None = None
    extra_first_hit_s: float | None = None
    extra_recurring_s: float | None = None
    extra_recompiles: int | None = None


class PeriodRecord(Record, frozen=True, kw_only=True):
    """A rhythm in the step times that no group explains."""

    variant: str
    every: int
    first_step: int
    count: int
    extra_s: float
    compile_s: float
    """Seconds of compiles in its steps, all together."""


class CadenceSection(Record, frozen=True, kw_only=True):
    """One cadence probe."""

    steps: int | None = None
    warmup: int | None = None
    caches: str
    longest_period: int | None = None
    groups: tuple[GroupRecord, ...] = ()
    variants: tuple[VariantRecord, ...] = ()
    attribution: tuple[Attribution, ...] = ()
    collision: CollisionRecord | None = None
    periods: tuple[PeriodRecord, ...] = ()
    notes: tuple[str, ...] = ()
