"""`cd.pipeline`: blocks, threads, tasks, the progress line, and nothing without a session."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from compilediag_harness.base.session import Session
from compilediag_harness.extensions.pipeline import pipeline as module
from compilediag_harness.extensions.pipeline.pipeline import pipeline
from compilediag_harness.wire import Event

Listening = tuple[Session, list[Event]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the test sets it."""
    now = [0.0]
    monkeypatch.setattr(module, "_monotonic", lambda: now[0])
    return now


@pytest.fixture
def listening(clock: list[float]) -> Iterator[Listening]:
    """A session that receives pipelines."""
    events: list[Event] = []
    session = Session(events.append, origin=0.0)
    module.sinks.install(session)
    yield session, events
    module.sinks.uninstall(session)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_tells_nothing_twice(listening: Listening) -> None:
    """What the parent has not written yet is not the child's to write."""
    session, events = listening
    with pipeline().train():
        pass
    assert events == []
    pid = os.fork()
    if pid == 0:
        module.sinks.finish(session)
        os._exit(len(events))
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
