"""A text file that every process of a run appends whole messages to: torch_logs.txt."""

from __future__ import annotations

import os

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


class TextFile:
    """Opened at the first message; a file that cannot be written is given up, silently."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._failed = False

    def write(self, text: str) -> None:
        """Appends one message and a line end in one write, so that processes do not mix."""
        if self._failed:
            return
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, _FLAGS, 0o600)
            os.write(self._descriptor, (text + "\n").encode("utf-8", "backslashreplace"))
        except OSError:
            self._failed = True

    def close(self) -> None:
        """Closes the file; a later message opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
