"""Spans: nesting, threads, batches, and nothing without a session."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from compilediag.timeline.process import unpack_batches
from compilediag_harness.base.session import BATCH_ROWS, Session
from compilediag_harness.user_api import spans
from compilediag_harness.user_api.spans import (
    DATA_WAIT,
    FORWARD,
    HOLDS_PHASES,
    MAIN_THREAD,
    SPANS,
    SpanRow,
    span,
)
from compilediag_harness.wire import Event, SpanEnded, SpansEnded


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the test sets it."""
    now = [0.0]
    monkeypatch.setattr(spans, "_monotonic_ns", lambda: round(now[0] * 1e9))
    monkeypatch.setattr(spans, "_due_ns", spans.BATCH_NS)
    return now


@pytest.fixture
def listening(clock: list[float]) -> Iterator[tuple[Session, list[Event]]]:
    """A session that writes spans."""
    events: list[Event] = []
    session = Session(events.append, origin=0.0)
    spans.install(session)
    yield session, events
    spans.uninstall(session)


def spans_in(events: list[Event]) -> list[SpanEnded]:
    """The spans of the batches, in the order they ended."""
    found = [event for event in unpack_batches(events) if isinstance(event, SpanEnded)]
    assert not any(isinstance(event, SpanEnded) for event in events)
    return found


def rows(events: list[Event]) -> list[tuple[str, float, float, int, int]]:
    found = spans_in(events)
    return [(one.name, one.start, one.wall_s, one.depth, one.step) for one in found]


def test_nothing_is_kept_without_a_session(clock: list[float]) -> None:
    """Without a session a span leaves no trace, also when one begins inside it."""
    with span("alone"):
        clock[0] = 1.0
        events: list[Event] = []
        session = Session(events.append, origin=0.0)
        spans.install(session)
    spans.finish(session)
    spans.uninstall(session)
    assert events == []


def test_a_handle_can_be_used_again_and_inside_itself(listening, clock) -> None:
    """One handle, made once, serves a whole program."""
    session, events = listening
    handle = span("again")
    with handle:
        clock[0] = 1.0
        with handle:
            clock[0] = 2.0
    with handle:
        clock[0] = 5.0
    spans.finish(session)
    assert [row[1:4] for row in rows(events)] == [(1.0, 1.0, 1), (0.0, 2.0, 0), (2.0, 3.0, 0)]


def test_a_decorated_function_is_a_span(listening, clock) -> None:
    """The function keeps its name, its result and its exceptions; the span ends with both."""
    session, events = listening

    @span("eval")
    def evaluate(value: int) -> int:
        clock[0] += 1.0
        if value < 0:
            raise KeyError(value)
        return value + 1

    assert evaluate(1) == 2
    with pytest.raises(KeyError):
        evaluate(-1)
    assert evaluate.__name__ == "evaluate"
    spans.finish(session)
    assert [row[:3] for row in rows(events)] == [("eval", 0.0, 1.0), ("eval", 1.0, 1.0)]


def test_threads_are_kept_apart(listening: tuple[Session, list[Event]]) -> None:
    """A span of another thread is not nested in the main thread's, and names its thread."""
    session, events = listening
    with span("main"):
        other = threading.Thread(target=lambda: span("other").__enter__().__exit__())
        other.start()
        other.join()
    spans.finish(session)
    found = {one.name: one for one in spans_in(events)}
    assert found["other"].depth == found["main"].depth == 0
    assert found["main"].thread == MAIN_THREAD != found["other"].thread


def test_spans_that_end_out_of_order_are_told(listening, clock) -> None:
    """Generators can close an outer span first."""
    session, events = listening
    first, second = span("first"), span("second")
    first.__enter__()
    second.__enter__()
    clock[0] = 1.0
    first.__exit__()
    second.__exit__()
    spans.finish(session)
    assert [row[0] for row in rows(events)] == ["first", "second"]


def test_memory_is_bounded(listening: tuple[Session, list[Event]], clock: list[float]) -> None:
    """However many spans end within a quarter of a second, a full batch is written."""
    _, events = listening
    clock[0] = 1.0
    for _ in range(BATCH_ROWS + 1):
        with span("flood"):
            pass
    assert [len(spans_in([event])) for event in events] == [1, BATCH_ROWS]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("metrics", SPANS),
        ("forward", FORWARD),
        ("dataloader", DATA_WAIT),
        ("train_step", HOLDS_PHASES),
    ],
)
def test_spans_are_told_to_the_steps(clock, monkeypatch, name, phase) -> None:
    """A span has the phase of its name, and carries the phase of the step it was in."""
    heard: list[tuple[int, int, int, int]] = []
    events: list[Event] = []

    def place(rows: Sequence[SpanRow], ending: bool) -> list[str]:
        heard.extend((row[2].phase, row[0], row[1], row[4]) for row in rows)
        return ["backward"] * len(rows)

    monkeypatch.setattr(spans, "_attribute", spans._attribute)
    session = Session(events.append, origin=0.0)
    spans.install(session, place)
    with span(name):
        clock[0] = 2.0
    spans.finish(session)
    spans.uninstall(session)
    assert heard == [(phase, 0, 2_000_000_000, threading.get_ident())]
    assert [one.phase for one in spans_in(events)] == ["backward"]


def test_spans_of_a_thread_that_steps_wait_for_it(listening, monkeypatch) -> None:
    """Only that thread decides its step; those of others go by. At the end all are written."""
    session, events = listening
    stepping = threading.get_ident()

    def place(rows: Sequence[SpanRow], ending: bool) -> list[str | None]:
        mine = threading.get_ident() == stepping or ending
        return ["forward" if mine else None if row[4] == stepping else "" for row in rows]

    monkeypatch.setattr(spans, "_attribute", place)
    with span("mine"):
        pass
    other = threading.Thread(target=lambda: [span("other").__enter__().__exit__(), write()])
    write = lambda: spans._write(1)  # pyright: ignore[reportPrivateUsage]
    other.start()
    other.join()
    assert [one.name for one in spans_in(events)] == ["other"]
    spans.assign_ended_spans()
    session.step = 1
    spans.finish(session)
    assert [(one.name, one.phase, one.step) for one in spans_in(events)][1:] == [
        ("mine", "forward", 0)
    ]


def test_a_span_belongs_to_the_step_that_is_ended_next(listening) -> None:
    """`assign_ended_spans` comes before the end of the step, however late the spans are written."""
    session, events = listening
    for step in range(3):
        session.step = step
        with span("work"):
            pass
        spans.assign_ended_spans()
    assert spans_in(events) == []
    spans.finish(session)
    assert [one.step for one in spans_in(events)] == [0, 1, 2]


def test_what_spans_have_in_common_is_written_once(listening, clock) -> None:
    """A thousand spans of one name are one kind of span."""
    session, events = listening
    handle = span("again")
    for _ in range(1000):
        with handle:
            clock[0] += 1e-4
    spans.finish(session)
    assert all(isinstance(event, SpansEnded) and len(event.names) == 1 for event in events)
    assert sum(one.wall_s for one in spans_in(events)) == pytest.approx(0.1)
    assert len(spans_in(events)) == 1000


def test_a_fork_tells_no_span_of_its_parent(listening: tuple[Session, list[Event]]) -> None:
    """What was not written when the process forked is written by the parent."""
    session, events = listening
    with span("parent's"):
        pass
    spans.handle_fork()
    with span("child's"):
        pass
    spans.finish(session)
    assert [one.name for one in spans_in(events)] == ["child's"]


def test_open_spans_are_known(listening: tuple[Session, list[Event]]) -> None:
    """By name, outermost first, in their own thread."""
    with span("outer"), span("inner"):
        assert spans.list_open_spans() == ("outer", "inner")
    assert spans.list_open_spans() == ()


def test_two_sessions_see_the_same_spans(listening, clock) -> None:
    """`watch()` inside a run: both receive it."""
    _, events = listening
    inner_events: list[Event] = []
    inner = Session(inner_events.append, origin=0.0)
    spans.install(inner)
    clock[0] = 1.0
    with span("both"):
        pass
    spans.finish(inner)
    spans.uninstall(inner)
    clock[0] = 2.0
    with span("one"):
        pass
    assert [row[0] for row in rows(inner_events)] == ["both"]
    assert [row[0] for row in rows(events)] == ["both", "one"]


def test_nested_spans_know_their_depth(listening, clock) -> None:
    """The inner one ends first; both have the step in which they end."""
    session, events = listening
    session.step = 7
    with span("outer"):
        clock[0] = 1.0
        with span("inner"):
            clock[0] = 3.0
        clock[0] = 4.0
    spans.finish(session)
    assert rows(events) == [("inner", 1.0, 2.0, 1, 7), ("outer", 0.0, 4.0, 0, 7)]
