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
from typing import BinaryIO

from compilediag.readers.journal import LINE_LIMIT, BadLine, decode_line, journal_names
from compilediag.supervisor.files import open_plain
from compilediag.supervisor.options import LiveMode
from compilediag.views.live import RESTORE_TITLE, SAVE_TITLE, Progress, status, title
from compilediag.views.text import clean
from compilediag_harness.wire import Event

PERIOD_S = 0.25
STOP_PATIENCE_S = 1.0
READ_BYTES = 1 << 20
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
    """Reads what was added to the journals of a run directory since the last look."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._files: dict[str, tuple[BinaryIO, Progress]] = {}
        self._rest: dict[str, bytes] = {}

    @property
    def processes(self) -> list[Progress]:
        return [progress for _, progress in self._files.values()]

    def look(self, now: float) -> list[str]:
        """Takes in what is new; gives the sentences that are news by themselves."""
        for name in journal_names(self._run_dir)[:FILE_LIMIT]:
            if name not in self._files:
                file = open_plain(os.path.join(self._run_dir, name))
                if file is not None:
                    self._files[name] = (file, Progress())
        news: list[str] = []
        for name, (file, progress) in self._files.items():
            for event in self._events(name, file):
                told = progress.apply(event, now)
                if told is not None:
                    news.append(told)
        return news

    def _events(self, name: str, file: BinaryIO) -> list[Event]:
        *lines, rest = (self._rest.get(name, b"") + file.read(READ_BYTES)).split(b"\n")
        self._rest[name] = rest if len(rest) <= LINE_LIMIT else b""
        decoded = (decode_line(line) for line in lines if line)
        return [item[1] for item in decoded if not isinstance(item, BadLine)]

    def close(self) -> None:
        for file, _ in self._files.values():
            file.close()
        self._files.clear()


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
        self._follower.close()

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
