"""The journals of a run that goes on: at each look, the events that were added since the last."""

from __future__ import annotations

import os
from dataclasses import dataclass

from compilediag.readers.journal import (
    LINE_LIMIT,
    BadLine,
    decode_line,
    journal_names,
    open_regular,
)
from compilediag_harness.wire import Event

READ_BYTES = 1 << 20
"""Most bytes of one file at one look; what is left comes with the next."""


@dataclass(slots=True)
class _Place:
    """How far one journal was read."""

    offset: int = 0
    rest: bytes = b""
    """The beginning of a line whose end is not written yet."""
    highest: int = -1
    """Highest sequence number."""
    numbered: int = 0
    bad: int = 0
    unnumbered: int = 0

    def take(self, piece: bytes) -> list[Event]:
        self.offset += len(piece)
        *lines, rest = (self.rest + piece).split(b"\n")
        self.rest = rest if len(rest) <= LINE_LIMIT else b""
        self.bad += self.rest is not rest
        self.unnumbered += self.rest is not rest
        return [event for line in lines if line and (event := self._event(line)) is not None]

    def _event(self, line: bytes) -> Event | None:
        decoded = decode_line(line)
        bad = isinstance(decoded, BadLine)
        sequence = decoded.sequence if isinstance(decoded, BadLine) else decoded[0]
        if sequence is None:
            self.unnumbered += 1
        else:
            self.numbered += 1
            self.highest = max(self.highest, sequence)
        self.bad += bad
        return None if isinstance(decoded, BadLine) else decoded[1]

    @property
    def lost(self) -> int:
        return self.bad + max(0, self.highest + 1 - self.numbered - self.unnumbered)


class JournalTail:
    """The journals of one run directory, read further at each look. No file stays open."""

    def __init__(self, run_dir: str, most_files: int) -> None:
        self._run_dir = run_dir
        self._most_files = most_files
        self._places: dict[str, _Place] = {}
        self.files_left_out = 0
        """Journals beyond the limit, which are not read."""

    def look(self, most_bytes: int = READ_BYTES) -> dict[str, list[Event]]:
        """File name to what was added to it: every journal that is followed, in order of names
        within a look; a new one comes after those that are known."""
        names = journal_names(self._run_dir)
        for name in names:
            if name not in self._places and len(self._places) < self._most_files:
                self._places[name] = _Place()
        self.files_left_out = max(0, len(names) - self._most_files)
        return {name: self._read(name, place, most_bytes) for name, place in self._places.items()}

    @property
    def records_lost(self) -> int:
        """Records that were written down damaged, or not at all, as far as was read. Threads write
        side by side: one that is on its way counts until it is there."""
        return sum(place.lost for place in self._places.values())

    def _read(self, name: str, place: _Place, most_bytes: int) -> list[Event]:
        file = open_regular(os.path.join(self._run_dir, name))
        if file is None:
            return []
        with file:
            file.seek(place.offset)
            return place.take(file.read(most_bytes))
