"""The steps section of a receipt, its timings, and the view of both."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from screens import screen
from timelines import attempt

from compilediag.diagnosis.figures.devices import build_syncs_section
from compilediag.diagnosis.figures.steps import build_steps_section, list_timings, sum_spans_by_step
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.running import StepsSection
from compilediag.timeline.devices import SyncSite
from compilediag.timeline.timeline import CallsOutside, Compile, SampledStep, Step, Timeline
from compilediag.views.steps import show_steps
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import Location, SpanEnded

HOOK = Location("/job/metrics.py", 21, "Meter.hook")
LOOK = RenderOptions(width=100)
DATA = Path(__file__).parents[1] / "data" / "views"


def step(number: int, wall_s: float = 1.0, **phases: float | None) -> Step:
    known: dict[str, float | None] = {
        "data_wait_s": 0.25,
        "optimizer_s": None,
        "spans_s": None,
        **phases,
    }
    return Step(0, number, float(number + 1), wall_s, **known, compile_s=0.0)  # pyright: ignore[reportArgumentType]


def span(
    name: str, start: float, wall_s: float, number: int, depth: int = 0, thread: int = 0
) -> SpanEnded:
    return SpanEnded(start + wall_s, number, name, start, wall_s, depth, thread, "rest")


def compiled(t: float, seconds: float, *, forward: bool = True) -> Compile:
    kind = "first" if forward else "backward"
    return replace(attempt(kind=kind, where=HOOK, seconds=seconds), t=t)


def section(timeline: Timeline, findings: tuple[Finding, ...] = ()) -> StepsSection:
    return build_steps_section(timeline, findings, 0)


def why(
    long: Step, *, spans: tuple[SpanEnded, ...] = (), findings: tuple[Finding, ...] = ()
) -> str:
    """What explains the one long step among eleven."""
    steps = [step(number) for number in range(10)]
    timeline = Timeline(steps=(*steps[:5], replace(long, number=5), *steps[5:]), spans=spans)
    (spike,) = section(timeline, findings).spikes
    assert spike.step == 5
    return spike.why


@pytest.mark.parametrize(
    ("long", "name", "seconds", "reason"),
    [
        (step(5, 4.0), "metrics", 2.0, "metric"),
        (step(5, 4.0), "save_checkpoint", 2.0, "checkpoint"),
        (step(5, 4.0), "eval", 2.0, "eval"),
        (step(5, 4.0), "upload", 2.0, "upload"),
        (step(5, 4.0), "forward", 2.0, "unexplained"),
        (step(5, 4.0), "metrics", 1.0, "unexplained"),
        (step(5, 4.0, data_wait_s=3.0), "eval", 0.0, "data"),
        (replace(step(5, 4.0, data_wait_s=1.0), compile_s=1.0), "eval", 0.0, "unexplained"),
    ],
)
def test_a_spike_with_a_span(long: Step, name: str, seconds: float, reason: str) -> None:
    """By the category of the span, or the wait that is longer than usual; the work itself explains
    nothing, nor what takes less than half of what is too much."""
    assert why(long, spans=(span(name, 5.0, seconds, 5),)) == reason


def test_nested_spans_are_told_once() -> None:
    """A metric inside an evaluation is the metric's; other threads take none of the step."""
    timeline = Timeline(
        spans=(
            span("metrics", 1.5, 0.5, 3, depth=1),
            span("eval", 1.0, 2.0, 3),
            span("checkpoint", 1.0, 2.0, 3, thread=7),
            span("train_step", 0.0, 4.0, 3),
        )
    )
    assert sum_spans_by_step(timeline, 0) == {3: {"metrics": 0.5, "eval": 1.5}}


TIMED = Timeline(
    spans=(
        span("metrics", 1.0, 0.5, 0),
        span("metrics", 2.0, 1.5, 1),
        span("checkpoint", 1.0, 0.25, 0, thread=7),
    ),
    disabled_calls=(
        CallsOutside(0, HOOK, "forward", 4, 8.0, 3.0),
        CallsOutside(0, Location("/job/train.py", 7, "log"), "rest", 2, 1.0, 0.75),
        CallsOutside(1, HOOK, "forward", 100, 100.0, 100.0),
    ),
)


def test_timings() -> None:
    """The longest first."""
    rows = list_timings(TIMED)
    assert [(row.kind, row.name, row.phase, row.count, row.total_s, row.max_s) for row in rows] == [
        ("disabled_function", "Meter.hook", "forward", 4, 8.0, 3.0),
        ("span", "metrics", "rest", 2, 2.0, 1.5),
        ("disabled_function", "log", "rest", 2, 1.0, 0.75),
        ("span", "checkpoint", "other thread", 1, 0.25, 0.25),
    ]
    assert (rows[0].mean_s, rows[0].file) == (2.0, "/job/metrics.py")


def shown(timeline: Timeline, look: RenderOptions = LOOK) -> str:
    """The view of a receipt with the timeline's steps and timings."""
    whole = msgspec.convert(json.loads((DATA / "clean.json").read_text(encoding="utf-8")), Receipt)
    made = msgspec.structs.replace(
        whole,
        steps=build_steps_section(timeline, (), 0),
        timings=list_timings(timeline),
        syncs=build_syncs_section(timeline),
    )
    return screen(show_steps, made, look)


def test_the_view_has_the_lines_that_read_tensors() -> None:
    """How often in a step, and for how long; without a device nobody waits, which is shown."""
    site = SyncSite(Location("/job/metrics.py", 40, "Meter.log"), "tolist", 39, 3, (), 0.25)
    steps = tuple(step(number) for number in range(4))
    for on_device, what in ((True, "synchronisations"), (False, "reads of tensors (no device")):
        samples = (
            SampledStep(0, 2, on_device, True, (site,), 0.25),
            SampledStep(0, 3, on_device, True, (), 0.0),
        )
        text = shown(Timeline(steps=steps, syncs=samples))
        lines = [line.split() for line in text.splitlines() if "metrics.py:40" in line]
        assert [row[-7:] for row in lines] == [["tolist", "3", "1", "of", "2", "0.25", "s"]]
        assert what in text


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_view_fits_and_is_safe(width: int) -> None:
    """Names are text of the target's."""
    name = "evil\x1b[2J\u202e" + "x" * 300
    steps = tuple(step(number) for number in range(3))
    timeline = replace(TIMED, steps=steps, spans=(span(name, 0.0, 1.0, 0),))
    text = shown(timeline, RenderOptions(width=width))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert max(len(line) for line in text.splitlines()) <= width
