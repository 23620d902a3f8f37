"""Reports of attached processes that go on after Ctrl-C as if it had not come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from compilediag.readers.tail import JournalTail
from compilediag_harness.wire import InterruptLost

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
