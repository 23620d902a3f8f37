"""The end of a target that is interrupted: it takes its time after a Ctrl-C, but where torch has
lost that, and after a second one; and the timetable that ends what does not end by itself."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from compilediag.readers.journal import JournalTail
from compilediag.runs.supervised.signals import ProcessTree
from compilediag_harness.wire import InterruptLost


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


POLL_S = 0.25
MAX_FILES = 64

_PID = re.compile(r"journal-(\d+)-")


class Sighting(NamedTuple):
    """A process was seen in its loop after an interrupt."""

    pid: int
    at: float
    """On the monotonic clock of the machine."""
    certain: bool
    """Nothing of the program can have caught it."""


class LostInterrupts:
    """Follows the journals of a run from now on."""

    def __init__(self, run_dir: str) -> None:
        self._journals = JournalTail(run_dir, MAX_FILES, from_end=True)
        self._journals.poll()

    def poll(self) -> Iterator[Sighting]:
        """The sightings since the last call."""
        for name, events in self._journals.poll().items():
            found = _PID.match(name)
            for event in events:
                if isinstance(event, InterruptLost) and found is not None:
                    yield Sighting(int(found[1]), event.monotonic_s, event.certain)


PATIENT_S = 2.0
"""Seconds after which the user is told what is being waited for."""

WAITING = (
    "Ctrl-C has reached the program, which may take its time to end; a second one ends it by force "
    "within {grace:g} s (--grace)"
)
FORCED = "the second Ctrl-C: SIGTERM in {term:.1f} s, SIGKILL in {grace:g} s, if it has not ended"
LOST = "torch has lost the Ctrl-C in a compiled call: {signal} is sent to process {pid}"
GOES_ON = (
    "the program goes on in its loop: it handles Ctrl-C by itself, or torch has lost it in a "
    "compiled call; the next one is passed on as if it were the first"
)


class Interrupts:
    """The Ctrl-C of one run."""

    def __init__(
        self,
        schedule: KillSchedule,
        tree: ProcessTree,
        run_dir: str | None,
        notify: Callable[[str], None],
    ) -> None:
        self._schedule = schedule
        self._tree = tree
        self._run_dir = run_dir
        self._notify = notify
        self._journals: LostInterrupts | None = None
        self._first_at: float | None = None
        """When the Ctrl-C came that the target is given its time for."""
        self._said = False
        self._acted_at = float("-inf")
        self.count = 0
        self.lost = False
        self.sent: list[signal.Signals] = []
        """What was sent to processes that had lost it."""
        self.look_at: float | None = None
        """When to look next; None: only at a signal."""

    def received(self, now: float) -> None:
        """A Ctrl-C came; the target has received it by now."""
        self.count += 1
        if self._first_at is None:
            self._first_at = self.look_at = now
            if self._journals is None and self._run_dir is not None:
                self._journals = LostInterrupts(self._run_dir)
        elif not self._schedule.begun:
            grace = self._schedule.grace_s
            self._notify(FORCED.format(term=grace * 2 / 3, grace=grace))
            self._tree.record()
            self._schedule.force(now)

    def look(self, now: float) -> None:
        """Looks for a process that has lost the Ctrl-C."""
        if self.look_at is None or now < self.look_at:
            return
        self.look_at = None if self._schedule.begun else now + POLL_S
        for sighting in self._journals.poll() if self._journals is not None else ():
            if sighting.at > self._acted_at and not self._schedule.begun:
                self._seen(sighting, now)
        if self._first_at is not None and not self._said and now - self._first_at >= PATIENT_S:
            self._said = True
            self._notify(WAITING.format(grace=self._schedule.grace_s))

    def _seen(self, sighting: Sighting, now: float) -> None:
        if not sighting.certain:
            if self._first_at is not None:
                self._notify(GOES_ON)
            self._first_at, self._said = None, True
            return
        signum = self._schedule.again(self._first_at or now, now)
        self._notify(LOST.format(signal=signum.name, pid=sighting.pid))
        with contextlib.suppress(OSError):
            os.kill(sighting.pid, signum)
        # What was seen before it arrives is of the Ctrl-C before.
        self._acted_at, self.lost, self._said = now, True, True
        self.sent.append(signum)
