"""What a cadence probe found: its variants, and what each group of periodic work costs."""

from compilediag.receipt.schema.compiles import VariantCounts
from compilediag.receipt.schema.record import EMPTY, Record
from compilediag.receipt.schema.running import ByPhase


class GroupRecord(Record, frozen=True, kw_only=True):
    """Periodic work that the probe moved."""

    name: str  #: Its name.
    origin: str  #: How its period is set: code (declared with cadence()), argument, environment.
    template: str | None = None  #: The template that sets it; null for a group of the code.
    own_every: int | None = None  #: The program's own period; null where only the program knows it.


class VariantSteps(Record, frozen=True, kw_only=True):
    """Step times of a variant, in seconds, warm-up left out of all but the count."""

    count: int  #: Steps that ended, warm-up included.
    median: float | None  #: Median after warm-up.
    min: float | None  #: Shortest after warm-up.
    max: float | None  #: Longest after warm-up.


class Picture(Record, frozen=True, kw_only=True):
    """The step times after warm-up, in order; of several steps in one cell the longest."""

    first_step: int  #: Number of the first step drawn.
    steps_per_cell: int  #: Steps in one cell.
    cells_s: tuple[float, ...]  #: The longest step of each cell.


class VariantRecord(Record, frozen=True, kw_only=True):
    """One run of the program."""

    name: str  #: configured, control, collision, or the name of the group that fires alone.
    kind: str  #: configured (as coded), control (no group), alone, collision (all in one step).
    groups_on: tuple[str, ...] = ()  #: The groups that fire.
    settings: dict[str, str] = EMPTY  #: What set the periods: variable or group to value.
    receipt: str | None = None  #: Path of its receipt from this one's folder; null: there is none.
    status: str | None = None  #: How it ended, as in its receipt.
    exit_code: int | None = None  #: Its exit code.
    wall_s: float | None = None  #: Its wall time.
    steps: VariantSteps | None = None  #: Its step times; null when no step was seen.
    counts: VariantCounts | None = None  #: The counts of its own receipt.
    fires: dict[str, tuple[int, ...]] = EMPTY  #: Group to its steps, as far as they are known.
    picture: Picture | None = None  #: Its step times after warm-up, to be drawn.
    problem: str | None = None  #: What went wrong with it; null when nothing did.


class ExtraByPhase(ByPhase, frozen=True, kw_only=True):
    """Extra seconds, compiling included; None: not measured, or within the noise."""


class CostSplit(Record, frozen=True, kw_only=True):
    """Extra seconds of one firing; None: not measured, or within the noise."""

    total_s: float | None  #: Extra seconds.
    compile_s: float | None  #: Compiling.
    metric_s: float | None  #: The work itself; null within the noise.
    sync_s: float | None  #: Synchronising; null: not measured.
    by_phase: ExtraByPhase = ExtraByPhase()  #: By phase, compiling included.
    noise_s: float | None = None  #: The largest metric that would not have been noticed.


class CadenceCause(Record, frozen=True, kw_only=True):
    """Why a group made torch compile again."""

    rule: str | None  #: Code of the rule.
    variable: str  #: The variable that changed.
    file: str | None  #: File of the line that reads it.
    line: int | None  #: That line.
    recompiles: int  #: Recompiles it caused.


class Attribution(Record, frozen=True, kw_only=True):
    """What one group costs."""

    group: str  #: Name of the group.
    every: int  #: The period it had alone, chosen by the probe.
    fires: int  #: Steps after warm-up in which it fired.
    first_hit_s: float | None  #: Extra seconds of its first firing; null: not measured or noise.
    recurring_s: float | None  #: The same of each later firing; null: not measured or noise.
    compile_s: float | None  #: Seconds of all compiles that the control did not make.
    #: Seconds of the work itself, over all firings after warm-up: neither compiling nor, where that
    #: is measured, synchronising.
    metric_s: float | None
    sync_s: float | None  #: Seconds of these in reads of tensors that the host waits for, or null.
    #: Extra seconds of these firings by phase, with compiling; null: not measured or noise.
    by_phase: ExtraByPhase = ExtraByPhase()
    first_hit: CostSplit | None = None  #: The first firing, taken apart.
    recurring: CostSplit | None = None  #: Each later firing apart: medians; of compiles the mean.
    between_s: float | None = None  #: Extra seconds of steps that do not fire; null within noise.
    quiet_s: float | None = None  #: Median of its steps without firing and compiling, to compare.
    recompiles: int | None = None  #: Recompiles that the control did not make.
    #: Reads of tensors that a later firing makes beyond a quiet step; null: not counted or varying.
    extra_reads: int | None = None
    #: Calls of compiled callables beyond a quiet step's, likewise; null: not recorded or varying.
    extra_calls: int | None = None
    causes: tuple[CadenceCause, ...] = ()  #: Why torch compiled again because of the group.
    #: How its steps are known: told (reported by the program), step times, counts (what its steps
    #: do more often), compiles; null when they are not.
    fires_from: str | None = None
    problem: str | None = None  #: Why something is not determined; null when everything is.


class CollisionRecord(Record, frozen=True, kw_only=True):
    """All groups in the same steps, and what that costs beyond their sum."""

    groups: tuple[str, ...]  #: The groups.
    every: int  #: Their period.
    fires: int  #: Steps after warm-up in which they fired.
    first_hit: CostSplit | None = None  #: The first collision, taken apart.
    recurring: CostSplit | None = None  #: Each later one, taken apart.
    #: Seconds of the first beyond those of each group alone; negative: cheaper; null: noise.
    extra_first_hit_s: float | None = None
    extra_recurring_s: float | None = None  #: The same for each later one.
    extra_recompiles: int | None = None  #: Recompiles beyond those of each group alone.


class PeriodRecord(Record, frozen=True, kw_only=True):
    """A rhythm in the step times that no group explains."""

    variant: str  #: The variant.
    every: int  #: The period in steps.
    first_step: int  #: First step of the rhythm after warm-up.
    count: int  #: How many steps of the rhythm are spikes.
    extra_s: float  #: By how much they are longer, in the median.
    compile_s: float  #: Seconds of compiles in them, all together.


class CadenceSection(Record, frozen=True, kw_only=True):
    """One cadence probe."""

    steps: int | None = None  #: Steps of the configured variant, which every variant was to make.
    warmup: int | None = None  #: Leading steps that are compared with nothing.
    caches: str  #: fresh: caches of inductor and Triton of each variant's own; kept: the user's.
    longest_period: int | None = None  #: Longest period, in steps, that could be found.
    groups: tuple[GroupRecord, ...] = ()  #: Periodic work that was moved.
    variants: tuple[VariantRecord, ...] = ()  #: Runs of the program in fresh processes, in order.
    attribution: tuple[Attribution, ...] = ()  #: What each group costs, where it fires alone.
    collision: CollisionRecord | None = None  #: All groups in one step; null with fewer than two.
    #: Rhythms in the step times that no group explains: of the control, or of the only variant.
    periods: tuple[PeriodRecord, ...] = ()
    notes: tuple[str, ...] = ()  #: Sentences about the probe as a whole.
