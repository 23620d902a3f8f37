"""Cost of one group of periodic work: first and later firings, in compiling, metric and sync.

A firing is compared with the quiet steps of its own process: steps after warm-up that neither fire
nor compile. Compiles are compared with those of the control. What noise could explain is no cost.

Medians throughout: one slow step of a busy machine must neither make nor hide a cost.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median

import msgspec

from compilediag.extensions.cadence.samples import StepSample, VariantEvidence, find_extra
from compilediag.receipt.schema.cadence import CostSplit, ExtraByPhase
from compilediag.timeline.timeline import Compile

MIN_QUIET = 4
"""Quiet steps below which nothing can be compared."""

SIGMAS = 3.0
"""A difference within so many standard errors is not resolved."""

DRIFT = 0.05
"""Two processes that do the same work may differ by this share from first step to last."""

MIN_PROCESSES = 3
"""Processes without which a slower machine cannot be distinguished from a slower program."""

_MAD_TO_SIGMA = 1.4826
_MEDIAN_ERROR = 1.2533
"""Standard error of a median, in those of a mean, for normal noise."""

_MIN_SPREAD = 0.002
"""Of the median: no clock and no machine is steadier."""


@dataclass(frozen=True, slots=True)
class QuietSteps:
    """Quiet steps, in seconds. A machine may be slower for a while: what a step takes is compared
    with the quiet steps near it, and so are they with each other."""

    numbers: tuple[int, ...]
    """Of the steps, in order."""
    values: tuple[float, ...]
    reach: int
    """How far before and after a step others are near."""
    median: float
    spread: float = 0.0
    """Standard deviation from what is usual nearby, estimated from the median deviation."""

    def compute_excess(self, step: int, value: float) -> float:
        """Compute by how much `value` exceeds the median of the quiet steps near `step`, its own
        left out, or that of all of them where few are near; in seconds."""
        begin = bisect_left(self.numbers, step - self.reach)
        end = bisect_right(self.numbers, step + self.reach)
        near = [self.values[i] for i in range(begin, end) if self.numbers[i] != step]
        return value - (median(near) if len(near) >= MIN_QUIET else self.median)

    def compute_median_excess(self, steps: Iterable[tuple[int, float]]) -> float:
        """Compute the median excess of some steps, given as number and seconds."""
        return median(self.compute_excess(step, value) for step, value in steps)

    def compute_bound(self, count: int) -> float:
        """Compute the largest median excess of `count` steps that noise alone explains, in
        seconds: `SIGMAS` standard errors of the difference of two medians."""
        factor = _MEDIAN_ERROR if count > 1 else 1.0
        return SIGMAS * factor * self.spread * math.sqrt(1 / max(count, 1) + 1 / len(self.values))


def make_baseline(steps: Sequence[tuple[int, float]], reach: int) -> QuietSteps | None:
    """Make the baseline of quiet steps: number and seconds, in order; None below `MIN_QUIET`."""
    if len(steps) < MIN_QUIET:
        return None
    numbers, values = zip(*steps, strict=True)
    level = QuietSteps(numbers, values, reach, median(values))
    deviation = median(abs(level.compute_excess(number, value)) for number, value in steps)
    spread = max(_MAD_TO_SIGMA * deviation, _MIN_SPREAD * level.median, 1e-7)
    return replace(level, spread=spread)


def compute_standing_cost(on: Sequence[QuietSteps], off: Sequence[QuietSteps]) -> float | None:
    """Compute by how many seconds quiet steps are longer in the processes `on` than in `off`.

    The fastest of the first is compared with the slowest of the second, so that a machine that was
    busy for a while makes no cost. None within the noise, or where there are fewer than three.
    """
    if not on or not off or len(on) + len(off) < MIN_PROCESSES:
        return None
    low, high = min(on, key=lambda b: b.median), max(off, key=lambda b: b.median)
    own = math.hypot(*(side.spread / math.sqrt(len(side.values)) for side in (low, high)))
    bound = SIGMAS * _MEDIAN_ERROR * own + DRIFT * high.median
    difference = low.median - high.median
    return difference if difference > bound else None


MIN_REACH = 4
"""Steps before and after a firing that are near, beside those up to the next one."""


WORK = ("reads", "calls")
"""Fields of a step that are counts."""

MIN_AGREEING = 0.75
"""Share of the steps that must have one count for it to be the usual one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one group, or of several on the same steps, over a whole variant."""

    fires: tuple[int, ...]
    """Steps in which it fired."""
    after_warmup: int
    """How many of them come after warm-up."""
    first_hit: CostSplit | None
    """Compiles up to the second firing are the first one's: a flag that falls back compiles too."""
    recurring: CostSplit | None
    """Of each later firing: the median; of compiles the mean."""
    compile_s: float | None
    """All compiles that the control did not make; None without a control."""
    metric_s: float | None
    sync_s: float | None
    by_phase: Mapping[str, float | None]
    """Sums over the firings after warm-up."""
    quiet_s: float | None = None
    """Median of the quiet steps it is compared with."""
    extra: tuple[Compile, ...] = ()
    """The compiles that the control did not make."""
    work: Mapping[str, int] = field(default_factory=dict[str, int])
    """What every later firing does more often than a quiet step, by `WORK`: counted, so that no
    noise of the machine changes it. A kind that is not the same each time is left out."""


@dataclass(frozen=True, slots=True)
class _Usual:
    """The usual figures of a quiet step: everything one firing is compared with."""

    by_number: Mapping[int, StepSample]
    work: QuietSteps
    phases: Mapping[str, QuietSteps]
    sync: QuietSteps | None


def attribute_cost(
    variant: VariantEvidence, control: VariantEvidence | None, fires: Sequence[int], warmup: int
) -> Cost:
    """Compute the cost of what fires in the steps `fires` of `variant`, in seconds beyond its quiet
    steps; without a `control` nothing is known of compiles (None)."""
    finished = {sample.number for sample in variant.samples}
    fires = [step for step in fires if step in finished]
    variant = _merge_firing_steps(variant, fires)
    extra = find_extra(variant.compiles, control.compiles) if control is not None else ()
    usual = _measure_usual(variant, fires, warmup)
    counted = [step for step in fires if step >= warmup]
    later = [step for step in fires[1:] if step >= warmup]
    first = recurring = None
    if fires and usual is not None:
        # Invariant: every extra compile belongs to one firing, so that no second counts twice. Each
        # firing has the compiles up to the next one; the first, all before it too.
        compile_s = dict.fromkeys(fires, 0.0)
        for event in extra:
            since = max((step for step in fires if step <= event.step), default=fires[0])
            if event.recompile is None:
                since = fires[0]  # a frame is compiled for the first time once, whenever that is
            compile_s[since] += event.seconds
        # In warm-up, where no two steps are alike, only its compiles are reported.
        of_first = compile_s[fires[0]] if control is not None else None
        first = CostSplit(total_s=of_first or None, compile_s=of_first, metric_s=None, sync_s=None)
        if fires[0] >= warmup:
            first = _split_cost(fires[:1], of_first, usual)
        if later:
            mean_s = fmean(compile_s[step] for step in later) if control is not None else None
            recurring = _split_cost(later, mean_s, usual)
    # A phase that does not stand out in the median of the later firings stays None unless the
    # compiles of the first one do.
    by_phase: dict[str, float | None] = {}
    if usual is not None and counted:
        begin, rest = _split_by_phase(counted[:1], usual), _split_by_phase(counted[1:], usual)
        more = len(counted) - 1
        by_phase = {name: _sum_all(begin[name], rest[name], more) for name in usual.phases}
    return Cost(
        fires=tuple(fires),
        after_warmup=len(counted),
        first_hit=first,
        recurring=recurring,
        compile_s=sum(event.seconds for event in extra) if control is not None else None,
        metric_s=_sum_all(first and first.metric_s, recurring and recurring.metric_s, len(later)),
        sync_s=_sum_all(first and first.sync_s, recurring and recurring.sync_s, len(later)),
        by_phase=by_phase,
        quiet_s=usual.work.median if usual is not None else None,
        extra=extra,
        work=_count_extra(variant, fires, warmup),
    )


def _merge_firing_steps(variant: VariantEvidence, fires: Sequence[int]) -> VariantEvidence:
    """Move what one firing did in several steps into the first of them: of each later step what it
    took beyond the usual one. The later ones are no steps of their own any more."""
    rests = {
        step: {n for group in variant.groups for n in group.get_rest(step)}.difference(fires)
        for step in fires
    }
    later = frozenset(number for rest in rests.values() for number in rest)
    if not later:
        return variant
    steps = {sample.number: sample for sample in variant.samples}
    quiet = [s for s in variant.samples if not s.compile_s and s.number not in later | set(fires)]
    # The medians of steps, part by part.
    samples = quiet or variant.samples
    seen = dict.fromkeys(name for sample in samples for name in sample.phases)
    synced = [sample.sync_s for sample in samples if sample.sync_s is not None]
    usual = StepSample(
        number=-1,
        wall_s=median(sample.work_s for sample in samples),
        compile_s=0.0,
        analysis_s=0.0,
        sync_s=median(synced) if synced else None,
        phases={name: median(s.phases[name] for s in samples if name in s.phases) for name in seen},
        **{name: find_usual_count(samples, name) for name in WORK},
    )
    samples = tuple(
        _merge_steps(sample, [steps[n] for n in rests.get(sample.number, ()) if n in steps], usual)
        for sample in variant.samples
        if sample.number not in later
    )
    return replace(variant, samples=samples)


def _merge_steps(sample: StepSample, rest: Sequence[StepSample], usual: StepSample) -> StepSample:
    """Add to one step what its firing did in later ones beyond the usual."""
    for more in rest:
        sync_s = None
        if None not in (sample.sync_s, more.sync_s, usual.sync_s):
            sync_s = (sample.sync_s or 0.0) + (more.sync_s or 0.0) - (usual.sync_s or 0.0)
        counts: dict[str, int | None] = {}
        for name in WORK:
            values = [getattr(step, name) for step in (sample, more, usual)]
            counts[name] = None if None in values else values[0] + values[1] - values[2]
        sample = replace(
            sample,
            wall_s=sample.wall_s + more.wall_s - usual.wall_s,
            compile_s=sample.compile_s + more.compile_s,
            analysis_s=sample.analysis_s + more.analysis_s,
            sync_s=sync_s,
            phases={
                name: seconds + more.phases.get(name, 0.0) - usual.phases.get(name, 0.0)
                for name, seconds in sample.phases.items()
            },
            **counts,
        )
    return sample


def _count_extra(variant: VariantEvidence, fires: Sequence[int], warmup: int) -> dict[str, int]:
    """Count what a later firing does beyond a quiet step, where both are always the same."""
    later = frozenset(step for step in fires[1:] if step >= warmup)
    fired = [sample for sample in variant.samples if sample.number in later]
    quiet = list_quiet(variant, fires, warmup)
    extra: dict[str, int] = {}
    for name in WORK:
        usual, now = find_usual_count(quiet, name), find_usual_count(fired, name)
        if usual is not None and now is not None:
            extra[name] = now - usual
    return extra


def find_usual_count(samples: Sequence[StepSample], name: str) -> int | None:
    """Find the count that most of the counted steps have; None where too few agree."""
    counts = Counter(value for s in samples if (value := getattr(s, name)) is not None)
    if not counts:
        return None
    value, times = counts.most_common(1)[0]
    return value if times >= max(2, MIN_AGREEING * counts.total()) else None


def list_quiet(variant: VariantEvidence, fires: Iterable[int], warmup: int) -> list[StepSample]:
    """List the steps after warm-up in which nothing fires and nothing compiles."""
    firing = frozenset(fires)
    return [
        sample
        for sample in variant.samples
        if sample.number >= warmup and sample.number not in firing and not sample.compile_s
    ]


def _measure_usual(variant: VariantEvidence, fires: Sequence[int], warmup: int) -> _Usual | None:
    quiet = list_quiet(variant, fires, warmup)
    # As far as the next firing, at least so far that some quiet steps are near.
    reach = max((later - earlier for earlier, later in pairwise(fires)), default=0) + MIN_REACH
    work = make_baseline([(sample.number, sample.work_s) for sample in quiet], reach)
    if work is None:
        return None
    phases: dict[str, QuietSteps] = {}
    for name in dict.fromkeys(name for sample in quiet for name in sample.phases):
        baseline = make_baseline(_list_phase_seconds(quiet, name), reach)
        if baseline is not None:
            phases[name] = baseline
    synced = [(s.number, s.sync_s) for s in quiet if s.sync_s is not None]
    by_number = {sample.number: sample for sample in variant.samples}
    return _Usual(by_number, work, phases, make_baseline(synced, reach))


def _list_phase_seconds(samples: Iterable[StepSample], phase: str) -> list[tuple[int, float]]:
    return [(sample.number, sample.phases[phase]) for sample in samples if phase in sample.phases]


def _split_cost(steps: Sequence[int], compile_s: float | None, usual: _Usual) -> CostSplit:
    """Split the median of some firings; where nothing stands out, there is no total. `compile_s`:
    None without a control, since nobody knows whose the compiles are."""
    samples = [usual.by_number[step] for step in steps]
    bound = usual.work.compute_bound(len(steps))
    # 0 within the noise; not known unless it was measured in most of them.
    sync: float | None = None
    known = [(s.number, s.sync_s) for s in samples if s.sync_s is not None]
    if usual.sync is not None and 2 * len(known) > len(samples):
        sync = usual.sync.compute_median_excess(known)
        sync = sync if sync > usual.sync.compute_bound(len(known)) else 0.0
    # What was measured as sync is no part of the metric.
    metric = usual.work.compute_median_excess((s.number, s.work_s) for s in samples) - (sync or 0.0)
    metric_s = metric if metric > bound else None
    return CostSplit(
        total_s=((compile_s or 0.0) + (metric_s or 0.0) + (sync or 0.0)) or None,
        compile_s=compile_s,
        metric_s=metric_s,
        sync_s=sync,
        by_phase=msgspec.convert(_split_by_phase(steps, usual), ExtraByPhase),
        noise_s=bound,
    )


def _split_by_phase(steps: Sequence[int], usual: _Usual) -> dict[str, float | None]:
    """Split extra seconds by phase, compiling included; None within the noise."""
    split: dict[str, float | None] = {}
    for name, baseline in usual.phases.items():
        known = _list_phase_seconds((usual.by_number[step] for step in steps), name)
        extra = baseline.compute_median_excess(known) if known else 0.0
        split[name] = extra if abs(extra) > baseline.compute_bound(len(known)) else None
    return split


def _sum_all(first: float | None, per_firing: float | None, later: int) -> float | None:
    """Sum one part over all firings: the first one's, and the later ones' median as often."""
    if first is None and per_firing is None:
        return None
    return (first or 0.0) + (per_firing or 0.0) * later
