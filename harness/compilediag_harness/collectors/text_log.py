"""torch_logs.txt: torch's compile logs as text, each message and the whole of a process bounded.

torch prints a line or more for every cache entry of a frame at each of its recompiles: of a frame
with a raised limit that is quadratic. What is left out is counted in the file itself.
"""

from __future__ import annotations

import copy
import logging
import os

from compilediag_harness.redaction import in_process
from compilediag_harness.wire import LINES_LEFT_OUT, LOG_OVER_LIMIT, clip

LIMIT_BYTES = 64 << 20
"""What one process writes at most."""

LINE_CHARS = 4096
"""Longest line of a message, without torch's prefix."""

_LINES = {"recompiles": (24, 8)}
_MOST_LINES = (400, 100)
"""First and last lines kept of a message: of a recompile, and of any other. A graph break's user
stack comes first, and is longer than that in a recursion only."""

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


class TextLogFile:
    """The file to which every process of a run appends. Opened at the first message; one that
    cannot be written is given up, silently."""

    def __init__(self, path: str, limit_bytes: int = LIMIT_BYTES) -> None:
        self._path = path
        self._room = limit_bytes
        self._descriptor: int | None = None
        self._failed = False

    def write(self, record: logging.LogRecord, formatter: logging.Formatter) -> None:
        """Appends one message without its secrets, and a line end, in one write, so that processes
        do not mix."""
        if self._failed:
            return
        data = _encoded(in_process.text(formatter.format(shortened(record))))
        if len(data) > self._room:
            self._failed = True
            record = copy.copy(record)
            record.msg, record.args = LOG_OVER_LIMIT, None
            data = _encoded(formatter.format(record))
        self._room -= len(data)
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, _APPEND, 0o600)
            os.write(self._descriptor, data)
        except OSError:
            self._failed = True

    def close(self) -> None:
        """Closes the file; a later message opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def shortened(record: logging.LogRecord) -> logging.LogRecord:
    """The record with the first and the last lines of its message, and a count of the others; the
    record itself where nothing is left out."""
    message = record.getMessage()
    first, last = _LINES.get(record.name.rpartition(".__")[2], _MOST_LINES)
    lines = message.split("\n")
    if len(lines) <= first + last and len(message) <= LINE_CHARS:
        return record
    if (more := len(lines) - first - last) > 0:
        lines[first:-last] = [LINES_LEFT_OUT.format(more)]
    short = copy.copy(record)
    short.msg, short.args = "\n".join(clip(line, LINE_CHARS) for line in lines), None
    return short


def _encoded(text: str) -> bytes:
    return (text + "\n").encode("utf-8", "backslashreplace")
