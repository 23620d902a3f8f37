"""What one group costs: its first firing and every later one, in compiling, metric and sync.

A firing is compared with the quiet steps of its own process: steps after warm-up that neither fire
nor compile. Compiles are compared with those of the control. What noise could explain is not told
as a cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median

from compilediag.diagnosis.cadence.extra_compiles import extra_compiles
from compilediag.diagnosis.cadence.noise import Baseline, baseline_of
from compilediag.diagnosis.cadence.samples import StepSample, VariantEvidence
from compilediag.timeline.timeline import Compile

LEAST_REACH = 4
"""Steps before and after a firing that are near, beside those up to the next one."""


@dataclass(frozen=True, slots=True)
class Split:
    """Extra seconds of one firing. None: not measured, or within the noise."""

    total_s: float | None
    compile_s: float | None
    metric_s: float | None
    sync_s: float | None
    by_phase: Mapping[str, float | None] = field(default_factory=dict[str, "float | None"])
    """Phases that were measured, compiling included."""
    noise_s: float | None = None
    """The largest metric that would not have been noticed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one group, or several on the same steps, cost over a whole variant."""

    fires: tuple[int, ...]
    """Steps in which it fired."""
    after_warmup: int
    """How many of them come after warm-up."""
    first_hit: Split | None
    """Compiles up to the second firing are the first one's: a flag that falls back compiles too."""
    recurring: Split | None
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


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Everything one firing is compared with."""

    by_number: Mapping[int, StepSample]
    work: Baseline
    phases: Mapping[str, Baseline]
    sync: Baseline | None


def attribute(
    variant: VariantEvidence, control: VariantEvidence | None, fires: Sequence[int], warmup: int
) -> Cost:
    """The cost of what fires in the steps `fires` of `variant`."""
    finished = {sample.number for sample in variant.samples}
    fires = [step for step in fires if step in finished]
    extra = extra_compiles(variant.compiles, control.compiles) if control is not None else ()
    quiet = quiet_samples(variant, fires, warmup)
    against = _comparison(variant, quiet, _reach(fires))
    later = [step for step in fires[1:] if step >= warmup]
    first = recurring = None
    if fires and against is not None:
        spans = _episodes(fires)
        first = _first_hit(fires[0], _seconds_in(extra, *spans[0]), against, warmup)
        compiling = [
            _seconds_in(extra, *spans[i]) for i in range(1, len(spans)) if fires[i] in later
        ]
        recurring = _recurring(later, compiling, against)
    counted = [step for step in fires if step >= warmup]
    return Cost(
        fires=tuple(fires),
        after_warmup=len(counted),
        first_hit=_without_compiles(first, control),
        recurring=_without_compiles(recurring, control),
        compile_s=sum(item.seconds for item in extra) if control is not None else None,
        metric_s=_total(first, recurring, len(later), "metric_s"),
        sync_s=_total(first, recurring, len(later), "sync_s"),
        by_phase=_summed_phases(counted, against),
        quiet_s=against.work.median if against is not None else None,
        extra=extra,
    )


def quiet_samples(variant: VariantEvidence, fires: Sequence[int], warmup: int) -> list[StepSample]:
    """Steps after warm-up in which nothing fires and nothing compiles."""
    firing = frozenset(fires)
    return [
        sample
        for sample in variant.samples
        if sample.number >= warmup and sample.number not in firing and not sample.compile_s
    ]


def _reach(fires: Sequence[int]) -> int:
    """As far as the next firing, at least so far that some quiet steps are near."""
    return max((later - earlier for earlier, later in pairwise(fires)), default=0) + LEAST_REACH


def _comparison(
    variant: VariantEvidence, quiet: Sequence[StepSample], reach: int
) -> _Comparison | None:
    work = baseline_of([(sample.number, sample.work_s) for sample in quiet], reach)
    if work is None:
        return None
    names = dict.fromkeys(name for sample in quiet for name in sample.phases)
    phases = {
        name: found
        for name in names
        if (found := baseline_of(_series(quiet, name), reach)) is not None
    }
    known = [(s.number, s.sync_s) for s in quiet if s.sync_s is not None]
    by_number = {sample.number: sample for sample in variant.samples}
    return _Comparison(by_number, work, phases, baseline_of(known, reach))


def _series(quiet: Sequence[StepSample], phase: str) -> list[tuple[int, float]]:
    return [(sample.number, sample.phases[phase]) for sample in quiet if phase in sample.phases]


def _episodes(fires: Sequence[int]) -> list[tuple[int, int | None]]:
    """From each firing to before the next; the first begins with the program."""
    ends: list[int | None] = [*fires[1:], None]
    return [(0 if i == 0 else fires[i], ends[i]) for i in range(len(fires))]


def _seconds_in(extra: Sequence[Compile], begin: int, end: int | None) -> float:
    return sum(i.seconds for i in extra if i.step >= begin and (end is None or i.step < end))


def _first_hit(step: int, compile_s: float, against: _Comparison, warmup: int) -> Split:
    """In warm-up, where no two steps are alike, only its compiles are told."""
    if step >= warmup:
        return _split([step], compile_s, against)
    return Split(compile_s or None, compile_s, None, None)


def _recurring(
    steps: Sequence[int], compiling: Sequence[float], against: _Comparison
) -> Split | None:
    if not steps:
        return None
    return _split(steps, fmean(compiling) if compiling else 0.0, against)


def _split(steps: Sequence[int], compile_s: float, against: _Comparison) -> Split:
    """The median of some firings; nothing that stands out gives no total."""
    metric, sync = _work_split(steps, against)
    total = compile_s + (metric or 0.0) + (sync or 0.0)
    return Split(
        total_s=total if compile_s or metric or sync else None,
        compile_s=compile_s,
        metric_s=metric,
        sync_s=sync,
        by_phase=_phase_split(steps, against),
        noise_s=against.work.bound(len(steps)),
    )


def _work_split(steps: Sequence[int], against: _Comparison) -> tuple[float | None, float | None]:
    """Metric and sync seconds of a firing: the sync part where it was measured, the rest metric."""
    samples = [against.by_number[step] for step in steps]
    work = median(against.work.excess(sample.number, sample.work_s) for sample in samples)
    sync = _sync(samples, against.sync)
    metric = work - (sync or 0.0)
    return (metric if metric > against.work.bound(len(steps)) else None), sync


def _sync(samples: Sequence[StepSample], usual: Baseline | None) -> float | None:
    """Sync seconds of a firing; 0 within the noise, None unless it was measured in most of them."""
    known = [(s.number, s.sync_s) for s in samples if s.sync_s is not None]
    if usual is None or 2 * len(known) <= len(samples):
        return None
    sync = median(usual.excess(number, seconds) for number, seconds in known)
    return sync if sync > usual.bound(len(known)) else 0.0


def _phase_split(steps: Sequence[int], against: _Comparison) -> dict[str, float | None]:
    """Extra seconds by phase, compiling included; None within the noise."""
    split: dict[str, float | None] = {}
    for name, usual in against.phases.items():
        values = [
            usual.excess(step, phases[name])
            for step in steps
            if name in (phases := against.by_number[step].phases)
        ]
        extra = median(values) if values else 0.0
        split[name] = extra if abs(extra) > usual.bound(len(values)) else None
    return split


def _summed_phases(steps: Sequence[int], against: _Comparison | None) -> dict[str, float | None]:
    """Over all firings; a phase that does not stand out in the median of them stays None unless
    the compiles of the first one do."""
    if against is None or not steps:
        return {}
    first, all_of_them = _phase_split(steps[:1], against), _phase_split(steps[1:], against)
    summed: dict[str, float | None] = {}
    for name in against.phases:
        parts = [first.get(name)]
        later = all_of_them.get(name)
        parts.append(None if later is None else later * (len(steps) - 1))
        known = [part for part in parts if part is not None]
        summed[name] = sum(known) if known else None
    return summed


def _total(first: Split | None, recurring: Split | None, later: int, name: str) -> float | None:
    """One part over all firings: the first one's, and the later ones' median as often."""
    parts: list[float | None] = [getattr(first, name, None)]
    each: float | None = getattr(recurring, name, None)
    parts.append(None if each is None else each * later)
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _without_compiles(split: Split | None, control: VariantEvidence | None) -> Split | None:
    """Without a control nobody knows whose the compiles are."""
    if split is None or control is not None:
        return split
    total = (split.metric_s or 0.0) + (split.sync_s or 0.0)
    return replace(split, total_s=total or None, compile_s=None)
