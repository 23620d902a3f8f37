"""`cd.tracker`: figures of runs, with and without a session; what sessions receive; the file."""

import contextlib
import json
import math
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compilediag_harness.base.session import Session
from compilediag_harness.collectors import memory
from compilediag_harness.extensions.tracker import tracked_run
from compilediag_harness.extensions.tracker import tracker as module
from compilediag_harness.extensions.tracker.tracker import Tracker, tracker
from compilediag_harness.torch_internals import dynamo_skip
from compilediag_harness.wire import Event, RunTracked, TrackedRunsLeftOut

CONFIG = {"task": "copy", "shots": 5}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time, as the test sets it. Runs that a test leaves in progress go with it."""
    now = [100.0]
    monkeypatch.setattr(module, "_monotonic", lambda: now[0])
    yield now
    tracked_run._running.clear()


@contextlib.contextmanager
def session_of(events: list[Event], origin: float = 0.0) -> Iterator[None]:
    """A session that receives, until it ends."""
    session = Session(events.append, origin=origin)
    tracked_run.sinks.install(session)
    yield
    tracked_run.sinks.finish(session)
    tracked_run.sinks.uninstall(session)


@pytest.fixture
def received() -> Iterator[list[Event]]:
    """The events of a session."""
    events: list[Event] = []
    with session_of(events, 100.0):
        yield events


def runs(events: list[Event]) -> list[RunTracked]:
    """The records of tracked runs."""
    return [event for event in events if isinstance(event, RunTracked)]


def evaluate(lane: Tracker, clock: list[float], *losses: float) -> RunTracked:
    """One run whose steps take a second each."""
    lane.start_run()
    for step, loss in enumerate(losses):
        clock[0] += 1.0
        lane.record_step(step, {"loss": loss}, tokens=8, samples=2)
    clock[0] += 1.0
    return lane.finish_run()


def test_the_figures_of_a_run(clock: list[float]) -> None:
    """Mean, median, smallest and largest of every metric, sums and rates of what was counted."""
    found = evaluate(tracker(CONFIG, name="eval/copy"), clock, 4.0, 1.0, 2.0)
    assert (found.name, found.config, found.state) == ("eval/copy", CONFIG, "finished")
    assert (found.steps, found.first_step, found.last_step) == (3, 0, 2)
    assert (found.wall_s, found.steps_s) == (4.0, 3.0)
    step_s, loss = found.metrics
    assert (step_s.name, step_s.count, step_s.mean) == ("step_s", 3, 1.0)
    assert (loss.mean, loss.median, loss.min, loss.max, loss.last) == (7 / 3, 2.0, 1.0, 4.0, 2.0)
    assert (found.totals, found.per_s) == (
        {"tokens": 24.0, "samples": 6.0},
        {"tokens": 8.0, "samples": 2.0},
    )


def test_a_warm_up_is_in_no_rate(clock: list[float]) -> None:
    """The seconds of the first steps, which compile, and what was counted in them are left out of
    rates and step times; their losses count."""
    lane = tracker(CONFIG, warmup=1).start_run()
    clock[0] += 50.0
    lane.record_step(0, {"loss": 4.0}, tokens=100)
    for step in (1, 2):
        clock[0] += 2.0
        lane.record_step(step, {"loss": 1.0}, tokens=10)
    found = lane.finish_run()
    assert (found.per_s, found.totals) == ({"tokens": 5.0}, {"tokens": 120.0})
    assert [(item.name, item.count, item.mean) for item in found.metrics] == [
        ("step_s", 2, 2.0),
        ("loss", 3, 2.0),
    ]
    assert (found.steps_s, found.warmup) == (4.0, 1)


def test_a_run_that_is_all_warm_up(clock: list[float]) -> None:
    """There is no rate, and no step time, rather than one of the warm-up."""
    lane = tracker(warmup=5)
    found = evaluate(lane, clock, 1.0, 2.0)
    assert (found.per_s, found.steps_s, found.metrics[0].mean) == ({}, 0.0, None)


def test_what_is_not_measured_is_no_zero(clock: list[float]) -> None:
    """None leaves a metric of this step out; NaN is counted; a run without steps has no figures."""
    lane = tracker().start_run()
    for value in (None, 2.0, math.nan):
        clock[0] += 1.0
        lane.record_step(0, {"accuracy": value}, tokens=None)  # type: ignore[arg-type]
    accuracy = lane.finish_run().metrics[1]
    assert (accuracy.count, accuracy.mean, accuracy.not_finite) == (1, 2.0, 1)
    empty = tracker().start_run().finish_run()
    assert (empty.steps, empty.first_step, empty.per_s) == (0, None, {})


def test_what_is_no_number_is_refused() -> None:
    """Everywhere, so that it shows at the first step; nothing of the step is recorded then. That a
    tensor is not read: test_to_jsonable.py."""
    lane = tracker().start_run()
    odd: Any = object()
    for refused in (
        lambda: lane.record_step(odd),
        lambda: lane.record_step(0, {"a": 1.0, "loss": odd}),
        lambda: lane.record_step(0, {"a": 1.0}, tokens=odd),
    ):
        with pytest.raises(TypeError, match=r"must be an? (integer|number)"):
            refused()
    assert lane.finish_run().steps == 0


@pytest.mark.parametrize("count", [-1, math.inf, math.nan])
def test_counts_are_sums(count: float) -> None:
    """A count that would make the sum worthless is refused."""
    lane = tracker().start_run()
    with pytest.raises(ValueError, match="tokens must be 0 or more and finite"):
        lane.record_step(0, tokens=count)


def test_the_order_of_calls() -> None:
    """Runs are begun before they are recorded, ended before the next, and each message states what
    to call."""
    lane = tracker(name="eval/x")
    with pytest.raises(RuntimeError, match=r"tracker\('eval/x'\): no run .*start_run\(\)"):
        lane.record_step(0)
    with pytest.raises(RuntimeError, match="no run is in progress"):
        lane.finish_run()
    lane.start_run()
    with pytest.raises(RuntimeError, match=r"a run is in progress; finish_run\(\)"):
        lane.start_run()


def test_each_run_may_say_more() -> None:
    """A run's own configuration stands beside the tracker's, and changes it for that run only."""
    lane = tracker({"shots": 5, "task": "a"})
    first = lane.start_run("eval/b", {"task": "b"}).finish_run()
    second = lane.start_run().finish_run()
    assert (first.name, first.config) == ("eval/b", {"shots": 5, "task": "b"})
    assert (second.name, second.config) == ("eval", {"shots": 5, "task": "a"})


def test_as_a_block(received: list[Event]) -> None:
    """The block is the run; an exception passes, and the run is marked as failed."""
    with tracker() as lane:
        lane.record_step(0)
    with pytest.raises(ZeroDivisionError), lane:
        1 / 0  # noqa: B018
    with lane:
        lane.finish_run()
    assert [run.state for run in runs(received)] == ["finished", "failed", "finished"]


def test_names_without_end() -> None:
    """A program that makes up names does not fill its memory; what is left out is counted."""
    lane = tracker().start_run()
    most = tracked_run.MAX_NAMES
    for number in range(most + 3):
        lane.record_step(number, {f"m{number}": 1.0}, **{f"c{number}": 1.0})
    found = lane.finish_run()
    assert (len(found.metrics), len(found.totals)) == (most + 1, most)
    assert found.left_out == 6


def test_sessions_receive_runs(received: list[Event], clock: list[float]) -> None:
    """At the end, in full, at the session's times."""
    ended = evaluate(tracker(CONFIG), clock, 1.0, 3.0)
    (found,) = runs(received)
    assert (found.t, ended.t) == (3.0, 103.0)
    assert (found.metrics, found.config) == (ended.metrics, CONFIG)


def test_runs_in_progress_are_reported(received: list[Event], clock: list[float]) -> None:
    """Every ten seconds, for programs that are killed; without the median, which is for the end;
    always under the same number."""
    lane = tracker().start_run()
    for step in range(25):
        clock[0] += 1.0
        lane.record_step(step, {"loss": 1.0})
    passing = runs(received)
    assert [(run.state, run.steps, run.metrics[1].median) for run in passing] == [
        ("running", 10, None),
        ("running", 20, None),
    ]
    lane.finish_run()
    assert len({run.number for run in runs(received)}) == 1


def test_a_run_in_progress_when_the_process_ends(clock: list[float]) -> None:
    """It is reported as it is, median included, and as not finished."""
    events: list[Event] = []
    with session_of(events):
        lane = tracker().start_run()
        lane.record_step(0, {"loss": 1.0})
    (found,) = [run for run in runs(events) if run.steps]
    assert (found.state, found.metrics[1].median) == ("running", 1.0)
    lane.finish_run()
    assert len([run for run in runs(events) if run.steps]) == 1, "there is no session any more"


def test_without_a_session(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    """The figures are the same, no thread is started and nothing is written."""
    monkeypatch.setattr(threading.Thread, "start", lambda *_: pytest.fail("a thread"))
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("a file"))
    assert evaluate(tracker(), clock, 1.0, 3.0).metrics[1].mean == 2.0


def test_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the tracker nor the session keeps more than so many; the session receives how many
    were left out."""
    monkeypatch.setattr(tracked_run, "MAX_RUNS", 3)
    events: list[Event] = []
    lane = tracker()
    with session_of(events):
        for _ in range(5):
            lane.start_run().finish_run()
    mine = [run for run in runs(events) if run.state == "finished"]
    assert len(mine) == 3
    assert [event.count for event in events if isinstance(event, TrackedRunsLeftOut)] == [2]


def test_a_fault_of_ours_is_not_the_program_s(received: list[Event], monkeypatch) -> None:
    """The run ends as it would have, and the fault is written down."""

    def broken(*_: object, **__: object) -> RunTracked:
        raise ValueError("no")

    monkeypatch.setattr(tracked_run, "replace", broken)
    assert tracker().start_run().finish_run().state == "finished"
    assert [type(event).__name__ for event in received] == ["FaultOccurred"]


def test_the_file(tmp_path: Path, clock: list[float]) -> None:
    """Every run with its figures under names, a version, and nothing that only sessions know."""
    lane = tracker(CONFIG)
    evaluate(lane, clock, 1.0, 3.0)
    evaluate(lane, clock, math.nan)
    path = tmp_path / "evals" / "tracker.json"
    assert lane.to_json(path) == str(path)
    document = json.loads(path.read_text())
    assert (document["schema"], document["schema_version"]) == ("compilediag.tracker", "1.0")
    first, second = document["runs"]
    assert first["metrics"]["loss"] == {
        **dict.fromkeys(("mean", "median"), 2.0),
        **dict.fromkeys(("max", "last"), 3.0),
        **dict.fromkeys(("count", "median_of"), 2),
        "min": 1.0,
        "not_finite": 0,
    }
    assert (first["config"], first["per_s"]["tokens"]) == (CONFIG, 8.0)
    assert second["metrics"]["loss"]["mean"] is None
    assert not {"t", "number"} & set(first)


def test_threads(clock: list[float]) -> None:
    """Steps that several threads record are all there."""
    lane = tracker().start_run()

    def record() -> None:
        for step in range(500):
            lane.record_step(step, {"loss": 1.0}, tokens=1)

    threads = [threading.Thread(target=record) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = lane.finish_run()
    assert (found.steps, found.totals, found.metrics[1].count) == (2000, {"tokens": 2000.0}, 2000)


def test_compiled_code_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While Dynamo traces it, a tracker does nothing at all."""
    lane = tracker().start_run()
    monkeypatch.setattr(dynamo_skip, "is_compiling", lambda: True)
    lane.record_step(-5, {"loss": "no number"})  # type: ignore[dict-item]
    lane.start_run()
    monkeypatch.undo()
    assert lane.finish_run().steps == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_peak_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From /proc where it is there, else from getrusage, else not measured; never zero."""
    status = tmp_path / "status"
    monkeypatch.setattr(memory, "STATUS", str(status))
    status.write_text("Name:\tx\nVmHWM:\t  1234 kB\nVmRSS:\t  99 kB\n")
    assert memory.read_peak() == (1234 * 1024, "VmHWM")
    for content in ("Name:\tx\n", "VmHWM:\n", "VmHWM:\tmany kB\n"):
        status.write_text(content)
        peak, source = memory.read_peak()
        assert source == "getrusage"
        assert peak > 1 << 20
    status.unlink()
    assert memory.read_peak()[1] == "getrusage"
    monkeypatch.setitem(sys.modules, "resource", None)
    assert memory.read_peak() == (None, None)


def test_the_peak_of_a_run_is_told_against_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process keeps the peak of whatever came before: both readings are there."""
    peaks = iter([(100, "VmHWM"), (150, "VmHWM")])
    monkeypatch.setattr(memory, "read_peak", lambda: next(peaks))
    found = tracker().start_run().finish_run()
    assert (found.peak_at_start_bytes, found.peak_bytes, found.peak_source) == (100, 150, "VmHWM")
