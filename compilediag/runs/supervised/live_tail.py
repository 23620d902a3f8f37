"""Follows the journals of a running target and shows its progress; costs the target nothing.

Runs in a thread of the parent, so that a stopped terminal (Ctrl-S) never keeps the parent from its
signals. It reads files that the target writes anyway.
"""

from __future__ import annotations

import contextlib
import os
import termios
import threading
import time
from collections import deque
from collections.abc import Sequence

from compilediag.diagnosis.codes import OUTLOOK
from compilediag.readers.journal import JournalTail
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.runs.pipeline import diagnose_run
from compilediag.timeline.timeline import fold
from compilediag.views.findings import format_finding
from compilediag.views.live import Progress, find_lead, format_screen_line
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import Event, StepEvent

NAMED = frozenset({"CD152", "CD190"})
"""Their titles say what they are."""

PERIOD_S = 0.25
STOP_TIMEOUT_S = 1.0
MAX_FILES = 64
"""Most processes that are followed."""
MAX_LINES = 8
"""Most lines a look; the others are counted."""

WITHOUT_ESCAPES = frozenset({"", "dumb", "emacs", "unknown"})
"""Values of TERM that stand for terminals without escape sequences: nothing is shown."""


class FollowedRun:
    """The progress of each process of a run, by the journals in its directory."""

    def __init__(self, run_dir: str) -> None:
        self._journals = JournalTail(run_dir, MAX_FILES)
        self.processes: dict[str, Progress] = {}

    def poll(self, now: float) -> list[tuple[Event, ...]]:
        """Read what the journals have added; return the events of each recompile that has ended."""
        news: list[tuple[Event, ...]] = []
        for name, events in self._journals.poll().items():
            progress = self.processes.setdefault(name, Progress())
            news += [ended for event in events if (ended := progress.apply(event, now))]
        return news

    def describe(self) -> str:
        """Describe how far the process with most steps is, as of now; "" where none has begun."""
        now = time.monotonic()
        self.poll(now)
        return find_lead(self.processes.values()).format_line(now) if self.processes else ""


class LiveView:
    """The thread that draws a line for each recompile and each long compile."""

    def __init__(self, run_dir: str, fd: int, secrets: Sequence[str] = ()) -> None:
        self._secrets = tuple(secrets)
        self._followed = FollowedRun(run_dir)
        self._fd = fd
        self._long: dict[tuple[str, str], int] = {}
        self._waiting: deque[str] = deque(maxlen=100)
        """Lines that are not written yet."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compilediag-live", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; does not wait for a terminal that takes no output."""
        self._over.set()
        self._thread.join(STOP_TIMEOUT_S)

    def notify(self, text: str) -> None:
        """Show the user a sentence, from any thread: it is written by ours."""
        self._waiting.append(text)

    def _run(self) -> None:
        # A fault of ours costs the live view, nothing else.
        with contextlib.suppress(Exception):
            while not self._over.wait(PERIOD_S):
                self.update()
            self.update()

    def update(self) -> None:
        """Poll the journals once, and update the terminal."""
        now = time.monotonic()
        news = self._followed.poll(now)
        for events in news[:MAX_LINES]:
            self._waiting.extend(describe_events(events, self._secrets))
        if len(news) > MAX_LINES:
            self._waiting.append(f"{len(news) - MAX_LINES} more recompiles")
        for name, progress in self._followed.processes.items():
            for compile_id, tens, sentence in progress.list_long_compiles(now):
                if tens > self._long.get((name, compile_id), 0):
                    self._waiting.append(sentence)
                self._long[name, compile_id] = tens
        # Lines wait while a program draws the whole screen or edits a line of input.
        while self._waiting and self._accepts_lines():
            self._write(format_screen_line(self._waiting.popleft()))

    def _accepts_lines(self) -> bool:
        try:
            return bool(termios.tcgetattr(self._fd)[3] & termios.ICANON)
        except (termios.error, OSError):
            return False

    def _write(self, text: str) -> None:
        """One write, so that it cannot come between the bytes of another one; only while we are in
        the foreground, since a background job must not touch the terminal."""
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self._fd) == os.getpgrp():
                os.write(self._fd, text.encode("utf-8", "replace"))


def describe_events(events: Sequence[Event], secrets: tuple[str, ...]) -> list[str]:
    """Describe each finding that these events of one compile give by themselves, in a sentence."""
    run = RunMetadata("", "", secret_values=secrets)
    receipt = diagnose_run(fold([events]), run).receipt
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    last = events[-1]
    step = f"step {last.step}: " if isinstance(last, StepEvent) else ""
    sentences: list[str] = []
    for finding in receipt.findings:
        if finding.rule.startswith("CD1") and finding.rule not in OUTLOOK:
            line = format_finding(finding, receipt, RenderOptions(root=folder))
            sentences.append(step + (line if finding.rule in NAMED else f"recompile: {line}"))
    return sentences
