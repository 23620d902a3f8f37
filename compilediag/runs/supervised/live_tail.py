"""Follows the journals of a running target and shows the live line; costs the target nothing.

Runs in a thread of the parent, so that a stopped terminal (Ctrl-S) never keeps the parent from its
signals. It reads files that the target writes anyway.
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
STOP_TIMEOUT_S = 1.0
MAX_FILES = 64
"""Most processes that are followed."""

PLAIN_TERMINALS = frozenset({"", "dumb", "linux", "emacs", "unknown"})
"""Values of TERM that have no title."""


def can_draw(fd: int, variables: Mapping[str, str], mode: LiveMode) -> bool:
    """Whether `fd` is a terminal that can show the live line."""
    if not os.isatty(fd):
        return False
    return mode == "lines" or variables.get("TERM", "") not in PLAIN_TERMINALS


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
        self._journals = JournalTail(run_dir, MAX_FILES)
        self._processes: dict[str, Progress] = {}
        self._fd = fd
        self._mode = mode
        self._clock = clock
        self._started = clock()
        self._shown = ""
        self._long_compile: str | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compilediag-live", daemon=True)

    def start(self) -> None:
        if self._mode == "title":
            self._write(SAVE_TITLE)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; does not wait for a terminal that takes no output."""
        self._over.set()
        self._thread.join(STOP_TIMEOUT_S)
        if self._mode == "title" and not self._thread.is_alive():
            self._write(RESTORE_TITLE)

    def _run(self) -> None:
        # A fault of ours costs the live line, nothing else.
        with contextlib.suppress(Exception):
            while not self._over.wait(PERIOD_S):
                self.draw()

    def poll(self, now: float) -> list[str]:
        """Reads what the journals have added; returns the news, one sentence a recompile."""
        news: list[str] = []
        for name, events in self._journals.poll().items():
            progress = self._processes.setdefault(name, Progress())
            news += [item for event in events if (item := progress.apply(event, now)) is not None]
        return news

    def draw(self) -> None:
        """Polls the journals once, and updates the terminal."""
        now = self._clock()
        news = self.poll(now)
        processes = list(self._processes.values())
        line = status(processes, now, now - self._started, self._label)
        if self._mode == "title":
            if line != self._shown:
                self._write(title(line))
                self._shown = line
            return
        for item in news:
            self._write(f"compilediag · {clean(item)}\n")
        long = next((item for p in processes if (item := p.long_compile(now))), None)
        if long is not None and long != self._long_compile:
            self._write(f"{line}\n")
        self._long_compile = long

    def _write(self, text: str) -> None:
        """One write, so that it cannot come between the bytes of another one; only while we are in
        the foreground, since a background job must not touch the terminal."""
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self._fd) == os.getpgrp():
                os.write(self._fd, text.encode("utf-8", "replace"))
