"""What the tests of the profiler share."""

from __future__ import annotations

from compilediag_harness.wire import Event, ProfileEnded


def told(events: list[Event]) -> list[tuple[int, int, bool, str | None]]:
    found = [event for event in events if isinstance(event, ProfileEnded)]
    return [(one.first_step, one.last_step, one.file is not None, one.problem) for one in found]
