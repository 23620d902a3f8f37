"""TORCH_TRACE bytes split into records: a line of metadata, and the payload below it.

    V1121 14:17:00.227000 1679 torch/_dynamo/utils.py:2350] {"artifact": {"name": ...}, ...}
    <tab>first line of the payload

Only wanted kinds are decoded; the others are skipped. Memory is bounded by one chunk, one line and
one payload, and nothing here raises, whatever the file holds.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from compilediag.readers.lines import Line, split_lines

LINE_LIMIT = 8 << 20
"""Longest line of metadata in bytes. torch's own are 40 kB, of large graphs some MB."""

PAYLOAD_LIMIT = 1 << 20
"""Longest payload of a wanted record in bytes; torch's own are some kB."""

# The event is the first key of the object, and its quotation mark the first of the line. A line
# that begins with anything but a tab begins a record, or is none of torch's.
_RECORD = re.compile(rb'.\d{4} [^"]{20,4096}(?<=\] \{)"', re.DOTALL)
_HEAD = re.compile(
    rb"[VDIWEC](\d{4} \d\d:\d\d):(\d\d\.\d{1,9}) (\d{1,20}) ?[^\"]{0,4096}(?<=\] \{)\"(\w{1,80})\""
)
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
    lines: list[bytes] = field(default_factory=list[bytes])
    size: int = 0


class TraceScanner:
    """Finds the records of one file; `losses` is complete when `records` has ended."""

    def __init__(self, kinds: Iterable[bytes], artifacts: Iterable[bytes]) -> None:
        names = b"|".join(map(re.escape, artifacts))
        wanted = [re.escape(kind) + b'"' for kind in kinds]
        wanted.append(b'artifact": \\{"name": "(?:%s)"' % names)
        self._wanted = re.compile(b"|".join(wanted))
        self._open: _Open | None = None
        self.losses = Losses()

    def records(self, chunks: Iterable[bytes]) -> Iterator[TraceRecord]:
        """The wanted records, in the order of the file."""
        for line in split_lines(chunks, LINE_LIMIT):
            if line.raw.startswith(b"\t"):
                if self._open is not None:
                    self._payload_line(self._open, line.raw)
                continue
            yield from self._close()
            if not line.ended and not line.raw.rstrip().endswith(b"}"):
                self.losses.torn = True
            elif line.raw and not line.raw.startswith(b"\r"):
                yield from self._record(line)
        yield from self._close(at_end=True)

    def _payload_line(self, opened: _Open, raw: bytes) -> None:
        opened.size += len(raw)
        if opened.size <= PAYLOAD_LIMIT:
            opened.lines.append(raw[1:])

    def _record(self, line: Line) -> Iterator[TraceRecord]:
        """The record of a line of metadata, unless its payload must be read first."""
        start = _RECORD.match(line.raw)
        if start is not None and not self._wanted.match(line.raw, start.end()):
            return
        head = _HEAD.match(line.raw)
        if line.cut or head is None:
            self.losses.add("too_long" if line.cut else "bad_prefix")
            return
        record = TraceRecord(
            kind=head[4].decode("ascii", "replace"),
            at_s=_minute_s(head[1]) + float(head[2]),
            pid=int(head[3]),
            metadata=line.raw[head.start(4) - 2 :],
            payload=b"",
        )
        hashed = _HASH.search(record.metadata, max(0, len(record.metadata) - 200))
        if hashed is None:
            yield record
        else:
            self._open = _Open(record, hashed[1])

    def _close(self, *, at_end: bool = False) -> Iterator[TraceRecord]:
        """The open record, if its payload is what torch wrote."""
        opened, self._open = self._open, None
        if opened is None:
            return
        if opened.size > PAYLOAD_LIMIT:
            self.losses.add("too_long")
            return
        payload = b"\n".join(opened.lines)
        digest = hashlib.md5(payload, usedforsecurity=False).hexdigest()
        if digest.encode() == opened.digest:
            yield opened.record._replace(payload=payload)
        elif at_end:
            self.losses.torn = True
        else:
            self.losses.add("bad_payload_hash")


_DAYS_BEFORE = (0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
"""Days of a leap year before each month: the log lines have no year."""


def _minute_s(minute: bytes) -> float:
    """Seconds from the beginning of the year to a minute: b"1121 14:17"."""
    month, day = divmod(int(minute[:4]), 100)
    days = _DAYS_BEFORE[min(month, 12)] + day
    return days * 86400.0 + int(minute[5:7]) * 3600 + int(minute[8:]) * 60
