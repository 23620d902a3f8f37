"""TORCH_TRACE bytes taken apart into records: a line of metadata, and the payload below it.

    V1121 14:17:00.227000 1679 torch/_dynamo/utils.py:2350] {"artifact": {"name": ...}, ...}
    <tab>first line of the payload

Only kinds that are asked for are decoded; all others are counted and their payloads skipped, so
that a large trace costs a search for line ends and little more. Memory is bounded by one block and
one line, whatever the file holds, and nothing here raises for what it holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

LINE_LIMIT = 8 << 20
"""Longest line of metadata in bytes. torch's own are 40 kB, of large graphs some MB."""

PAYLOAD_LIMIT = 1 << 20
"""Longest payload of a wanted record in bytes; torch's own are some kB."""

HEAD_BYTES = 4096
"""Where the JSON of a line must begin."""

# The event is the first key of the object, and its quotation mark the first of the line. A line
# that begins with anything but a tab begins a record, or is none of torch's.
_HEAD = re.compile(
    rb"\n[VDIWEC](\d{4}) (\d\d):(\d\d):(\d\d\.\d{1,9}) (\d{1,20}) ?"
    rb"[^\"\n]{0,4096}(?<=\] \{)\"(\w{1,80})\""
)
_UNWANTED = rb"\d{4} [^\"\n]{20,4096}(?<=\] \{)\"(?!%s)"
_PAYLOAD = re.compile(rb"(?:\n\t[^\n]*)*")
_HASH = re.compile(rb'"has_payload": ?"([0-9a-f]{32})"')


class TraceRecord(NamedTuple):
    """One wanted record."""

    kind: str
    """The event, which is the first key: "compilation_metrics", "artifact"."""
    at_s: float
    """Local time as seconds since the beginning of the year."""
    pid: int
    metadata: bytes
    """The JSON object."""
    payload: bytes
    """Empty where it has none."""


@dataclass(slots=True)
class Losses:
    """What a file holds that could not be used, by reason; and what else is to be said of it."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    torn: bool = False
    """The last record is cut."""

    def add(self, reason: str, number: int = 1) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + number


@dataclass(slots=True)
class _Open:
    """A wanted record whose payload is still being read."""

    record: TraceRecord
    digest: bytes
    pieces: list[bytes] = field(default_factory=list[bytes])
    size: int = 0


class TraceScanner:
    """Finds the records of one file; `losses` is whole when `records` has ended."""

    def __init__(self, kinds: Iterable[bytes], artifacts: Iterable[bytes]) -> None:
        wanted = [re.escape(kind) + b'"' for kind in kinds]
        names = b"|".join(re.escape(name) for name in artifacts)
        wanted.append(b'artifact": \\{"name": "(?:%s)"' % names)
        # One search that stops at what matters: no line of another kind costs Python anything.
        self._stops = re.compile(rb"\n[^\t\r\n](?!%s)" % (_UNWANTED % b"|".join(wanted)))
        self._open: _Open | None = None
        self.losses = Losses()

    def records(self, pieces: Iterable[bytes]) -> Iterator[TraceRecord]:
        """The wanted records, in the order of the file."""
        rest = b"\n"
        skipping = False
        for piece in pieces:
            if skipping:
                begin = piece.find(b"\n")
                if begin < 0:
                    continue
                rest, skipping = piece[begin:], False
            else:
                rest += piece
            end = rest.rfind(b"\n")
            if end > 0:
                yield from self._block(rest, end)
                rest = rest[end:]
            if len(rest) > LINE_LIMIT:
                yield from self._too_long(rest)
                rest, skipping = b"", True
        if len(rest) > 1:
            yield from self._last(rest)
        yield from self._close(at_end=True)

    def _block(self, block: bytes, end: int) -> Iterator[TraceRecord]:
        """Whole lines up to `end`, each with the line end before it and not the one after it."""
        if self._open is not None:
            yield from self._payload(block, 0, end)
        for stop in self._stops.finditer(block, 0, end):
            found = _HEAD.match(block, stop.start(), end)
            if found is None:
                self.losses.add("bad_prefix")
                continue
            line_end = block.find(b"\n", found.end(), end)
            line_end = end if line_end < 0 else line_end
            record = TraceRecord(
                kind=found[6].decode("ascii", "replace"),
                at_s=_seconds(found),
                pid=int(found[5]),
                metadata=block[found.start(6) - 2 : line_end],
                payload=b"",
            )
            hashed = _HASH.search(record.metadata, max(0, len(record.metadata) - 200))
            if hashed is None:
                yield record
            else:
                self._open = _Open(record, hashed[1])
                yield from self._payload(block, line_end, end)

    def _payload(self, block: bytes, begin: int, end: int) -> Iterator[TraceRecord]:
        """Lines of the open record's payload; the record, where something follows them."""
        lines = _PAYLOAD.match(block, begin, end)
        assert lines is not None
        self._keep(lines[0])
        if lines.end() < end:
            yield from self._close()

    def _keep(self, piece: bytes) -> None:
        opened = self._open
        assert opened is not None
        opened.size += len(piece)
        if opened.size <= PAYLOAD_LIMIT:
            opened.pieces.append(piece)

    def _close(self, *, at_end: bool = False) -> Iterator[TraceRecord]:
        """The open record, if its payload is what torch wrote."""
        opened, self._open = self._open, None
        if opened is None:
            return
        if opened.size > PAYLOAD_LIMIT:
            self.losses.add("too_long")
            return
        payload = b"".join(opened.pieces).replace(b"\n\t", b"\n")[1:]
        digest = hashlib.md5(payload, usedforsecurity=False).hexdigest()
        if digest.encode() != opened.digest:
            if at_end:
                self.losses.torn = True
            else:
                self.losses.add("bad_payload_hash")
            return
        yield opened.record._replace(payload=payload)

    def _too_long(self, line: bytes) -> Iterator[TraceRecord]:
        """A line over the limit, of which only the beginning is there."""
        if line.startswith(b"\n\t"):
            if self._open is not None:
                self._open.size += len(line)
            return
        yield from self._close()
        if self._stops.match(line):
            self.losses.add("too_long")

    def _last(self, rest: bytes) -> Iterator[TraceRecord]:
        """The last line where its end is missing: whole by its JSON, or cut."""
        if rest.startswith(b"\n\t") or rest.rstrip().endswith(b"}"):
            yield from self._block(rest, len(rest))
            return
        yield from self._close()
        self.losses.torn = True


_DAYS_BEFORE = (0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
"""Days of a leap year before each month: the year is not told."""


def _seconds(found: re.Match[bytes]) -> float:
    month, day = divmod(int(found[1]), 100)
    days = _DAYS_BEFORE[min(month, 12)] + day
    return days * 86400.0 + int(found[2]) * 3600 + int(found[3]) * 60 + float(found[4])
