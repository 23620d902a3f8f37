"""The evidence of one probe variant: its steps as they are compared, its compiles, its firings.

A compile that the control did not make is the groups' doing: the same frame compiled in the same
step, or again for the same printed reason, is the same compile in both runs. Seconds of compiles
are measured, never inferred from step times.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from compilediag.timeline.recorded import CadenceGroup
from compilediag.timeline.timeline import Compile, SampledStep, Step, Timeline
from compilediag.views.steps import TIMED

_ENTRY = re.compile(r"^\S*/\S*:\s*")
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d{6,}")


@dataclass(frozen=True, slots=True)
class StepSample:
    """One finished step, in seconds."""

    number: int
    wall_s: float
    compile_s: float
    analysis_s: float
    """Our own work in it, of analysing recompiles and noting reads: no cost of the program."""
    sync_s: float | None
    """Inside reads of tensors that make the host wait; None: not measured in this step."""
    phases: Mapping[str, float]
    """The measured ones, and "rest"; compiling is in them, our analysis is not."""
    reads: int | None = None
    """Of tensors that make the host wait; None: not counted in this step."""
    calls: int | None = None
    """Of compiled callables from eager code; None: not recorded one by one."""

    @property
    def work_s(self) -> float:
        """The step without compiling and without our analysis."""
        return max(0.0, self.wall_s - self.compile_s - self.analysis_s)


@dataclass(frozen=True, slots=True)
class VariantEvidence:
    """The lead process of one variant."""

    samples: tuple[StepSample, ...] = ()
    compiles: tuple[Compile, ...] = ()
    groups: tuple[CadenceGroup, ...] = ()

    def select_after(self, warmup: int) -> list[StepSample]:
        """Select the steps after warm-up."""
        return [sample for sample in self.samples if sample.number >= warmup]

    def list_fires(self, name: str) -> tuple[int, ...]:
        """List the finished steps in which a group of the code fired."""
        finished = {sample.number for sample in self.samples}
        match = next((group for group in self.groups if group.name == name), None)
        return tuple(step for step in match.fires if step in finished) if match else ()

    def drop_syncs(self) -> VariantEvidence:
        """Drop the synchronisations, for a run in which not all of them could be measured."""
        samples = tuple(replace(sample, sync_s=None, reads=None) for sample in self.samples)
        return replace(self, samples=samples)

    @property
    def firing_steps(self) -> frozenset[int]:
        """Every step in which a firing of a group of the code went on."""
        return frozenset(step for group in self.groups for step in group.steps)

    @property
    def compiled_steps(self) -> tuple[int, ...]:
        return tuple(sorted({event.step for event in self.compiles}))


def collect_evidence(timeline: Timeline) -> VariantEvidence:
    """Collect the evidence of one run: that of its lead process."""
    process = timeline.lead
    analysis_s: dict[int, float] = {}
    for recompile in timeline.recompiles:
        if recompile.process == process:
            analysis_s[recompile.step] = analysis_s.get(recompile.step, 0.0) + recompile.analysis_s
    reads = {sample.step: sample for sample in timeline.syncs if sample.process == process}
    steps = [step for step in timeline.steps if step.process == process]
    calls = _count_calls(timeline, steps)
    return VariantEvidence(
        samples=tuple(
            _build_sample(step, analysis_s.get(step.number, 0.0), reads.get(step.number), calls)
            for step in steps
            if math.isfinite(step.wall_s)
        ),
        compiles=tuple(event for event in timeline.compiles if event.process == process),
        groups=tuple(group for group in timeline.cadences if group.process == process),
    )


def _count_calls(timeline: Timeline, steps: Sequence[Step]) -> dict[int, int]:
    """Count calls of compiled callables in each step in which all were recorded one by one."""
    made = [call for call in timeline.invocations if call.process == timeline.lead]
    if not made:
        return {}
    ordered = sorted(steps, key=lambda step: step.end)
    ends = [step.end for step in ordered]
    known_s = min((call.at[-1] for call in made if len(call.at) < call.calls), default=math.inf)
    counted = Counter(bisect_left(ends, at) for call in made for at in call.at)
    return {
        step.number: counted[index]
        for index, step in enumerate(ordered)
        if step.end < known_s and not step.unsampled
    }


def _build_sample(
    step: Step, analysis_s: float, reads: SampledStep | None, calls: Mapping[int, int]
) -> StepSample:
    measured: dict[str, float | None] = {name: getattr(step, f"{name}_s") for name in TIMED}
    phases = {name: seconds for name, seconds in measured.items() if seconds is not None}
    phases["rest"] = max(0.0, step.wall_s - sum(phases.values()))
    if analysis_s:
        # It lies where torch compiles, which is what makes a phase the longest of such a step.
        longest = max(phases, key=lambda name: phases[name])
        phases[longest] = max(0.0, phases[longest] - analysis_s)
    noting_s = dict(reads.noting_s) if reads is not None else {}
    for name, seconds in noting_s.items():
        phase = name if name in phases else "rest"
        phases[phase] = max(0.0, phases[phase] - seconds)
    counted = None
    if reads is not None and reads.complete:
        counted = sum(site.count for site in reads.sites)
    return StepSample(
        number=step.number,
        wall_s=step.wall_s,
        compile_s=step.compile_s,
        analysis_s=analysis_s + sum(noting_s.values()),
        sync_s=reads.seconds if reads is not None else None,
        reads=counted,
        phases=phases,
        calls=calls.get(step.number),
    )


def find_extra(variant: Sequence[Compile], control: Sequence[Compile]) -> tuple[Compile, ...]:
    """Find the compiles of `variant` without a counterpart in `control`, in time order."""
    left, others = list(variant), list(control)
    for key in (attrgetter("frame", "forward", "step"), _get_reason_key):
        left, others = _drop_pairs(left, others, key), _drop_pairs(others, left, key)
    return tuple(left)


def _drop_pairs(
    events: Sequence[Compile], others: Sequence[Compile], key: Callable[[Compile], Hashable]
) -> list[Compile]:
    """Drop of the events with one key, in their order, as many as the others have."""
    waiting = Counter(map(key, others))
    alone: list[Compile] = []
    for event in events:
        if waiting[key(event)] > 0:
            waiting[key(event)] -= 1
        else:
            alone.append(event)
    return alone


def _get_reason_key(event: Compile) -> Hashable:
    reasons = event.recompile.reasons if event.recompile is not None else ()
    first = _NUMBERS.sub("#", _ENTRY.sub("", reasons[0])) if reasons else ""
    return event.frame, event.forward, first


def count_recompiles(compiles: Sequence[Compile]) -> int:
    """Count those of them that a failed guard caused and that ended with guarded code."""
    return sum(event.recompile is not None and event.recompile.produced for event in compiles)
