"""Commands of ours in child processes: what they printed, and their end with all they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from compilediag.runs.supervised.signals import ProcessTree

GRACE_S = 10.0
"""From the Ctrl-C of a job to its end by force: `certify` puts files back in this time."""
TAIL_BYTES = 1000
"""Of stderr, where the program prints too."""

# Without the current folder in sys.path: a `json.py` of the program is not for us.
_ENTRY = """\
import sys
sys.path[:] = filter(None, sys.path)
from compilediag.cli import main
sys.exit(main())
"""


class Job:
    """A command that was started."""

    def __init__(self, number: int, name: str, words: Sequence[str], folder: Path) -> None:
        self.number, self.name = number, name
        self._began = time.monotonic()
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - read when it ended
        self._tail = b""
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ENTRY, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.PIPE,
        )
        self._tree = ProcessTree(self._process.pid)
        self._reader = threading.Thread(target=self._keep_tail, daemon=True)
        self._reader.start()

    def _keep_tail(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        while chunk := os.read(stream.fileno(), 1 << 16):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._began

    def poll(self) -> int | None:
        """Ask for the exit code; None while it goes on."""
        if self._process.poll() is None:
            self._tree.record_descendants()
        return self._process.returncode

    def read(self) -> tuple[str, str]:
        """Read all of stdout and the end of stderr, when it has ended."""
        self._reader.join(timeout=1)  # longer where a process left behind holds the other end
        self._out.seek(0)
        return self._out.read().decode("utf-8", "replace"), self._tail.decode("utf-8", "replace")

    def stop(self) -> threading.Thread:
        """Begin to end it: by a Ctrl-C, and what is left after `GRACE_S` by force."""
        thread = threading.Thread(target=self._end, daemon=True)
        thread.start()
        return thread

    def _end(self) -> None:
        if self.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._tree.send(signal.SIGKILL)
        self._tree.finish(timeout_s=1)
