"""`cd.pipeline`: blocks, threads, tasks, the progress line, and nothing without a session."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from pipeline_pieces import Listening, blocks, listening_to_pipelines

from compilediag_harness.base.session import Session
from compilediag_harness.extensions import pipeline as module
from compilediag_harness.extensions.pipeline import Pipeline, pipeline
from compilediag_harness.user_api import spans
from compilediag_harness.wire import PipelineWorked, SpansEnded


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the test sets it."""
    now = [0.0]
    monkeypatch.setattr(module, "_monotonic", lambda: now[0])
    return now


@pytest.fixture
def listening(clock: list[float]) -> Iterator[Listening]:
    with listening_to_pipelines() as listening:
        yield listening


def use(loop: Pipeline) -> None:
    """One round of everything."""
    with loop.dispatch_wait():
        pass
    with loop.infer(slot=1, samples=2) as call:
        call.samples = 3
    with loop.train(samples=4):
        pass
    loop.pool(5)


def calls_of(action: Callable[[], object]) -> list[str]:
    """Names of the Python functions that run, our own and torch's."""
    seen: list[str] = []

    def note(frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return seen


def test_nothing_happens_without_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock is read, no block made, nothing added, no event, no thread, and `line` is empty."""
    loop = pipeline("rollout", slots=2)
    for owner, name in (
        *((module, "_monotonic"), (module._Batches, "add"), (module, "Measured")),
        *((spans.span, "__enter__"), (threading.Thread, "start")),
    ):
        monkeypatch.setattr(owner, name, lambda *_: pytest.fail("something is measured"))
    made = calls_of(lambda: use(loop))
    ours = {
        "train",
        "infer",
        "dispatch_wait",
        "pool",
        "samples",
        "parse_count",
        "__enter__",
        "__exit__",
    }
    assert set(made) <= {"<lambda>", "use", "is_compiling", "is_scripting", "_return_false", *ours}
    assert len(made) <= 25, (
        "4 calls, 3 blocks entered and left, 4 numbers checked, and torch's flag"
    )
    assert loop.line() == ""
    assert loop.train() is loop.train() is loop.infer() is loop.dispatch_wait()


def test_stretches_are_told(listening: Listening, clock: list[float]) -> None:
    """With their times, samples and slots; samples may be known only at the end."""
    session, events = listening
    loop = pipeline("rollout", slots=2)
    with loop.dispatch_wait():
        clock[0] = 1.0
    with loop.infer("engine a", samples=2) as call:
        clock[0] = 3.0
        call.samples = 6
    with loop.infer("engine b"):
        clock[0] = 4.0
    with loop.train(samples=4):
        clock[0] = 4.5
    loop.pool(7)
    module.sinks.finish(session)
    assert blocks(events) == [
        ("wait", 0.0, 1.0, 0, -1),
        ("infer", 1.0, 2.0, 6, 0),
        ("infer", 3.0, 1.0, 1, 1),
        ("train", 4.0, 0.5, 4, -1),
    ]
    received = [event for event in events if isinstance(event, PipelineWorked)]
    assert {(event.name, event.slots) for event in received} == {("rollout", 2)}
    assert [size for event in received for size in event.pool_sizes] == [7]


def test_work_that_raises_is_no_work(listening: Listening) -> None:
    """A wait is a wait, however it ends."""
    session, events = listening
    loop = pipeline()
    for enter in (loop.train, loop.infer, loop.dispatch_wait):
        with pytest.raises(TimeoutError), enter():
            raise TimeoutError
    module.sinks.finish(session)
    assert [row[0] for row in blocks(events)] == ["wait"]


def test_a_wait_is_a_span(listening: Listening) -> None:
    """So goodput counts it as badput of that name."""
    session, events = listening
    spans.install(session)
    with pipeline().dispatch_wait():
        pass
    spans.finish(session)
    spans.uninstall(session)
    (batch,) = (event for event in events if isinstance(event, SpansEnded))
    assert batch.names == ("dispatch_wait",)


def test_tasks_and_threads_share_a_loop(listening: Listening) -> None:
    """Blocks that overlap in one thread, and in several, are all reported."""
    session, events = listening
    loop = pipeline()

    async def generate(barrier: asyncio.Event, arrived: list[int]) -> None:
        with loop.infer():
            arrived.append(1)
            if len(arrived) == 3:
                barrier.set()
            await barrier.wait()

    async def main() -> None:
        barrier = asyncio.Event()
        arrived: list[int] = []
        await asyncio.gather(*(generate(barrier, arrived) for _ in range(3)))

    asyncio.run(main())
    meet = threading.Barrier(3)

    def work() -> None:
        with loop.infer():
            meet.wait(timeout=60)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    module.sinks.finish(session)
    assert [row[0] for row in blocks(events)] == ["infer"] * 6


def test_a_signal_handler_may_measure_too(listening: Listening) -> None:
    """One that runs while a batch is written neither waits for ever nor loses anything."""
    session, events = listening
    loop = pipeline()
    writer = module.sinks.all[-1]
    lock = writer.lock
    with lock, loop.train():
        pass
    module.sinks.finish(session)
    assert len(blocks(events)) == 1


def test_the_line(listening: Listening, clock: list[float]) -> None:
    """The first example of the seed: training is starved, the pool is empty."""
    loop = pipeline("rollout", slots=1)
    assert loop.line() == ""
    for _ in range(2):
        with loop.infer(samples=8), loop.dispatch_wait():
            clock[0] += 1.0
        with loop.train(samples=8):
            clock[0] += 0.5
    loop.pool(0)
    assert loop.line() == "thru=5.3, I=8.0, T=16.0, wait=1.0s, pool=0"


def test_the_line_forgets(listening: Listening, clock: list[float]) -> None:
    """It covers the last ten seconds, so a loop that got slow shows it."""
    loop = pipeline()
    for wall_s in (0.5,) * 40 + (5.0, 5.0):
        with loop.train(samples=10):
            clock[0] += wall_s
    assert loop.line() == "thru=3.0, T=2.9"


def test_capacity_without_declared_slots(listening: Listening, clock: list[float]) -> None:
    """As many as were in use at one moment, or were named."""
    loop = pipeline()
    with loop.infer(samples=4), loop.infer(samples=4):
        clock[0] = 2.0
    assert loop.line() == "I=4.0"
    named = pipeline()
    for slot in range(3):
        with named.infer(slot, samples=4):
            clock[0] += 2.0
    assert named.line() == "I=6.0"


@pytest.mark.parametrize("installed", [False, True])
def test_bad_numbers_raise_with_and_without_a_session(installed: bool) -> None:
    """What a program does must not depend on whether it is observed."""
    session = Session(lambda _: None)
    if installed:
        module.sinks.install(session)
    try:
        loop = pipeline()
        with pytest.raises(TypeError, match="must be an integer, not a float"):
            loop.train(samples=1.5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="must be 0 or more, not -1"):
            loop.pool(-1)
        with pytest.raises(TypeError, match="unhashable"):
            loop.infer(slot=[])  # type: ignore[arg-type]
        with loop.infer() as call, pytest.raises(TypeError, match="not a str"):
            call.samples = "8"  # type: ignore[assignment]
        with pytest.raises(ValueError, match="slots must be 1 or more"):
            pipeline(slots=0)
    finally:
        module.sinks.uninstall(session)


def test_time_makes_a_batch(listening: Listening, clock: list[float]) -> None:
    """Rare blocks are written soon, so that a killed process has written them."""
    _, events = listening
    loop = pipeline()
    for end in (1.0, 2.0):
        with loop.train():
            clock[0] = end
    assert len(events) == 2
