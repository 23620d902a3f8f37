"""The journals of a run in progress: each poll gives the events added since the last one."""

from __future__ import annotations

import os
from dataclasses import dataclass

from compilediag.readers.journal import LINE_LIMIT, BadLine, decode_line, journal_names
from compilediag.readers.storage import open_regular, size_of
from compilediag_harness.wire import Event

READ_BYTES = 1 << 20
"""Most bytes of one file in one poll; what is left comes with the next."""


@dataclass(slots=True)
class _Position:
    """How far one journal was read."""

    offset: int = 0
    rest: bytes = b""
    """The beginning of a line whose end is not written yet."""
    max_sequence: int = -1
    numbered: int = 0
    unnumbered: int = 0
    bad: int = 0

    def take(self, chunk: bytes) -> list[Event]:
        self.offset += len(chunk)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        if len(self.rest) > LINE_LIMIT:
            self.rest = b""
            self.bad += 1
            self.unnumbered += 1
        return [event for line in lines if line and (event := self._event(line)) is not None]

    def _event(self, line: bytes) -> Event | None:
        decoded = decode_line(line)
        if isinstance(decoded, BadLine):
            sequence, event = decoded.sequence, None
            self.bad += 1
        else:
            sequence, event = decoded
        if sequence is None:
            self.unnumbered += 1
        else:
            self.numbered += 1
            self.max_sequence = max(self.max_sequence, sequence)
        return event

    @property
    def lost(self) -> int:
        return self.bad + max(0, self.max_sequence + 1 - self.numbered - self.unnumbered)


class JournalTail:
    """The journals of one run directory, read further in each poll. No file stays open."""

    def __init__(self, run_dir: str, max_files: int, *, from_end: bool = False) -> None:
        """`from_end`: what the journals of the first poll hold by then is left out."""
        self._run_dir = run_dir
        self._from_end = from_end
        self._max_files = max_files
        self._positions: dict[str, _Position] = {}
        self.files_left_out = 0
        """Journals beyond the limit, which are not read."""

    def poll(self, max_bytes: int = READ_BYTES) -> dict[str, list[Event]]:
        """File name to the events added to it, for every journal that is followed, in order of
        names; a new journal comes after those already known."""
        names = journal_names(self._run_dir)
        for name in names:
            if len(self._positions) < self._max_files:
                self._positions.setdefault(name, _Position(self._begin(name)))
        self._from_end = False
        self.files_left_out = max(0, len(names) - self._max_files)
        return {name: self._read(name, max_bytes) for name in self._positions}

    @property
    def records_lost(self) -> int:
        """Records that are damaged or missing in what was read so far. Threads write side by side:
        a record still being written counts until it is there."""
        return sum(position.lost for position in self._positions.values())

    def _begin(self, name: str) -> int:
        if not self._from_end:
            return 0
        try:
            return size_of(os.path.join(self._run_dir, name))
        except OSError:
            return 0

    def _read(self, name: str, max_bytes: int) -> list[Event]:
        file = open_regular(os.path.join(self._run_dir, name))
        if file is None:
            return []
        position = self._positions[name]
        with file:
            file.seek(position.offset)
            return position.take(file.read(max_bytes))
