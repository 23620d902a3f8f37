"""Progress of work that takes long, such as a trial: nothing is shown in the first two seconds.

On a terminal it is drawn in place and gone at the end; elsewhere it is a line a minute.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

SILENT_S = 2.0
LINE_EVERY_S = 60.0
_DRAW_EVERY_S = 0.1
_STOP_TIMEOUT_S = 1.0


class WorkProgress:
    """A context around the work, which calls `set_stage` with what it does next.

    A thread draws, so that work that takes long shows as such.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        stage: str = "reading what was recorded",
        silent: bool = False,
        describe: Callable[[], str] = str,
        silent_s: float = SILENT_S,
        line_every_s: float = LINE_EVERY_S,
    ) -> None:
        """`stream`: stderr by default; `silent`: nothing is shown; `describe`: how far the work is,
        behind the stage."""
        self._stream = stream or sys.stderr
        self._silent_s = silent_s
        self._line_every_s = line_every_s
        self._started = time.monotonic()
        self._stage = stage
        self._describe = describe
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if not silent:
            self._thread = threading.Thread(
                target=self._run, name="compilediag-progress", daemon=True
            )

    def set_stage(self, text: str) -> None:
        """Set what is done from now on, in words."""
        self._stage = text

    def __enter__(self) -> WorkProgress:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)  # a terminal may take no output

    def _run(self) -> None:
        # A fault of ours costs the display, nothing else.
        with contextlib.suppress(Exception):
            if self._over.wait(self._silent_s):
                return
            if not self._stream.isatty() or os.environ.get("TERM") == "dumb":
                while True:
                    seconds = time.monotonic() - self._started
                    line = f"compilediag: {self._format()}, {seconds:.0f} s\n"
                    coded = line.encode(self._stream.encoding or "ascii", "replace")
                    os.write(self._stream.fileno(), coded)
                    if self._over.wait(self._line_every_s):
                        return
            elif os.tcgetpgrp(self._stream.fileno()) == os.getpgrp():
                self._draw_spinner()  # a job in the background must not touch the terminal

    def _draw_spinner(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=self._stream), transient=True) as shown:
            task = shown.add_task("", start=True)
            while not self._over.wait(_DRAW_EVERY_S):
                shown.update(task, description=f"compilediag: {self._format()}")

    def _format(self) -> str:
        return ", ".join(filter(None, (self._stage, self._describe())))
