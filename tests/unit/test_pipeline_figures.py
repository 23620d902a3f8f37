"""Producer-consumer loops: what each side could do, and which of them is the bottleneck."""

import pytest
from timelines import process, timeline

from compilediag.extensions.pipeline import (
    compute_figures,
    find_pipeline_bottleneck,
    list_pipelines,
)
from compilediag.timeline.recorded import PipelineLoop, StageRun
from compilediag.timeline.timeline import Step, fold
from compilediag_harness.wire import PipelineWorked
from compilediag_harness.wire.user_events import count_most_at_once

BATCH = 8


def stretch(stage: str, start: float, wall_s: float, samples: int = 0, slot: int = -1) -> StageRun:
    return StageRun(stage, start, wall_s, samples, thread=1 if stage == "infer" else 0, slot=slot)


def loop(
    *,
    train_s: float,
    wait_s: float | None,
    infer_s: float | None,
    slots: int | None = 1,
    pool: tuple[int, ...] = (),
    steps: int = 9,
    process: int = 0,
) -> PipelineLoop:
    """`steps` training steps of `train_s`, each after a wait; and as many calls of `infer_s`."""
    work: list[StageRun] = []
    at = 0.0
    for number in range(steps):
        if wait_s is not None:
            work.append(stretch("wait", at, wait_s))
            at += wait_s
        work.append(stretch("train", at, train_s, BATCH))
        at += train_s
        if infer_s is not None:
            work.append(stretch("infer", number * infer_s, infer_s, BATCH, slot=0))
    sizes = tuple((float(place), size) for place, size in enumerate(pool))
    return PipelineLoop(process, "rollout", slots, tuple(work), sizes)


def test_the_seed_s_first_example_inference_is_the_bottleneck() -> None:
    """Training could take 15, inference makes 8: it waits, the pool is empty."""
    found = compute_figures(loop(train_s=0.5, wait_s=0.5, infer_s=1.0, pool=(0,) * 9))
    assert (found.train_capacity, found.infer_capacity) == (16.0, 8.0)
    assert found.wait_share == pytest.approx(0.5)
    assert found.dispatch_wait_s == pytest.approx(4.5)
    measured = list_pipelines(timeline(pipelines=(loop(train_s=0.5, wait_s=0.5, infer_s=1.0),)))
    assert measured[0][1] == pytest.approx(4.0), "the first wait fills the pipeline"
    assert found.throughput == pytest.approx(8.0)
    assert found.bottleneck == "inference"


@pytest.mark.parametrize(
    ("made", "bottleneck"),
    [
        # Inference could make twice what training takes, and nobody waits.
        (loop(train_s=1.0, wait_s=0.0, infer_s=0.5), "training"),
        # Samples that are late though neither side is too slow: what lies between them is.
        (loop(train_s=0.5, wait_s=0.5, infer_s=0.5, slots=4), "dispatch"),
        # No wait was measured: faster training is starved, though nobody saw it.
        (loop(train_s=0.5, wait_s=None, infer_s=1.0), "inference"),
        (loop(train_s=1.0, wait_s=None, infer_s=1.0), "balanced"),
        # Too few steps; nothing but training; slower inference whose pool was full enough so far.
        (loop(train_s=0.5, wait_s=0.5, infer_s=1.0, steps=2), None),
        (loop(train_s=1.0, wait_s=None, infer_s=None), None),
        (loop(train_s=0.5, wait_s=0.0, infer_s=1.0), None),
    ],
)
def test_bottlenecks(made: PipelineLoop, bottleneck: str | None) -> None:
    assert compute_figures(made).bottleneck == bottleneck


def test_a_growing_pool_is_training_too_slow() -> None:
    """Also where inference is measured by nobody."""
    growing = tuple(range(0, 9 * BATCH, BATCH))
    found = compute_figures(loop(train_s=1.0, wait_s=0.0, infer_s=None, pool=growing))
    assert (found.pool.early, found.pool.late, found.pool.max) == (8, 56, 64)
    assert (found.infer_capacity, found.slots, found.bottleneck) == (None, 1, "training")
    steady = compute_figures(loop(train_s=1.0, wait_s=0.0, infer_s=None, pool=(16, 8, 24) * 3))
    assert steady.bottleneck is None


def test_a_wait_inside_of_a_step_is_not_training() -> None:
    """It is taken out of the step of its own thread only."""
    step = stretch("train", 0.0, 2.0, BATCH)
    inside = stretch("wait", 0.5, 1.0)
    elsewhere = StageRun("wait", 0.5, 1.0, 0, thread=7, slot=-1)
    one = PipelineLoop(0, "rollout", None, (inside, step), ())
    other = PipelineLoop(0, "rollout", None, (elsewhere, step), ())
    assert compute_figures(one).train_capacity == 8.0
    assert compute_figures(other).train_capacity == 4.0


def test_the_finding() -> None:
    """Starved training is a warning with its seconds; a busy trainer is information."""
    starved = timeline(pipelines=(loop(train_s=0.5, wait_s=0.5, infer_s=1.0),))
    (found,) = find_pipeline_bottleneck(starved)
    assert (found.severity, found.cost_s) == ("warning", pytest.approx(4.0))
    late = timeline(pipelines=(loop(train_s=0.5, wait_s=0.5, infer_s=0.5, slots=4),))
    assert next(iter(find_pipeline_bottleneck(late))).evidence["bottleneck"] == "dispatch"
    busy = timeline(pipelines=(loop(train_s=1.0, wait_s=0.0, infer_s=0.5),))
    (found,) = find_pipeline_bottleneck(busy)
    assert (found.severity, found.cost_s) == ("info", None)
    balanced = timeline(pipelines=(loop(train_s=1.0, wait_s=None, infer_s=1.0),))
    assert list(find_pipeline_bottleneck(balanced)) == []


@pytest.mark.parametrize(
    ("data_s", "forward_s", "inside"), [(0.9, 0.1, "data"), (0.1, 0.9, "compute"), (0.5, 0.4, None)]
)
def test_where_training_s_time_goes(data_s: float, forward_s: float, inside: str | None) -> None:
    """The phases of the steps show whether its data or its compute is slow."""
    step = Step(0, 0, 1.0, 1.0, data_s, 0.0, 0.0, 0.0, forward_s)
    busy = loop(train_s=1.0, wait_s=0.0, infer_s=0.5)
    (found,) = find_pipeline_bottleneck(timeline(pipelines=(busy,), steps=(step,)))
    assert found.evidence["inside_training"] == inside


def test_batches_are_one_loop() -> None:
    """By process and name, in their order; the declared slots are those of the last batch."""
    first = PipelineWorked(1.0, "a", None, ("train",), (0.0,), (1.0,), (8,), (5,), (-1,))
    second = PipelineWorked(2.0, "a", 2, ("infer",), (0.5,), (1.0,), (4,), (6,), (0,), (1.5,), (3,))
    other = PipelineWorked(2.0, "b", None, pool_at=(1.0,), pool_sizes=(9,))
    loops = fold([[first, second, other]]).pipelines
    assert [(item.name, item.slots, len(item.stages)) for item in loops] == [
        ("a", 2, 2),
        ("b", None, 0),
    ]
    assert loops[0].stages[1] == StageRun("infer", 0.5, 1.0, 4, 6, 0)
    assert (loops[0].pool, loops[1].pool) == (((1.5, 3),), ((1.0, 9),))


def test_the_lead_process_tells() -> None:
    """Ranks do the same side by side; where the lead has no loop, the first that has one does."""
    loops = [
        loop(train_s=float(index + 1), wait_s=None, infer_s=None, process=index) for index in (1, 2)
    ]
    two = timeline(processes=(process(0), process(1), process(2)), pipelines=tuple(loops))
    assert [figures.train_capacity for figures, _ in list_pipelines(two)] == [4.0]


def test_max_at_once() -> None:
    """Intervals that only touch are not in progress at the same time."""
    assert count_most_at_once([]) == 0
    assert count_most_at_once([(0.0, 1.0), (1.0, 2.0)]) == 1
    assert count_most_at_once([(0.0, 3.0), (1.0, 2.0), (1.5, 4.0)]) == 3
