"""A tracked run and a fork of its process."""

from __future__ import annotations

import os
import signal
import threading

from compilediag_harness.base.session import Session
from compilediag_harness.extensions.tracker import tracked_run
from compilediag_harness.extensions.tracker.tracker import tracker
from compilediag_harness.wire import Event, RunTracked


def test_a_fork_does_not_tell_of_its_parent_s_run() -> None:
    """A child that ends reports no run that goes on elsewhere, and holds no lock of a thread
    that it does not have."""
    lane = tracker().start_run()
    lane.record_step(0)
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with lane._lock:
            held.set()
            free.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        events: list[Event] = []
        session = Session(events.append)
        tracked_run.sinks.install(session)
        tracked_run.sinks.finish(session)
        lane.record_step(1)
        os._exit(len([event for event in events if isinstance(event, RunTracked)]))
    free.set()
    holder.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert lane.finish_run().steps == 1
