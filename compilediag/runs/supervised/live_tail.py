"""Follows the journals of a running target and shows the live line; costs the target nothing.

Runs in a thread of the parent, so that a terminal that is stopped (Ctrl-S) never keeps the parent
from its signals. It reads files the target writes anyway.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping

from compilediag.readers.tail import JournalTail
from compilediag.runs.supervised.options import LiveMode
from compilediag.views.live import RESTORE_TITLE, SAVE_TITLE, Progress, status, title
from compilediag.views.text import clean

PERIOD_S = 0.25
STOP_PATIENCE_S = 1.0
FILE_LIMIT = 64
"""Most processes that are followed."""

PLAIN_TERMINALS = frozenset({"", "dumb", "linux", "emacs", "unknown"})
"""Values of TERM that have no title."""


def can_draw(fd: int, variables: Mapping[str, str], mode: LiveMode) -> bool:
    """Whether `fd` is a terminal that can show the live line."""
    if not os.isatty(fd):
        return False
    return mode == "lines" or variables.get("TERM", "") not in PLAIN_TERMINALS


class Follower:
    """Tells what was added to the journals of a run directory since the last look."""

    def __init__(self, run_dir: str) -> None:
        self._journals = JournalTail(run_dir, FILE_LIMIT)
        self._progress: dict[str, Progress] = {}

    @property
    def processes(self) -> list[Progress]:
        return list(self._progress.values())

    def look(self, now: float) -> list[str]:
        """Takes in what is new; gives the sentences that are news by themselves."""
        news: list[str] = []
        for name, events in self._journals.poll().items():
            progress = self._progress.setdefault(name, Progress())
            for event in events:
                told = progress.apply(event, now)
                if told is not None:
                    news.append(told)
        return news


class LiveView:
    """The thread that draws; `stop` leaves the terminal as it was."""

    def __init__(
        self,
        run_dir: str,
        fd: int,
        mode: LiveMode = "title",
        clock: Callable[[], float] = time.monotonic,
        label: str = "",
    ) -> None:
        self._label = label
        self._follower = Follower(run_dir)
        self._fd = fd
        self._mode = mode
        self._clock = clock
        self._started = clock()
        self._shown = ""
        self._long: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compilediag-live", daemon=True)

    def start(self) -> None:
        if self._mode == "title":
            self._write(SAVE_TITLE)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; does not wait for a terminal that takes no output."""
        self._over.set()
        self._thread.join(STOP_PATIENCE_S)
        if self._mode == "title" and not self._thread.is_alive():
            self._write(RESTORE_TITLE)

    def _run(self) -> None:
        # What goes wrong here costs the live line, nothing else.
        with contextlib.suppress(Exception):
            while not self._over.wait(PERIOD_S):
                self.draw()

    def draw(self) -> None:
        """One look at the journals, and what it changes on the terminal."""
        now = self._clock()
        news = self._follower.look(now)
        processes = self._follower.processes
        line = status(processes, now, now - self._started, self._label)
        if self._mode == "title":
            if line != self._shown:
                self._write(title(line))
                self._shown = line
            return
        for told in news:
            self._write(f"compilediag · {clean(told)}\n")
        long = next((item for p in processes if (item := p.long_compile(now))), None)
        if long is not None and long != self._long:
            self._write(f"{line}\n")
        self._long = long

    def _write(self, text: str) -> None:
        """One write, so that it cannot come between the bytes of another one; only while we are in
        the foreground, since a background job must not touch the terminal."""
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self._fd) == os.getpgrp():
                os.write(self._fd, text.encode("utf-8", "replace"))
