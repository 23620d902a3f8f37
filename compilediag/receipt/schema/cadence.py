"""Results of a cadence probe: its variants, and what each group of periodic work costs."""

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
    #: configured (as the code says), control (every group off), alone, collision (all in the same
    #: steps).
    kind: str
    groups_on: tuple[str, ...] = ()  #: The groups that fire.
    settings: dict[str, str] = EMPTY  #: What set the periods: variable or group to value.
    #: Path of its receipt from this one's folder; null when there is none.
    receipt: str | None = None
    status: str | None = None  #: How it ended, as in its receipt.
    exit_code: int | None = None  #: Its exit code.
    wall_s: float | None = None  #: Its wall time.
    steps: VariantSteps | None = None  #: Its step times; null when no step was seen.
    counts: VariantCounts | None = None  #: The counts of its own receipt.
    #: Group to the steps in which it fired, as far as that is known.
    fires: dict[str, tuple[int, ...]] = EMPTY
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
    """One cause for which a group made torch compile again."""

    rule: str | None  #: Code of the rule.
    variable: str  #: The variable that changed.
    file: str | None  #: File of the line that reads it.
    line: int | None  #: That line.
    recompiles: int  #: Recompiles it caused.


class Attribution(Record, frozen=True, kw_only=True):
    """The cost of one group."""

    group: str  #: Name of the group.
    every: int  #: The period it had alone, chosen by the probe.
    fires: int  #: Steps after warm-up in which it fired.
    #: Extra seconds of its first firing; null: not measured or within the noise.
    first_hit_s: float | None
    #: Extra seconds of each later firing; null: not measured or within the noise.
    recurring_s: float | None
    compile_s: float | None  #: Seconds of all compiles that the control did not make.
    #: Seconds of the work itself, over all firings after warm-up: neither compiling nor, where that
    #: is measured, synchronising.
    metric_s: float | None
    #: Seconds inside reads of tensors that make the host wait, over all firings after warm-up;
    #: null: not measured.
    sync_s: float | None
    #: Extra seconds by phase over all firings after warm-up, compiling included; null: not measured
    #: or within the noise.
    by_phase: ExtraByPhase = ExtraByPhase()
    first_hit: CostSplit | None = None  #: The first firing, taken apart.
    #: Each later firing, taken apart: medians, of compiles the mean.
    recurring: CostSplit | None = None
    #: Extra seconds of each step that does not fire, against the control; null within the noise.
    between_s: float | None = None
    #: Median of the steps of its variant in which nothing fires and nothing compiles: what its
    #: firings are compared with.
    quiet_s: float | None = None
    recompiles: int | None = None  #: Recompiles that the control did not make.
    #: Reads of tensors that each later firing makes beyond those of a quiet step; null where they
    #: are not counted, or not always as many.
    extra_reads: int | None = None
    #: Calls of compiled callables that each later firing makes beyond those of a quiet step; null
    #: where they are not recorded, or not always as many.
    extra_calls: int | None = None
    causes: tuple[CadenceCause, ...] = ()  #: Why torch compiled again because of the group.
    #: How its steps are known: told (reported by the program), step times, counts (what its steps
    #: do more often), compiles; null when they are not.
    fires_from: str | None = None
    #: Why something could not be determined; null when everything could.
    problem: str | None = None


class CollisionRecord(Record, frozen=True, kw_only=True):
    """All groups in the same steps, and what that costs beyond their sum."""

    groups: tuple[str, ...]  #: The groups.
    every: int  #: Their period.
    fires: int  #: Steps after warm-up in which they fired.
    first_hit: CostSplit | None = None  #: The first collision, taken apart.
    recurring: CostSplit | None = None  #: Each later one, taken apart.
    #: Seconds of the first collision beyond the sum of the groups alone; negative: cheaper; null
    #: within the noise.
    extra_first_hit_s: float | None = None
    extra_recurring_s: float | None = None  #: The same for each later one.
    #: Recompiles beyond the sum of the groups alone; negative: fewer.
    extra_recompiles: int | None = None


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
    #: fresh: each variant had empty caches of inductor and Triton of its own; kept: the user's.
    caches: str
    #: Longest period that could be found in the step times, in steps.
    longest_period: int | None = None
    groups: tuple[GroupRecord, ...] = ()  #: Periodic work that was moved.
    #: Runs of the program, each in a fresh process, in order.
    variants: tuple[VariantRecord, ...] = ()
    #: What each group costs, from the variant in which it fires alone.
    attribution: tuple[Attribution, ...] = ()
    #: All groups in the same steps; null with fewer than two groups.
    collision: CollisionRecord | None = None
    #: Rhythms in the step times that no group explains: of the control, or of the only variant.
    periods: tuple[PeriodRecord, ...] = ()
    notes: tuple[str, ...] = ()  #: Sentences about the probe as a whole.
