"""A run that goes on: at every moment the figures of all events so far, or none."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from compilediag.diagnosis.figures.goodput import compute_account, settle
from compilediag.extensions.telemetry import live_run
from compilediag.extensions.telemetry.live_run import LiveRun
from compilediag.extensions.telemetry.metrics import (
    MAX_OWN_NAMES,
    METRICS,
    OTHER,
    Labels,
    MetricsSnapshot,
    iterate_points,
)
from compilediag.runs.supervised.child import ExitInfo
from compilediag.timeline.timeline import fold
from compilediag_harness import wire

WHERE = wire.Location("/home/user/model.py", 3, "forward")


def started(rank: int | None = None, second: int = 0) -> wire.ProcessStarted:
    at = f"2026-11-20T14:45:{second:02d}Z"
    return wire.ProcessStarted(0.0, 1, 7, 6, rank, None, (), "python", "/", at, "3.11.7")


def steps(
    first: int, ends: Sequence[float], wall_s: float, data_wait: float = 0.0
) -> wire.StepsEnded:
    count = len(ends)
    return wire.StepsEnded(
        ends[-1], first, "optimizer", tuple(ends), (wall_s,) * count, (data_wait,) * count
    )


def compiled(t: float, seconds: float, number: int = 0, reason: str | None = None) -> wire.Compiled:
    return wire.Compiled(
        t, 0, f"0/{number}", 0, WHERE, True, True, seconds, None, 1, 1, 1, reason, None, None
    )  # fmt: skip


def asked(t: float, number: int) -> wire.Recompiled:
    return wire.Recompiled(t, 0, f"0/{number}", 0, WHERE, ("n == 2",), (), 0.001)


def span(name: str, start: float, wall_s: float, depth: int = 0) -> wire.SpanEnded:
    return wire.SpanEnded(start + wall_s, 0, name, start, wall_s, depth, 0)


def history(seed: int, *, late_spans: bool) -> list[wire.Event]:
    """A run as a program could have made it: compiles, steps, spans between and inside them."""
    chance = random.Random(seed)
    events: list[wire.Event] = [started(), compiled(1.5, 0.7)]
    now, number, compiles = 1.5, 0, 1
    long_from = now
    while number < 120:
        ends: list[float] = []
        for _ in range(chance.randint(1, 9)):
            now += 0.01
            ends.append(now)
        events.append(steps(number, ends, 0.01, chance.choice((0.0, 0.002))))
        number += len(ends)
        if chance.random() < 0.2:
            seconds = chance.choice((0.003, 0.2))
            events += [asked(now, compiles), compiled(now + seconds, seconds, compiles, "n")]
            now, compiles = now + seconds, compiles + 1
        if chance.random() < 0.3:
            events.append(span("inner", now + 0.01, 0.02, 1))
            events.append(span(chance.choice(("eval", "checkpoint", "mine")), now, 0.05))
            now += 0.05
        if late_spans and chance.random() < 0.1:
            events.append(span("epoch", long_from, now - long_from))
            long_from = now
    return [*events, wire.ProcessEnded(now + 0.1, {}, 0.0, 0, None)]


def told(*events: wire.Event) -> MetricsSnapshot:
    """What a run says of itself after three seconds."""
    run = LiveRun(0.0)
    run.add({"j": [started(), *events]})
    return run.take_snapshot(3.0)


def all_at_once(events: Iterable[wire.Event], wall_s: float | None, *, orderly: bool):
    return compute_account(fold([list(events)]), wall_s, orderly=orderly)


@pytest.mark.parametrize("seed", range(6))
def test_the_account_grows_to_that_of_all_events(seed: int, monkeypatch) -> None:
    """Told after every few events and settled on the way, to the nanosecond what the receipt says;
    few steps are kept."""
    monkeypatch.setattr(live_run, "UNSETTLED_STEPS", 10)
    events = history(seed, late_spans=False)
    run, process, reported, most = LiveRun(0.0), live_run.LiveProcess("x"), 0, 0
    for place in range(0, len(events), 3):
        process.add(events[place : place + 3])
        folded = fold([process.events])
        found = process.compute_account(folded, None, orderly=False)
        assert found == all_at_once(events[: place + 3], None, orderly=False)
        reported += found is not None
        most = max(most, len(process.steps))
    assert reported > 5
    assert process.settled is not None
    assert most < 60  # of 120
    run.add({"journal-1": events})
    last = run.take_snapshot(100.0, end=ExitInfo(7, 0, 9.5))
    whole = all_at_once(events, 9.5, orderly=True)
    assert last.goodput_s == (whole.goodput_ns or 0) / 1e9
    assert sum(last.badput_s.values()) + last.goodput_s == pytest.approx(9.5, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_a_span_that_reaches_back_is_never_reported_wrong(seed: int, monkeypatch) -> None:
    """A span that ends late covers steps that are settled: then there is no account."""
    monkeypatch.setattr(live_run, "UNSETTLED_STEPS", 10)
    events = history(seed, late_spans=True)
    process = live_run.LiveProcess("x")
    for place in range(0, len(events), 3):
        process.add(events[place : place + 3])
        found = process.compute_account(fold([process.events]), None, orderly=False)
        if found is None:
            assert process.account_lost or place == 0
        else:
            assert found == all_at_once(events[: place + 3], None, orderly=False)
    assert process.ended_steps >= 120


def test_a_late_span_and_a_late_compile_are_noticed(monkeypatch) -> None:
    """Each alone ends the account; steps and compiles are counted on."""
    monkeypatch.setattr(live_run, "UNSETTLED_STEPS", 5)
    ends = [1.0 + 0.1 * number for number in range(20)]
    for late in (span("epoch", 0.5, 2.4), compiled(2.9, 2.5, 1)):
        run = LiveRun(0.0)
        run.add({"j": [started(), compiled(0.9, 0.1), steps(0, ends, 0.1)]})
        assert run.take_snapshot(1.0).goodput_s == pytest.approx(2.0)
        run.add({"j": [late]})
        after = run.take_snapshot(2.0)
        assert (after.goodput_s, after.goodput, after.badput_s) == (None, None, {})
        assert (after.steps, after.compiles) == (20, 1 + isinstance(late, wire.Compiled))
        run.add({"j": [steps(20, [3.1], 0.1)]})
        assert run.take_snapshot(3.0).steps == 21


def test_settling_refuses_to_part_a_span() -> None:
    """Time is settled only where nothing lies across."""
    timeline = fold([[started(), steps(0, [1.0, 2.0], 1.0), span("eval", 1.5, 1.0)]])
    assert settle(timeline, 2_000_000_000) is None
    whole = fold([[started(), steps(0, [1.0, 2.0], 1.0), span("eval", 1.5, 0.25)]])
    done = settle(whole, 2_000_000_000)
    assert (done.goodput_ns, dict(done.charged_ns)) == (1_750_000_000, {"eval": 250_000_000})


def test_phases_of_compiling() -> None:
    """By name: one value a phase, however many compiles there are."""
    timed = replace(compiled(1.0, 0.5), phases=(("build_guards", 0.125),))
    assert told(timed).compile_phase_s == {"guards": 0.125, "other": 0.375}


def test_lost_records_leave_steps_and_goodput_out() -> None:
    """A count that may be too low stands beside the number of lost records; there is no time."""
    run = LiveRun(0.0)
    run.add({"j": [started(), compiled(0.9, 0.1), steps(0, [1.0, 2.0], 1.0)]})
    snapshot = run.take_snapshot(3.0, records_lost=2)
    assert (snapshot.compiles, snapshot.records_lost) == (1, 2)
    assert (snapshot.steps, snapshot.step_s, snapshot.goodput_s) == (None, None, None)


def test_the_lowest_rank_that_steps_is_reported() -> None:
    """Ranks work side by side: steps of one count, compiles of all; the mean is of new ones."""
    run = LiveRun(0.0)
    run.add(
        {
            "b": [started(rank=1), compiled(0.5, 0.1), steps(0, [1.0, 1.5, 2.0], 0.5)],
            "a": [started(rank=0, second=1), compiled(0.5, 0.1), steps(0, [1.0, 2.0], 1.0)],
        }
    )
    first = run.take_snapshot(3.0)
    assert (first.processes, first.compiles, first.steps, first.step_s) == (2, 2, 2, 1.0)
    assert run.take_snapshot(4.0).step_s is None
    run.add({"a": [steps(2, [2.25], 0.25)]})
    assert run.take_snapshot(5.0).step_s == 0.25


def test_labels_hold_no_secret_no_control_character_and_are_few() -> None:
    """Names that the program makes up are cleaned, share "other" beyond the limit, and add up."""
    labels = Labels(("eval",), ("hunter2hunter2",))
    assert labels.make_label("eval") == "eval"
    assert labels.make_label("my eval\x1b[31m\n") == "my_eval_31m_"
    assert "hunter2" not in labels.make_label("run-hunter2hunter2")
    made = {labels.make_label(f"epoch {number}") for number in range(100)}
    assert len(made) == MAX_OWN_NAMES - 2 + 1
    assert OTHER in made
    assert labels.sum_by_label({"a b c": 1.0, "zz": 2.0, "eval": 4.0}) == {OTHER: 3.0, "eval": 4.0}


def test_tracked_metrics_that_would_share_a_label_are_left_out() -> None:
    """A gauge of several things at once means nothing; what is not finite has no value."""
    metrics = [wire.TrackedMetric(f"m{number}", 1, last=float(number)) for number in range(40)]
    metrics.append(wire.TrackedMetric("none", 0))
    ran = wire.RunTracked(
        1.0, 1, "valid", {}, "running", 3, 0, 2, 1.0, 1.0,
        per_s={"tokens": float("inf")}, metrics=tuple(metrics),
    )  # fmt: skip
    found = told(ran)
    assert found.tracked == {("valid", f"m{n}"): float(n) for n in range(MAX_OWN_NAMES)}
    assert found.tracked_per_s == {}


def test_what_is_not_known_is_not_reported() -> None:
    """No zero stands for a metric that was not measured; names are unique and documented."""
    names = {point.metric.name for point in iterate_points(MetricsSnapshot(1.0, 0.0))}
    assert "compilediag.steps" not in names
    assert "compilediag.goodput" not in names
    assert {"compilediag.recompiles", "compilediag.run.active"} <= names
    assert len({metric.prometheus for metric in METRICS}) == len(METRICS)


def test_every_metric_stands_in_its_page() -> None:
    """docs/reference/telemetry.md names each metric as both sides do: unit, kind, meaning."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "telemetry.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    for metric in METRICS:
        labels = "".join(f" `{{{label}}}`" for label in metric.labels)
        wanted = (
            f"| `{metric.name}`{labels} | `{metric.prometheus}` | {metric.unit} | {metric.kind} "
            f"| {metric.description} |"
        )
        assert wanted in rows
