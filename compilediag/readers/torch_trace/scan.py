"""TORCH_TRACE bytes split into records: a line of metadata, and the payload below it.

    V1121 14:17:00.227000 1679 torch/_dynamo/utils.py:2350] {"artifact": {"name": ...}, ...}
    <tab>first line of the payload

Only wanted kinds are decoded and the others skipped, so that a large trace costs a search for line
ends and little more. Memory is bounded by one chunk and one line, and nothing here raises, whatever
the file holds.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

LINE_LIMIT = 8 << 20
"""Longest line of metadata in bytes. torch's own are 40 kB, of large graphs some MB."""

PAYLOAD_LIMIT = 1 << 20
"""Longest payload of a wanted record in bytes; torch's own are some kB."""

# The event is the first key of the object, and its quotation mark the first of the line. A line
# that begins with anything but a tab begins a record, or is none of torch's.
_HEAD = re.compile(
    rb"\n[VDIWEC](\d{4} \d\d:\d\d):(\d\d\.\d{1,9}) (\d{1,20}) ?"
    rb"[^\"\n]{0,4096}(?<=\] \{)\"(\w{1,80})\""
)
# 20 to 4096 characters of the line up to its first quotation mark: one is in the line, and none was
# before it. This is [^\"\n]{20,4096}\", in a form that costs re a third.
_TO_EVENT = rb"(?=.{20,4096}\")[^\"]{20,4096}\""
_UNWANTED = rb"\d{4} " + _TO_EVENT + rb"(?<=\] \{\")(?!%s)"
_NO_PAYLOAD = re.compile(rb"\n(?!\t)")
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
    """What could not be used of a file, by reason."""

    counts: Counter[str] = field(default_factory=Counter[str])
    torn: bool = False
    """The last record is cut."""

    def add(self, reason: str) -> None:
        self.counts[reason] += 1


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
        self._stops = _stops_at(kinds, artifacts)
        self._open: _Open | None = None
        self.losses = Losses()

    def records(self, pieces: Iterable[bytes]) -> Iterator[TraceRecord]:
        """The wanted records, in the order of the file."""
        rest = b"\n"
        skipping = False
        for piece in pieces:
            begin = piece.find(b"\n")
            if begin < 0:
                rest = b"" if skipping else rest + piece
            else:
                if not skipping:
                    # Only the line that was cut between two pieces is put together.
                    cut = rest + piece[:begin]
                    yield from self._lines(cut, 0, len(cut))
                skipping = False
                end = piece.rfind(b"\n")
                yield from self._lines(piece, begin, end)
                rest = piece[end:]
            if len(rest) > LINE_LIMIT:
                yield from self._too_long(rest)
                rest, skipping = b"", True
        if len(rest) > 1:
            yield from self._last(rest)
        yield from self._close(at_end=True)

    def _lines(self, block: bytes, at: int, end: int) -> Iterator[TraceRecord]:
        """Whole lines between two places, each with the line end before it and not the one after.

        What is read is stepped over: rows and payloads are long, and are not searched again.
        """
        while at < end:
            if self._open is not None:
                at = self._payload(block, at, end)
                if at < end:
                    yield from self._close()
            stop = self._stops.search(block, at, end)
            if stop is None:
                return
            found = _HEAD.match(block, stop.start(), end)
            if found is None:
                self.losses.add("bad_prefix")
                at = stop.end()
                continue
            at = block.find(b"\n", found.end(), end)
            at = end if at < 0 else at
            record = TraceRecord(
                kind=found[4].decode("ascii", "replace"),
                at_s=_minute_s(found[1]) + float(found[2]),
                pid=int(found[3]),
                metadata=block[found.start(4) - 2 : at],
                payload=b"",
            )
            hashed = _HASH.search(record.metadata, max(0, len(record.metadata) - 200))
            if hashed is None:
                yield record
            else:
                self._open = _Open(record, hashed[1])

    def _payload(self, block: bytes, begin: int, end: int) -> int:
        """Keeps the lines of the open record's payload; where they end."""
        other = _NO_PAYLOAD.search(block, begin, end)
        payload_end = end if other is None else other.start()
        opened = self._open
        assert opened is not None
        opened.size += payload_end - begin
        if opened.size <= PAYLOAD_LIMIT:
            opened.pieces.append(block[begin:payload_end])
        return payload_end

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
            yield from self._lines(rest, 0, len(rest))
            return
        yield from self._close()
        self.losses.torn = True


_DAYS_BEFORE = (0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
"""Days of a leap year before each month: the log lines have no year."""


def _minute_s(minute: bytes) -> float:
    """Seconds from the beginning of the year to a minute: b"1121 14:17"."""
    month, day = divmod(int(minute[:4]), 100)
    days = _DAYS_BEFORE[min(month, 12)] + day
    return days * 86400.0 + int(minute[5:7]) * 3600 + int(minute[8:]) * 60


def _stops_at(kinds: Iterable[bytes], artifacts: Iterable[bytes]) -> re.Pattern[bytes]:
    """One search that stops at wanted records and foreign lines, and at no other line."""
    wanted = [re.escape(kind) + b'"' for kind in kinds]
    names = b"|".join(re.escape(name) for name in artifacts)
    wanted.append(b'artifact": \\{"name": "(?:%s)"' % names)
    # Whether a line is empty comes last: of a payload's line only the tab is examined.
    return re.compile(rb"\n[^\t](?!%s)(?<![\r\n])" % (_UNWANTED % b"|".join(wanted)))
