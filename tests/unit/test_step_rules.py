"""CD301 to CD307 over timelines built by hand: what they say, and where they must stay silent."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from timelines import FILE, TORCH_FILE, attempt, process, timeline

from compilediag.diagnosis.figures.devices import build_syncs_section
from compilediag.diagnosis.findings import Finding
from compilediag.extensions.cadence import rules as cadences
from compilediag.rules import steps
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.devices import SyncSite, collect_samples
from compilediag.timeline.recorded import CadenceGroup
from compilediag.timeline.timeline import Compile, SampledStep, Step, Timeline
from compilediag_harness.wire import Location, SpanEnded, SyncsSampled

LINE = Location(FILE, 20, "targets")


def found(rule: Any, run: Timeline) -> list[Finding]:
    return list(rule(run))


def step(number: int, wall_s: float = 0.01, **more: Any) -> Step:
    """A step of ten milliseconds in which nothing else is known."""
    values = {"data_wait_s": None, "optimizer_s": None, "spans_s": None, "compile_s": 0.0, **more}
    return Step(0, number, number + 1.0, wall_s, **values)


def read(count: int, place: Location = LINE, **more: Any) -> SyncSite:
    values = {"kind": "item", "loop": 18, "spans": (), **more}
    return SyncSite(place, count=count, **values)


def sample(number: int, *sites: SyncSite, on_device: bool = True, process: int = 0) -> SampledStep:
    return SampledStep(process, number, on_device, True, sites)


# --- CD301 ---


@pytest.mark.parametrize(("count", "findings"), [(63, 0), (64, 1)])
def test_on_the_host_it_takes_more_and_says_would(count: int, findings: int) -> None:
    """Nobody knows which tensors would be on a device."""
    made = found(steps.find_sync_loops, timeline(syncs=(sample(3, read(count), on_device=False),)))
    assert len(made) == findings
    assert all("would wait for a GPU" in finding.title for finding in made)


@pytest.mark.parametrize(
    "samples",
    [
        (sample(3, read(15), read(15, loop=30)), sample(4, read(15))),
        (sample(3, read(99), process=1),),
        (sample(3, read(99, Location(TORCH_FILE, 5, "inner"), loop=None)),),
    ],
    ids=["fifteen in each of two loops", "another rank", "a line in torch"],
)
def test_reads_that_are_no_finding(samples: tuple[SampledStep, ...]) -> None:
    """However many steps: they are not thirty in one loop, or the user cannot change the line."""
    run = timeline(syncs=samples, processes=(process(0), process(1)))
    assert found(steps.find_sync_loops, run) == []


def test_the_receipt_adds_up_by_line_and_kind() -> None:
    """Null without a sample; with empty ones no line, and the number of steps."""
    run = timeline(syncs=(sample(3, read(2), read(3, spans=("a",))), sample(4, read(1)), sample(7)))
    section = build_syncs_section(run)
    (line,) = section.lines
    assert (section.sampled_steps, section.on_device, section.complete) == (3, True, True)
    assert (line.file, line.line, line.loop_line) == ("/home/user/app.py", 20, 18)
    assert (line.count, line.most_in_a_step, line.steps) == (6, 5, 2)
    assert build_syncs_section(timeline()) is None


# --- CD302 ---


@pytest.mark.parametrize(
    "compiles",
    [
        [attempt(), attempt("1/0", step=8)],
        [attempt(), attempt("1/0", step=20, kind="failed")],
        [attempt(), attempt("0/0", step=20, kind="backward")],
        [attempt(), attempt("1/0", step=41, seconds=0.5)],  # in the evaluation
        [attempt(step=50)],
        [replace(attempt(), test="a"), replace(attempt("1/0", step=20), test="b")],
    ],
    ids=["too early", "failed", "backward", "evaluation", "the first of all", "tests"],
)
def test_what_is_no_first_compile_in_a_steady_step(compiles: list[Compile]) -> None:
    """Too near to the last compile, no compile of a new frame, or in an evaluation; before the
    first one of all, steps were eager on purpose."""
    run = timeline(compiles, spans=(span("validation", 40.0, 2.0, 41),))
    assert found(steps.find_compiles_in_steady_state, run) == []


def span(name: str, start: float, wall_s: float, number: int = 0, thread: int = 0) -> SpanEnded:
    return SpanEnded(start + wall_s, number, name, start, wall_s, 0, thread)


def test_a_recompile_in_a_steady_step_is_its_causes_symptom() -> None:
    """One finding, which states it and costs what it cost before."""
    run = timeline([attempt(), attempt("0/1", step=20, kind="recompile")])
    (finding,) = (item for item in diagnose(run).findings if item.rule.startswith(("CD1", "CD3")))
    assert (finding.rule, finding.also, finding.cost_s) == ("CD107", ("CD302",), 0.5)
    assert finding.steps == (20,)


def test_a_timed_span_must_not_hold_compiles() -> None:
    """Backward and first compile alike; another name, or another thread, claims nothing."""
    compiles = [attempt(step=2, seconds=0.5), attempt(step=3, kind="backward", seconds=0.25)]
    inside = span("timed", 1.0, 5.0)
    (finding,) = found(steps.find_compiles_in_timed_spans, timeline(compiles, spans=(inside,)))
    assert (finding.variable, finding.count, finding.cost_s) == ("timed", 2, 0.75)
    for other in (span("work", 1.0, 5.0), span("timed", 1.0, 5.0, thread=7), span("timed", 4.0, 1)):
        run = timeline(compiles, spans=(other,))
        assert found(steps.find_compiles_in_timed_spans, run) == []


# --- CD303 ---


def test_other_spans_may_hold_reads() -> None:
    """And the model's may hold a few."""
    run = timeline(
        syncs=(sample(3, read(99, spans=("loss",)), read(15, spans=("forward",)), read(99)),)
    )
    assert found(steps.find_reads_in_model_time, run) == []


def test_names_that_claim_to_be_the_models_time() -> None:
    """Whole words at the end of the name."""
    claiming = ("forward", "lens_forward", "forward_ms", "Forward pass", "model", "inference")
    others = ("backward", "save_model", "train_model", "straightforward", "forward_loss", "models")
    assert all(map(steps.is_model_time, claiming))
    assert not any(map(steps.is_model_time, others))


# --- CD304, CD305 ---


def group(name: str, *fires: int, every: int = 4) -> CadenceGroup:
    return CadenceGroup(0.0, 0, name, every, 0, every, fires, 0)


def periodic(
    compiled: Sequence[int],
    groups: Sequence[CadenceGroup] = (),
    *,
    extra_s: float = 0.0,
    steps: int = 40,
    compile_s: float = 1.0,
) -> Timeline:
    """Steps of ten milliseconds; firings take `extra_s` more, recompiles `compile_s`."""
    fires = {number for one in groups for number in one.fires}
    compiles = [attempt(step=0, seconds=compile_s)]
    compiles += [
        attempt(f"0/{place}", step=number, kind="recompile", seconds=compile_s)
        for place, number in enumerate(compiled, start=1)
    ]
    at = {item.step for item in compiles}
    made = tuple(
        step(
            number,
            # No two steps are quite equal.
            0.01
            + number % 3 * 1e-5
            + (extra_s if number in fires else 0.0)
            + (compile_s if number in at else 0.0),
            compile_s=compile_s if number in at else 0.0,
        )
        for number in range(steps)
    )
    return timeline(compiles, steps=made, cadences=tuple(groups))


@pytest.mark.parametrize(
    "run",
    [
        periodic([], [group("norms", 8, 16)]),
        periodic([9], [group("norms", 8, 16)]),
        periodic([8], [group("norms", *range(0, 40, 2), every=2)]),
        periodic([8, 16, 24], [group("norms", *range(40), every=1)]),
        periodic([10], [group("norms", 10, 30)], extra_s=9.0),
        periodic([3, 4], [group("off", every=0)]),
    ],
    ids=["none", "elsewhere", "by chance", "always", "the metric", "switched off"],
)
def test_recompiles_that_no_group_explains(run: Timeline) -> None:
    """Elsewhere, as likely by chance, or not what makes the step slow."""
    assert found(cadences.find_cadence_recompiles, run) == []


@pytest.mark.parametrize(
    "compiled", [[5, 10, 15], [1, 2, 3, 4, 5], [5, 10, 16, 20], [1, 2, 3, 4, 5, 6, 8, 10, 12, 14]]
)
def test_recompiles_without_a_rhythm(compiled: list[int]) -> None:
    """Three only, in every step, unevenly, or mostly otherwise."""
    assert found(cadences.find_cadence_recompiles, periodic(compiled)) == []


def test_what_a_firing_costs_without_compiles() -> None:
    """Firings that compile or collide are left out of the measure."""
    groups = (group("norms", 4, 8, 12, 16, 20), group("rank", 8, every=8))
    (finding,) = found(cadences.find_cadence_costs, periodic([4], groups, extra_s=0.005))
    assert (finding.variable, finding.steps) == ("norms", (12, 16, 20))
    assert finding.severity == "info"
    assert finding.cost_s == pytest.approx(0.015, rel=0.02)


@pytest.mark.parametrize(
    ("fires", "extra_s"), [((4, 8), 0.005), ((4, 8, 12), 0.0001), ((4, 8, 12), 0.0)]
)
def test_costs_that_are_not_known_are_not_told(fires: tuple[int, ...], extra_s: float) -> None:
    """Too few firings, or within the noise, or too little to matter."""
    run = periodic([], [group("norms", *fires)], extra_s=extra_s)
    assert found(cadences.find_cadence_costs, run) == []


# --- CD307 ---


def waiting(wait_s: float | None, steps: int = 8, **more: Any) -> Timeline:
    return timeline(steps=tuple(step(n, data_wait_s=wait_s, **more) for n in range(steps)))


@pytest.mark.parametrize(
    "run",
    [
        waiting(0.004),
        waiting(None),
        waiting(0.009, steps=7),
        waiting(0.009, compile_s=1.0),
        timeline(),
    ],
    ids=["less", "not measured", "too few", "compiling", "no steps"],
)
def test_steps_that_do_not_wait(run: Timeline) -> None:
    """Nothing is reported of what was not measured, or of too few steps."""
    assert found(steps.find_data_bound_steps, run) == []


def test_seconds_of_reads_add_up_or_are_not_known() -> None:
    """Those of a line over its steps, and of all lines; one that was not timed, or a step that held
    more than was counted, leaves them unknown. Journals of before hold none."""
    places = (LINE, replace(LINE, line=30))
    kinds, loops, counts = ("item", "tolist"), (0, 0), (5, 1)
    event = SyncsSampled(1.0, 2, True, True, places, kinds, loops, ((), ()), counts, (0.5, 0.25))
    before = replace(event, step=3, seconds=())
    cut = replace(event, step=4, complete=False)
    empty = SyncsSampled(1.0, 5, True, True, (), (), (), (), ())
    samples = list(collect_samples(0, (event, before, cut, empty)))
    assert [item.seconds for item in samples] == [0.75, None, None, 0.0]
    assert [site.seconds for site in samples[2].sites] == [0.5, 0.25]
    for kept, lines, whole in (
        ((samples[0], samples[3]), [0.5, 0.25], 0.75),
        ((samples[0], samples[2]), [1.0, 0.5], None),
        (samples, [None, None], None),
    ):
        run = timeline(syncs=tuple(kept))
        section = build_syncs_section(run)
        assert ([line.seconds for line in section.lines], section.seconds) == (lines, whole)
