"""The phases of the compiles in progress, one stack in each thread."""

from __future__ import annotations

import threading

from compilediag_harness.wire.phase_stack import PhaseStack, TimedPhases


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.stack = PhaseStack()


class PhaseTimes:
    """How long each phase of a compile took, without the phases within it."""

    def __init__(self) -> None:
        self.seen = False
        """Whether torch's timing reaches `began` and `ended`."""
        self._thread = _OfThread()

    def began(self, name: str, at_ns: int) -> None:
        """A phase begins in this thread."""
        self._thread.stack.began(name, at_ns)

    def ended(self, name: str, at_ns: int) -> None:
        """The innermost phase of this name ends in this thread."""
        self._thread.stack.ended(name, at_ns)

    def leave_out(self, seconds: float) -> None:
        """Time of our own, within the phases that are open: it is no phase's."""
        self._thread.stack.leave_out(seconds)

    def take(self) -> TimedPhases | None:
        """The phases of the compile whose row torch writes now in this thread; None where they are
        not seen."""
        return self._thread.stack.take() if self.seen else None
