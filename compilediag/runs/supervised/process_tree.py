"""Signals to the target and everything it started."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


class ProcessTree:
    """A process and its recorded descendants; psutil keeps apart a new process with an old pid."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._recorded: dict[int, psutil.Process] = {}

    def record(self) -> None:
        """Records the present descendants: those of a dead parent cannot be found later."""
        import psutil

        with contextlib.suppress(psutil.Error):
            root = self._recorded.setdefault(self._pid, psutil.Process(self._pid))
            for process in root.children(recursive=True):
                self._recorded.setdefault(process.pid, process)

    def finish(self, timeout_s: float) -> None:
        """Waits for those that outlived the root, which were sent signals too; then kills them."""
        import psutil

        _, alive = psutil.wait_procs(list(self._recorded.values()), timeout=timeout_s)
        if alive:
            self.send(signal.SIGKILL)

    def send(self, signum: int) -> None:
        """Sends a signal to all that are alive, the root first."""
        import psutil

        self.record()
        for process in list(self._recorded.values()):
            with contextlib.suppress(psutil.Error, OSError):
                process.send_signal(signum)  # raises where the pid is another process's now
