"""Costs attributed from variants built by hand: planted ones are found, noise is none."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from timelines import attempt, recompile

from compilediag.extensions.cadence.attribution import attribute_cost
from compilediag.extensions.cadence.conclude import compare_with_sum, conclude
from compilediag.extensions.cadence.plan import Plan, ProbeGroup, Variant
from compilediag.extensions.cadence.samples import (
    StepSample,
    VariantEvidence,
    collect_evidence,
    find_extra,
)
from compilediag.timeline.devices import SyncSite
from compilediag.timeline.invocations import Calls
from compilediag.timeline.recorded import CadenceGroup
from compilediag.timeline.timeline import Compile, SampledStep, Step, Timeline
from compilediag_harness.wire import Location

PLAN = Plan(steps=60, warmup=3, every=7, first=6)
FIRES = tuple(range(6, 60, 7))
A, B = (ProbeGroup(name=n, origin="code", own_every=k) for n, k in (("a", 4), ("b", 6)))


def variant(
    extra: Mapping[int, float] | None = None,
    compiles: Sequence[Compile] = (),
    *,
    fires: Mapping[str, tuple[int, ...]] | None = None,
    seed: int = 0,
    usual: float = 10e-3,
    noise: float = 0.1e-3,
) -> VariantEvidence:
    """Sixty steps with noise; what is extra falls into the forward phase, and so do compiles."""
    chance = random.Random(seed)
    samples: list[StepSample] = []
    for number in range(60):
        compile_s = sum(item.seconds for item in compiles if item.step == number)
        more = (extra or {}).get(number, 0.0) + compile_s
        rest, forward = usual / 2, usual / 2 + abs(chance.gauss(0, noise)) + more
        phases = {"forward": forward, "rest": rest}
        samples.append(StepSample(number, forward + rest, compile_s, 0.0, None, phases))
    groups = tuple(
        CadenceGroup(0.0, 0, name, 7, 6, 4, steps, 0) for name, steps in (fires or {}).items()
    )
    return VariantEvidence(tuple(samples), tuple(compiles), groups)


def again(step: int, compile_id: str = "0/1", reason: str = "n == 2") -> Compile:
    """A recompile of half a second in a step."""
    cause = replace(recompile(compile_id, step=step), reasons=(f"0/0: {reason}",))
    return attempt(compile_id, kind="recompile", step=step, seconds=0.5, cause=cause)


FIRST = attempt("0/0", step=0, seconds=2.0)
QUIET = variant(None, [FIRST], seed=1)
"""A control."""


def test_a_metrics_cost_is_told_apart_from_its_compile() -> None:
    """The first hit compiles, every firing pays the metric, in the phase where it happens."""
    alone = variant(dict.fromkeys(FIRES, 5e-3), [FIRST, again(6)])
    cost = attribute_cost(alone, QUIET, FIRES, 3)
    assert cost.first_hit.compile_s == pytest.approx(0.5)
    assert cost.first_hit.metric_s == pytest.approx(5e-3, rel=0.1)
    assert cost.first_hit.total_s == pytest.approx(0.505, rel=0.01)
    assert cost.first_hit.by_phase.forward == pytest.approx(0.505, rel=0.01)
    assert cost.recurring.compile_s == 0.0
    assert cost.recurring.metric_s == pytest.approx(5e-3, rel=0.1)
    assert cost.recurring.sync_s is None
    assert cost.recurring.by_phase.rest is None
    assert (cost.compile_s, cost.after_warmup) == (pytest.approx(0.5), len(FIRES))
    assert cost.metric_s == pytest.approx(len(FIRES) * 5e-3, rel=0.1)


def synchronising(extra: Mapping[int, float]) -> VariantEvidence:
    """Steps that read tensors for a millisecond each, and for half of what is extra."""
    steps, chance = variant(extra), random.Random(7)
    samples = tuple(
        replace(item, sync_s=1e-3 + abs(chance.gauss(0, 1e-5)) + extra.get(item.number, 0.0) / 2)
        for item in steps.samples
    )
    return replace(steps, samples=samples)


def test_synchronising_is_told_apart_from_the_metric() -> None:
    """Half of what a firing takes longer lies inside reads, beyond those of every step."""
    cost = attribute_cost(synchronising(dict.fromkeys(FIRES, 8e-3)), variant(seed=1), FIRES, 3)
    for split in (cost.first_hit, cost.recurring):
        assert split.sync_s == pytest.approx(4e-3, rel=0.05)
        assert split.metric_s == pytest.approx(4e-3, rel=0.1)
        assert split.total_s == pytest.approx(
            split.metric_s + split.sync_s + (split.compile_s or 0)
        )
    assert cost.sync_s == pytest.approx(len(FIRES) * 4e-3, rel=0.05)


def test_synchronising_needs_most_firings_sampled() -> None:
    """Half of them are too few; then it is a part of the metric. Most of them are enough."""
    extra = dict.fromkeys(FIRES, 8e-3)
    for missing, known in ((FIRES[1::2], False), (FIRES[1:3], True)):
        run = synchronising(extra)
        samples = tuple(
            replace(item, sync_s=None) if item.number in missing else item for item in run.samples
        )
        cost = attribute_cost(replace(run, samples=samples), variant(seed=1), FIRES, 3)
        assert (cost.recurring.sync_s is not None) is known
        assert cost.recurring.total_s == pytest.approx(8e-3, rel=0.1)


def test_what_noting_costs_is_nobodys() -> None:
    """It is taken out of the step and of the phase it was in; a step that was not sampled has no
    seconds, one without reads has none, and reads out of sight make them unknown."""
    steps = tuple(
        Step(0, n, n + 1.0, 0.01, None, None, None, 0.0, forward_s=4e-3) for n in range(3)
    )
    place = Location("/job/model.py", 9, "metric")
    noted = SampledStep(
        *(0, 1, False, True, (SyncSite(place, "item", None, 50, (), 2e-3),), 2e-3),
        {"forward": 1e-3, "spans": 0.5e-3},
    )
    run = Timeline(steps=steps, syncs=(noted, SampledStep(0, 2, False, True, (), 0.0)))
    found = collect_evidence(run)
    assert [item.sync_s for item in found.samples] == [None, 2e-3, 0.0]
    assert found.samples[1].work_s == pytest.approx(8.5e-3)
    assert found.samples[1].phases == pytest.approx({"forward": 3e-3, "rest": 5.5e-3})
    assert [item.sync_s for item in found.drop_syncs().samples] == [None] * 3


def test_what_noise_explains_is_no_cost() -> None:
    """A firing that is not longer than the quiet steps vary has none, but a bound."""
    cost = attribute_cost(variant(noise=1e-3), variant(seed=1), FIRES, 3)
    assert (cost.recurring.total_s, cost.recurring.metric_s, cost.metric_s) == (None, None, None)
    assert 0 < (cost.recurring.noise_s or 0) < 3e-3


def test_noise_alone_is_seldom_a_cost() -> None:
    """Two hundred runs of noise."""
    control = variant(seed=9999)
    costs = [
        attribute_cost(variant(seed=seed, noise=2e-3), control, FIRES, 3) for seed in range(200)
    ]
    found = [item for item in costs if item.recurring and item.recurring.total_s is not None]
    assert len(found) <= 4


def test_a_first_hit_in_warmup_has_no_metric() -> None:
    """No two steps are alike there: only its compiles are reported."""
    fires = (0, 7, 14, 21, 28)
    cost = attribute_cost(variant(dict.fromkeys(fires, 5e-3)), variant(seed=1), fires, 3)
    assert (cost.first_hit.total_s, cost.first_hit.metric_s) == (None, None)
    assert cost.recurring.metric_s == pytest.approx(5e-3, rel=0.1)
    assert cost.after_warmup == 4


def test_compiles_of_the_control_are_nobodys() -> None:
    """The same step, or the same reason a few steps later, is the same compile; a compile that the
    groups caused is not mistaken for one that comes later in both."""
    both, own = again(30, "0/1", "size 3"), again(6, "0/1", "flag == False")
    later, moved = replace(both, compile_id="0/2"), again(31, "0/1", "size 3")
    assert find_extra([FIRST, own, later], [FIRST, both]) == (own,)
    for same in (moved, both):
        assert find_extra([FIRST, same], [FIRST, both]) == ()


def test_without_a_control_compiles_are_not_told() -> None:
    """Nobody knows whose they are; the metric is still known."""
    cost = attribute_cost(variant(dict.fromkeys(FIRES, 5e-3), [FIRST, again(6)]), None, FIRES, 3)
    assert (cost.compile_s, cost.first_hit.compile_s) == (None, None)
    assert cost.first_hit.total_s == cost.first_hit.metric_s
    assert cost.metric_s == pytest.approx(len(FIRES) * 5e-3, rel=0.1)


def test_few_steps_tell_nothing() -> None:
    """A variant that died early, and one without a step."""
    short = replace(variant(), samples=variant().samples[:5])
    for evidence in (short, VariantEvidence()):
        cost = attribute_cost(evidence, variant(), FIRES, 3)
        assert (cost.first_hit, cost.recurring, cost.metric_s) == (None, None, None)


def test_a_collision_is_compared_with_the_sum() -> None:
    """What it costs beyond that is reported in seconds and recompiles, less as well as more."""
    control = QUIET
    a = attribute_cost(
        variant(dict.fromkeys(FIRES, 5e-3), [FIRST, again(6)], seed=2), control, FIRES, 3
    )
    b = attribute_cost(
        variant(dict.fromkeys(FIRES, 4e-3), [FIRST, again(6)], seed=3), control, FIRES, 3
    )
    dear = variant(dict.fromkeys(FIRES, 20e-3), [FIRST, again(6)], seed=4)
    found = compare_with_sum(attribute_cost(dear, control, FIRES, 3), [a, b])
    assert found["extra_recompiles"] == -1
    assert found["extra_recurring_s"] == pytest.approx(11e-3, rel=0.1)
    assert found["extra_first_hit_s"] == pytest.approx(-0.5 + 11e-3, rel=0.1)


def test_a_slower_machine_is_no_collision() -> None:
    """Where quiet steps were half as long again, so may the same metric be."""
    a = attribute_cost(variant(dict.fromkeys(FIRES, 5e-3)), None, FIRES, 3)
    slow = variant(dict.fromkeys(FIRES, 7.5e-3), usual=15e-3)
    assert compare_with_sum(attribute_cost(slow, None, FIRES, 3), [a])["extra_recurring_s"] is None


def runs(**evidence: VariantEvidence) -> dict[Variant, VariantEvidence]:
    kinds = {
        "configured": Variant("configured"),
        "control": Variant("control"),
        "a": Variant("alone", (A,)),
        "b": Variant("alone", (B,)),
        "collision": Variant("collision", (A, B)),
    }
    return {kinds[name]: item for name, item in evidence.items()}


def test_a_standing_cost_is_told_only_when_every_process_agrees() -> None:
    """A group that makes all steps longer; a machine that was slow for one variant does not."""
    on = variant(fires={"a": FIRES}, usual=14e-3)
    off = variant(seed=1)
    found = conclude(PLAN, [A], runs(configured=on, control=off, a=on)).groups[0]
    assert found.between_s == pytest.approx(4e-3, rel=0.1)
    drift = conclude(PLAN, [A], runs(configured=off, control=off, a=on)).groups[0]
    assert drift.between_s is None


def test_missing_variants_cost_only_what_depends_on_them() -> None:
    """One variant is gone: the others still report, and the reason stands beside it."""
    alive = variant(dict.fromkeys(FIRES, 5e-3), fires={"b": FIRES})
    found = conclude(PLAN, [A, B], runs(control=variant(seed=1), b=alive))
    gone, there = found.groups
    assert (gone.cost, gone.problem) == (None, "its variant gave no steps")
    assert (there.cost is not None, there.problem, found.collision) == (True, None, None)


def test_a_group_that_never_fires_is_told() -> None:
    """due() never called, and called in vain, are different mistakes."""
    declared = CadenceGroup(0.0, 0, "a", 7, 6, 4, (), 0)
    for shift, message in ((None, "due() was never called"), (0, "with no step")):
        evidence = replace(variant(), groups=(replace(declared, shift=shift),))
        (found,) = conclude(PLAN, [A], runs(control=variant(seed=1), a=evidence)).groups
        assert found.never_fired
        assert str(found.problem).startswith("never fired")
        assert message in str(found.problem)


def test_the_steps_of_a_template_are_found() -> None:
    """From spikes, else from the first extra compile, else not at all; a rhythm that the control
    has as well is not the group's."""
    group = ProbeGroup(name="a", origin="argument", template="--a {n}")
    at = {Variant("control"): QUIET}
    spiky = variant(dict.fromkeys(range(7, 60, 7), 5e-3), [FIRST])
    compiled = variant(None, [FIRST, again(14)])
    for evidence, fires, known in (
        (spiky, tuple(range(7, 60, 7)), "step times"),
        (compiled, tuple(range(14, 60, 7)), "compiles"),
        (variant(None, [FIRST], seed=2), (), None),
    ):
        (found,) = conclude(PLAN, [group], {**at, Variant("alone", (group,)): evidence}).groups
        assert (found.cost.fires, found.fires_from) == (fires, known)
        assert not found.never_fired
    both = {Variant("control"): spiky, Variant("alone", (group,)): spiky}
    assert conclude(PLAN, [group], both).groups[0].fires_from is None


def test_a_rhythm_that_no_group_explains_is_named() -> None:
    """In the control, or in the only variant there is; what compiles there is reported."""
    compiles = [again(step, f"0/{step}") for step in range(5, 60, 9)]
    spiky = variant(dict.fromkeys(range(5, 60, 9), 5e-3), compiles)
    (found,) = conclude(PLAN, [A], runs(control=spiky, a=spiky)).periods
    assert (found.variant, found.every, found.first_step, found.count) == ("control", 9, 5, 7)
    assert found.compile_s == pytest.approx(3.5)
    (alone,) = conclude(replace(PLAN, every=0), [], runs(configured=spiky)).periods
    assert (alone.variant, alone.every) == ("configured", 9)


def test_evidence_is_that_of_the_lead_process() -> None:
    """Ranks work side by side: their steps are not mixed, and our analysis is no cost."""
    analysed = replace(recompile(step=1), analysis_s=0.2)
    step = Step(0, 1, 1.0, 1.0, None, 0.1, None, 0.5, 0.6, 0.2)
    other = replace(step, process=1)
    found = collect_evidence(Timeline(steps=(step, other), recompiles=(analysed,)))
    (sample,) = found.samples
    assert sample.work_s == pytest.approx(0.3)
    assert sample.phases == pytest.approx(
        {"forward": 0.4, "backward": 0.2, "optimizer": 0.1, "rest": 0.1}
    )


def test_an_unknown_collision_is_unknown() -> None:
    """The variant of one group gave nothing: what all cost beyond the sum cannot be said, neither
    in seconds nor in recompiles."""
    both = variant(dict.fromkeys(FIRES, 9e-3), [FIRST, again(6)], fires={"a": FIRES, "b": FIRES})
    runs = {
        Variant("control"): QUIET,
        Variant("alone", (A,)): variant(dict.fromkeys(FIRES, 5e-3), [FIRST], fires={"a": FIRES}),
        Variant("collision", (A, B)): both,
    }
    found = conclude(PLAN, (A, B), runs).collision
    extras = (found.extra_first_hit_s, found.extra_recurring_s, found.extra_recompiles)
    assert extras == (None, None, None)
    runs[Variant("alone", (B,))] = variant(dict.fromkeys(FIRES, 1e-3), [FIRST], fires={"b": FIRES})
    known = conclude(PLAN, (A, B), runs).collision
    assert known.extra_recompiles == 1
    assert known.extra_recurring_s == pytest.approx(3e-3, rel=0.2)


def test_a_first_compile_is_not_averaged_into_the_later_firings() -> None:
    """A frame that is compiled at the third firing is compiled once; a recompile there recurs."""
    late = attempt("5/0", step=FIRES[2], seconds=0.7)
    steps = variant(dict.fromkeys(FIRES, 5e-3), [FIRST, late])
    cost = attribute_cost(steps, QUIET, FIRES, 3)
    assert (cost.first_hit.compile_s, cost.recurring.compile_s) == (0.7, 0.0)
    steps = variant(dict.fromkeys(FIRES, 5e-3), [FIRST, again(FIRES[2])])
    cost = attribute_cost(steps, QUIET, FIRES, 3)
    assert cost.recurring.compile_s == pytest.approx(0.5 / (len(FIRES) - 1))


def test_a_firing_in_two_steps_counts_once_and_costs_both() -> None:
    """Work before and after `optimizer.step()`, which ends a step."""
    ends = tuple(step + 1 for step in FIRES)
    group = CadenceGroup(0.0, 0, "a", 7, 6, 4, FIRES, 0, ends)
    extra = {**dict.fromkeys(FIRES, 5e-3), **dict.fromkeys(ends, 3e-3)}
    split = replace(variant(extra), groups=(group,))
    cost = attribute_cost(split, QUIET, FIRES, 3)
    assert cost.after_warmup == len(FIRES)
    assert cost.recurring.metric_s == pytest.approx(8e-3, rel=0.1)
    assert cost.recurring.by_phase.forward == pytest.approx(8e-3, rel=0.1)
    assert cost.quiet_s == pytest.approx(10e-3, rel=0.05)


def counted(base: VariantEvidence, fires: Sequence[int], **more: int) -> VariantEvidence:
    """Two calls and one read in every step, and `more` in those that fire."""
    usual = {"reads": 1, "calls": 2}
    samples = tuple(
        replace(
            item,
            **{n: v + (more.get(n, 0) if item.number in fires else 0) for n, v in usual.items()},
        )
        for item in base.samples
    )
    return replace(base, samples=samples)


def test_counts_that_differ_each_time_attribute_nothing() -> None:
    """Another number of reads at every firing is no figure of the group."""
    steps = counted(variant(), ())
    samples = tuple(
        replace(item, calls=item.number) if item.number in FIRES else item for item in steps.samples
    )
    assert attribute_cost(replace(steps, samples=samples), None, FIRES, 3).work == {"reads": 0}


def test_the_steps_of_a_template_are_found_in_its_counts() -> None:
    """No rhythm stands out of the noise, and nothing compiles: one more compiled call does."""
    template = ProbeGroup(name="t", origin="argument", template="--every {n}")
    places = range(7, 60, 7)
    control = counted(variant(seed=1, noise=5e-3), ())
    runs = {
        Variant("control"): control,
        Variant("alone", (template,)): counted(variant(noise=5e-3), places, calls=1),
    }
    (found,) = conclude(PLAN, (template,), runs).groups
    assert found.fires_from == "counts"
    assert found.cost.fires == tuple(places)
    assert found.cost.work["calls"] == 1
    runs[Variant("control")] = counted(variant(seed=1, noise=5e-3), places, calls=1)
    (nobodys,) = conclude(PLAN, (template,), runs).groups
    assert nobodys.fires_from is None


def test_calls_are_counted_by_step() -> None:
    """From the times of the calls, as far as all were recorded, in steps that were sampled."""
    steps = tuple(
        Step(0, number, number + 1.0, 1.0, None, None, None, 0.0, unsampled=number == 1)
        for number in range(5)
    )
    where = Location("app.py", 1, "f")
    whole = Calls(0, where, 4, (), (0.1, 0.2, 2.5, 3.5), (None,) * 4)
    cut = Calls(0, where, 9, (), (0.3, 3.2), (None,) * 2)
    seen = collect_evidence(Timeline(steps=steps, invocations=(whole, cut)))
    assert [item.calls for item in seen.samples] == [3, None, 1, None, None]
    assert [item.calls for item in collect_evidence(Timeline(steps=steps)).samples] == [None] * 5
