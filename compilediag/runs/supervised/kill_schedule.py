"""The timetable that ends a child which does not end by itself; a pure function of the clock."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field


@dataclass(slots=True)
class KillSchedule:
    """Signals and the times at which they are due.

    Once begun it does not begin again: more Ctrl-C change nothing. A signal is due once.
    """

    grace_s: float
    _waiting: list[tuple[float, signal.Signals]] = field(
        default_factory=list[tuple[float, signal.Signals]]
    )
    begun: bool = False
    sent: list[signal.Signals] = field(default_factory=list[signal.Signals])

    def force(self, now: float) -> None:
        """The second Ctrl-C: TERM after two thirds of the grace, KILL after all of it."""
        self._begin(
            (now + self.grace_s * 2 / 3, signal.SIGTERM), (now + self.grace_s, signal.SIGKILL)
        )

    def again(self, since: float, now: float) -> signal.Signals:
        """What a process is sent that has lost the Ctrl-C of `since`, in the same thirds."""
        share = (now - since) / self.grace_s
        if share < 2 / 3:
            return signal.SIGINT
        return signal.SIGTERM if share < 1 else signal.SIGKILL

    def expire(self, now: float) -> None:
        """The time limit was reached: TERM at once, KILL after the grace."""
        self._begin((now, signal.SIGTERM), (now + self.grace_s, signal.SIGKILL))

    def _begin(self, *stages: tuple[float, signal.Signals]) -> None:
        if not self.begun:
            self.begun = True
            self._waiting = list(stages)

    def due(self, now: float) -> list[signal.Signals]:
        """The signals to send now."""
        ready = [signum for at, signum in self._waiting if at <= now]
        self._waiting = self._waiting[len(ready) :]
        self.sent += ready
        return ready

    @property
    def next_at(self) -> float | None:
        """When something is due next; None when nothing waits."""
        return self._waiting[0][0] if self._waiting else None
