"""Synchronisations against live torch: what is counted, and that nothing of torch notices."""

import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attached import attached

from compilediag.timeline.timeline import fold
from compilediag_harness.base.session import Session
from compilediag_harness.blame.writes_in_source import find_loop_line
from compilediag_harness.collectors import syncs, tensor_reads
from compilediag_harness.steps import steps
from compilediag_harness.torch_internals import torch_calls, torch_guards
from compilediag_harness.trials.sampled_values import ValueSampler
from compilediag_harness.user_api import spans
from compilediag_harness.wire import Event, FaultOccurred, SyncsSampled

pytestmark = [pytest.mark.filterwarnings("ignore")]

QUIET = syncs.QUIET_STEPS
"""Calls of `step()` after which the next step is sampled."""


@contextmanager
def observed() -> Iterator[list[Event]]:
    """The collectors around a block; the events are complete after it."""
    events: list[Event] = []
    session = Session(events.append)
    with attached(session):
        yield events
    assert not [event for event in events if isinstance(event, FaultOccurred)]


def warm_up() -> None:
    for _ in range(QUIET):
        steps.step()


def sampled(work: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """(kind, line below the first of `work`) to (count, loop line) of one sampled step."""
    with observed() as events:
        warm_up()
        work()
        steps.step()
    told = [event for event in events if isinstance(event, SyncsSampled)]
    assert told
    assert not tensor_reads.list_patched_methods(torch.Tensor)
    first, sample = work.__code__.co_firstlineno, told[-1]
    rows = zip(sample.places, sample.kinds, sample.counts, sample.loops, strict=True)
    return {
        (kind, place.line - first): (count, loop - first if loop else 0)
        for place, kind, count, loop in rows
    }


class Clock:
    """Goes on by as many seconds as it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


READS = ("item", "tolist", "cpu", "nonzero", "to", "__bool__", "__float__", "__int__", "__index__")


def test_reads_are_told_by_line_kind_and_loop() -> None:
    """Methods, type conversions and truth values, each where the program asks."""
    values = torch.rand(20)

    def work() -> None:
        for value in values:
            value.item()
            if value > 2:
                raise AssertionError
        float(values[0])
        int(values[0])
        values.nonzero()

    assert sampled(work) == {
        ("item", 2): (20, 1),
        ("bool", 3): (20, 1),
        ("float", 5): (1, 0),
        ("int", 6): (1, 0),
        ("nonzero", 7): (1, 0),
    }


def test_what_is_no_wait_is_not_counted() -> None:
    """Asking for a method, reading it off the class, moving to another device, an index of host
    tensors, and reading what has been moved to the host already."""
    values = torch.arange(8)

    def work() -> None:
        hasattr(values, "item")
        _ = values.item
        _ = torch.Tensor.item
        values.to(torch.float32)
        _ = list(range(10))[values[1]]
        moved = values.to("cpu")
        moved.tolist()
        moved[0].item()

    assert sampled(work) == {("to_cpu", 6): (1, 0)}


def test_reads_by_torch_are_the_users_only_where_they_are() -> None:
    """An f-string of a tensor is a read of the user's line; an optimizer reads its own state."""
    weights = torch.nn.Parameter(torch.rand(4))
    optimizer = torch.optim.Adam([weights], foreach=False)
    weights.grad = torch.rand(4)
    loss = torch.rand(())

    def work() -> None:
        _ = f"{loss:.2f}"
        optimizer.step()

    assert sampled(work) == {("item", 1): (1, 0)}


def test_reads_of_our_own_are_none_of_the_programs() -> None:
    reader, value = ValueSampler(torch), torch.randn(3)

    def work() -> None:
        reader.read_leaves([("states", value), ("more", torch.ones(2))], most=2, size=4)
        value.cpu()

    assert list(sampled(work).values()) == [(1, 0)]


def test_open_spans_are_told() -> None:
    """The names of the spans around a read, outermost first."""
    value = torch.rand(())
    with observed() as events:
        warm_up()
        with spans.span("outer"), spans.span("inner"):
            value.item()
        steps.step()
    (sample,) = fold([events]).syncs
    assert [site.spans for site in sample.sites] == [("outer", "inner")]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """In place of the clock of reads: nothing takes time but what says so."""
    clock = Clock()
    monkeypatch.setattr(tensor_reads, "_clock", clock)
    monkeypatch.setattr(tensor_reads, "_unread_s", 0.0)
    return clock


class Slow(torch.Tensor):
    """A tensor whose reads take so many seconds, and that reads another one while it is read."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        slow = args[0]
        if type(slow) is not Slow or not hasattr(slow, "takes"):
            return super().__torch_function__(func, types, args, kwargs)
        slow.clock.now += slow.takes
        if slow.other is not None:
            slow.other.item()
        return 1 if func is torch.Tensor.item else True


def slow(clock: Clock, takes: float, other: Any = None) -> Any:
    tensor = torch.ones(()).as_subclass(Slow)
    vars(tensor).update(clock=clock, takes=takes, other=other)
    return tensor


def test_the_seconds_of_a_read_are_those_of_the_call(clock: Clock) -> None:
    """By line, of methods and of truth values, whether the call returns or raises; not those of
    what comes between two reads, nor twice where one read is a part of another."""
    inner = slow(clock, 4.0)
    outer, quick = slow(clock, 8.0, inner), slow(clock, 1.0)
    with observed() as events:
        warm_up()
        for _ in range(3):
            quick.item()
            clock.now += 100.0
        if quick:
            outer.item()
        with pytest.raises(RuntimeError):
            torch.rand(2).item()
        steps.step()
    (told,) = (event for event in events if isinstance(event, SyncsSampled))
    assert told.seconds == (3.0, 1.0, 8.0, 4.0, 0.0)
    assert told.counts == (3, 1, 1, 1, 1)


def test_a_read_whose_begin_is_not_known_is_not_timed(clock: Clock) -> None:
    """Arguments that are computed between the look-up and the call, and a method that is kept:
    they are counted, and the step has no seconds, rather than wrong ones."""
    value = slow(clock, 1.0)

    def later() -> str:
        clock.now += 50.0
        return "cpu"

    def reads() -> None:
        value.nonzero(as_tuple=later() == "")

    def keeps() -> None:
        kept = value.__bool__
        clock.now += 50.0
        assert kept()

    for work in (reads, keeps):
        with observed() as events:
            warm_up()
            work()
            steps.step()
        (told,) = (event for event in events if isinstance(event, SyncsSampled))
        assert (sum(told.counts), told.seconds) == (1, ())


def test_functions_that_are_not_compiled_are_seen_inside_of_compiled_calls() -> None:
    """What a hook behind `torch.compiler.disable` reads is told, in the phase it runs in; nothing
    is compiled again for it, and torch's class is its own while a guard is evaluated."""
    compiled: list[int] = []
    met: list[str] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compiled.append(1)

        def run(*arguments: Any) -> Any:
            return graph.forward(*arguments)

        return run

    class Watched(torch.nn.Module):
        def __bool__(self) -> bool:
            met.extend(tensor_reads.list_patched_methods(torch.Tensor))
            return True

    flag = Watched()

    @torch.compiler.disable
    def metric(batch: Any) -> None:
        for value in batch:
            value.item()
        doubled(batch)

    @torch.compile(backend=backend)
    def doubled(batch: Any) -> Any:
        return batch * 2

    @torch.compile(backend=backend)
    def forward(batch: Any) -> Any:
        hidden = batch + 1
        metric(hidden)
        return hidden * 2 if flag else hidden

    torch._dynamo.reset()
    batch = torch.rand(8)
    forward(batch)
    before = len(compiled)
    with observed() as events:
        warm_up()
        forward(batch)
        steps.step()
    torch._dynamo.reset()
    (told,) = (event for event in events if isinstance(event, SyncsSampled))
    assert (told.kinds, told.counts, told.complete) == (("item",), (8,), True)
    assert list(told.noting_s) == ["forward"]
    assert len(told.seconds) == 1
    assert (len(compiled), met) == (before, [])
    assert not tensor_reads.list_patched_methods(torch.Tensor)


def test_a_probe_samples_where_its_groups_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of the period and three on each side, counted from the first one and from 0."""
    monkeypatch.setenv("COMPILEDIAG_OPTIONS", '{"sync_steps": [20, 15]}')
    with observed() as events:
        for _ in range(60):
            steps.step()
    told = [event.step for event in events if isinstance(event, SyncsSampled)]
    near = {place + beside for place in range(0, 60, 20) for beside in range(-3, 4)}
    near |= {place + beside for place in range(15, 60, 20) for beside in range(-3, 4)}
    assert told == sorted(step for step in near | {57, 58, 59} if QUIET <= step < 60)


def test_other_threads_are_left_alone() -> None:
    """Reads of a thread that is not the one whose steps are counted are not told."""
    value = torch.rand(())

    def work() -> None:
        thread = threading.Thread(target=value.item)
        thread.start()
        thread.join()

    assert sampled(work) == {}


def test_samples_thin_out() -> None:
    """The first are neighbours, then the distance doubles; nothing is in place in between."""
    in_place: list[int] = []
    with observed() as events:
        for number in range(40):
            if tensor_reads.list_patched_methods(torch.Tensor):
                in_place.append(number)
            steps.step()
    told = [event.step for event in events if isinstance(event, SyncsSampled)]
    assert told == in_place == [2, 3, 4, 7, 12, 21, 38]


def test_a_step_with_too_many_reads_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count stops at the budget, and says so."""
    monkeypatch.setattr(syncs.SyncSchedule, "max_reads", 8)
    value = torch.rand(())
    with observed() as events:
        warm_up()
        for _ in range(20):
            value.item()
        steps.step()
    (told,) = (event for event in events if isinstance(event, SyncsSampled))
    assert (told.counts, told.complete) == ((8,), False)


def test_a_fault_of_ours_is_told_and_the_sample_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that could not be noted reaches the program as it should, and no count misses it."""
    value = torch.rand(())

    def broken(*_: object) -> bool:
        raise OSError("ours")

    events: list[Event] = []
    session = Session(events.append)
    with attached(session):
        warm_up()
        monkeypatch.setattr(syncs.SyncSample, "_would_wait", broken)
        assert value.item() == float(value)
        steps.step()
    assert [item.where for item in events if isinstance(item, FaultOccurred)] == [
        "reads of tensors"
    ]
    assert not [item for item in events if isinstance(item, SyncsSampled)]


def test_the_class_is_changed_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that would need more windows than are left is not told: a part of it went by."""
    monkeypatch.setattr(syncs.SyncSchedule, "max_windows", 3)
    double = torch.compile(lambda x: x * 2, backend="eager")
    batch = torch.rand(4)
    double(batch)
    with observed() as events:
        warm_up()
        for _ in range(5):
            double(batch)
        steps.step()
        steps.step()
    assert not [event for event in events if isinstance(event, SyncsSampled)]


def test_no_compile_no_guard_and_no_graph_meets_us() -> None:
    """While anything compiled is called, in sampled steps too, torch.Tensor is torch's own."""
    met: list[str] = []
    checks = [0]

    def look() -> None:
        checks[0] += 1
        met.extend(name for name in READS if name in vars(torch.Tensor))

    def backend(graph: Any, _inputs: Any) -> Any:
        look()

        def run(*arguments: Any) -> Any:
            look()
            return graph.forward(*arguments)

        return run

    torch._dynamo.reset()
    double = torch.compile(lambda x: x * 2, backend=backend)
    with observed() as events:
        for number in range(12):
            # A new size in a sampled step: it recompiles there, and the step is not told.
            double(torch.rand(4 if number < 5 else 8))
            float(torch.rand(()))
            steps.step()
    torch._dynamo.reset()
    told = [event.step for event in events if isinstance(event, SyncsSampled)]
    assert met == []
    assert checks[0] == 14
    assert 5 not in told
    assert {3, 4} <= set(told)


def test_two_sessions_count_each_for_itself() -> None:
    """`watch()` in a supervised run: both see the step, and the class is clean at the end."""
    value = torch.rand(())
    with observed() as outer, observed() as inner:
        warm_up()
        value.item()
        steps.step()
    for events in (outer, inner):
        assert [event.counts for event in events if isinstance(event, SyncsSampled)] == [(1,)]
    assert not tensor_reads.list_patched_methods(torch.Tensor)


def test_tracebacks_and_warnings_are_those_of_a_plain_run() -> None:
    """No frame of ours is on the stack when torch's method runs."""
    told: list[str] = []

    def work() -> None:
        try:
            torch.rand(2).item()
        except RuntimeError as error:
            told.extend(frame.name for frame in traceback.extract_tb(error.__traceback__))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            float(torch.rand((), requires_grad=True))
            told.extend(Path(item.filename).name for item in caught)

    sampled(work)
    assert told[0] == "work"
    assert set(told) <= {"work", Path(__file__).name}


def test_methods_of_the_program_are_left_alone() -> None:
    """A method the program has put on torch.Tensor stays there."""
    own = lambda _: 7.0
    torch.Tensor.item = own
    try:
        listener = syncs.SyncSample(0, 8, lambda: "rest", on_device=False)
        tensor_reads.add_listener(torch.Tensor, listener)
        assert torch.rand(()).item() == 7.0
        tensor_reads.remove_listener(torch.Tensor, listener)
        assert vars(torch.Tensor)["item"] is own
    finally:
        del torch.Tensor.item


def test_nothing_is_sampled_where_calls_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a torch that does not tell when a compiled call ends, silence is safe."""
    monkeypatch.setattr(torch_calls, "can_see_compiled_calls", lambda: False)
    with observed() as events:
        warm_up()
        steps.step()
    assert not [event for event in events if isinstance(event, SyncsSampled)]


def test_on_a_device_only_its_tensors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """With CUDA in use a tensor on the host makes nobody wait."""
    sample = syncs.SyncSample(threading.get_ident(), 8, lambda: "rest", on_device=True)
    monkeypatch.setattr(torch_guards, "is_on_host", lambda tensor: tensor is not elsewhere)
    elsewhere = SimpleNamespace()
    frame = sys._getframe()
    sample.begin_read("item", SimpleNamespace(), frame)
    sample.begin_read("item", elsewhere, frame)
    assert sample.total == 1


def test_where_a_tensor_is_can_be_asked() -> None:
    """The contract with torch that the device mode rests on."""
    assert torch_guards.is_on_host(torch.rand(1)) is True
    assert torch_guards.is_on_host(torch.rand(1, device="meta")) is False


def test_loops_are_found_in_source() -> None:
    """The innermost one whose body holds the line; what is iterated over is read once."""

    def nested(rows: list[list[int]]) -> int:
        total = 0
        for row in sorted(rows):
            while total < 9:
                total += len(row)
            for one in row:
                total += one
        return total

    code = nested.__code__
    first = code.co_firstlineno
    found = [find_loop_line(code, first + offset) for offset in range(1, 8)]
    assert [line and line - first for line in found] == [None, None, 3, 3, 2, 5, None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_in_a_sampled_step_is_clean() -> None:
    """The child, such as a loader's worker, has torch's own class; the parent goes on sampling."""
    value = torch.rand(())
    with observed() as events:
        warm_up()
        child = os.fork()
        if child == 0:
            os._exit(len(tensor_reads.list_patched_methods(torch.Tensor)))
        _, status = os.waitpid(child, 0)
        value.item()
        steps.step()
    assert os.waitstatus_to_exitcode(status) == 0
    assert [event.counts for event in events if isinstance(event, SyncsSampled)] == [(1,)]
