"""How a supervised run ended, built by hand: what the child left, and its exit."""

from typing import Any

from compilediag.readers.journal import ProcessJournal
from compilediag.runs.supervised.child import ExitInfo
from compilediag_harness.wire import ProcessEnded, ProcessStarted


def journal(
    pid: int, failure: str | None, t: float = 1.0, start: str = "00", began: float = 0.0
) -> ProcessJournal:
    started = ProcessStarted(
        began, 1, pid, 1, None, None, (), "/env/python", "/", f"2026-01-01T00:00:{start}Z", "3.11"
    )
    return ProcessJournal(str(pid), (started, ProcessEnded(t, {}, 0.0, 0, None, failure)))


def ended(returncode: int, **more: Any) -> ExitInfo:
    return ExitInfo(pid=10, returncode=returncode, wall_s=1.0, **more)
