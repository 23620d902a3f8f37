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
from functools import lru_cache
from typing import NamedTuple

LINE_LIMIT = 8 << 20
"""Longest line of metadata in bytes. torch's own are 40 kB, of large graphs some MB."""

PAYLOAD_LIMIT = 1 << 20
"""Longest payload of a wanted record in bytes; torch's own are some kB, but for `HEADS`."""

HEADS = re.compile(
    rb'artifact": \{"name": "(?:recompile_reasons|fx_graph_\w*cache|aotautograd_cache)'
)
"""Records of which the beginning of the payload is enough: torch prints a reason for each cache
entry of a frame, and the first few are used; a lookup of a compile cache holds the whole graph."""

TIMING = "chromium_event"
"""The kind of a timed phase's begin or end. There are more of them than of all others together, so
the usual form of it is read by one look, and its metadata is without what differs each time."""

# The event is the first key of the object, and its quotation mark the first of the line.
_RECORD = rb'.\d{4} [^"\n]{20,4096}(?<=\] \{)"'
_TIMING = re.compile(
    rb"V(\d{4} \d\d:\d\d):(\d\d\.\d{1,9}) (\d{1,20}) [^\"\n]{0,4096}\] "
    rb'(\{"chromium_event": \{\}, (?:"\w{1,40}": \d{1,20}, ){0,8})'
    rb'"has_payload": "([0-9a-f]{32})"\}\n(\t.{1,65000})',
    re.DOTALL,
)
_HEAD = re.compile(
    rb"[VDIWEC](\d{4} \d\d:\d\d):(\d\d\.\d{1,9}) (\d{1,20}) ?[^\"]{0,4096}(?<=\] \{)\"(\w{1,80})\""
)
_HASH = re.compile(rb'"has_payload": ?"([0-9a-f]{32})"')


_DAYS_BEFORE = (0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
"""Days of a leap year before each month: the log lines have no year."""


class TextBlock(NamedTuple):
    """A line that begins without a tab, and the lines that follow it and begin with one."""

    text: bytes
    ended: bool = True
    """Whether the end of its last line is there."""
    last: bool = False


class TraceRecord(NamedTuple):
    """One wanted record."""

    kind: str
    """The event, which is the first key: "compilation_metrics", "artifact"."""
    minute: bytes
    second: bytes
    """Local time, b"1121 14:17" and b"00.227000"."""
    pid: int
    metadata: bytes
    payload: bytes

    @property
    def at_s(self) -> float:
        """Local time as seconds since the beginning of the year."""
        return _minute_s(self.minute) + float(self.second)


@dataclass(slots=True)
class Losses:
    """What could not be used of a file, by reason."""

    counts: Counter[str] = field(default_factory=Counter[str])
    torn: bool = False

    def add(self, reason: str) -> None:
        self.counts[reason] += 1


class TraceScanner:
    """Finds the records of one file; `losses` is complete when `records` has ended."""

    def __init__(self, kinds: Iterable[bytes], artifacts: Iterable[bytes]) -> None:
        names = b"|".join(map(re.escape, artifacts))
        wanted = [re.escape(kind) + b'"' for kind in kinds]
        wanted.append(b'artifact": \\{"name": "(?:%s)"' % names)
        unwanted = b"%s(?!%s)" % (_RECORD, b"|".join(wanted))
        self._unwanted = re.compile(unwanted, re.DOTALL)
        # A line that begins with anything but a tab begins a record, or is none of torch's. What is
        # not wanted is passed over by the search for the next such line.
        self._begin = re.compile(b"\n(?=[^\t])(?:%s)?" % unwanted, re.DOTALL)
        self.losses = Losses()

    def records(self, chunks: Iterable[bytes]) -> Iterator[TraceRecord]:
        """The wanted records, in the order of the file."""
        for block in self._blocks(chunks):
            timing = None if block.last else _TIMING.fullmatch(block.text)
            if timing is None:
                if (record := self._record(block)) is not None:
                    yield record
                continue
            minute, second, pid, metadata, digest, raw = timing.groups()
            payload = self._payload(raw, digest, may_cut=False, last=False)
            if payload is not None:
                yield TraceRecord(TIMING, minute, second, int(pid), metadata[:-2] + b"}", payload)

    def _blocks(self, chunks: Iterable[bytes]) -> Iterator[TextBlock]:
        """The blocks of a file, but for those that lie in one chunk and are not wanted; what is
        over the limits is cut."""
        limit = LINE_LIMIT + PAYLOAD_LIMIT
        rest = bytearray()
        newline = b""
        for chunk in chunks:
            text = newline + chunk
            begin, is_wanted = 0, True
            for found in self._begin.finditer(text):
                if begin == 0:
                    rest += text[: min(found.start(), limit - len(rest))]
                    yield TextBlock(bytes(rest))
                    rest.clear()
                elif is_wanted:
                    yield TextBlock(text[begin : min(found.start(), begin + limit)])
                begin = found.start() + 1
                is_wanted = found.end() == begin
            rest += text[begin : begin + limit - len(rest)]
            # What follows the last line end decides whether it ends the block.
            newline = b"\n" if rest.endswith(b"\n") else b""
            del rest[len(rest) - len(newline) :]
        if rest:
            yield TextBlock(bytes(rest), ended=bool(newline), last=True)

    def _record(self, block: TextBlock) -> TraceRecord | None:
        """The record of a line of metadata and its payload, if it is wanted and whole."""
        line, newline, payload = block.text.partition(b"\n")
        if not line.strip(b"\r") or line.startswith(b"\t"):
            return None
        if not block.ended and not newline and not line.rstrip().endswith(b"}"):
            self.losses.torn = True
            return None
        if self._unwanted.match(line):
            return None
        head = _HEAD.match(line)
        hashed = _HASH.search(line, max(0, len(line) - 200))
        if len(line) > LINE_LIMIT:
            self.losses.add("too_long")
            return None
        may_cut = head is not None and HEADS.match(line, head.start(4)) is not None
        whole = (
            b"" if hashed is None else self._payload(payload, hashed[1], may_cut, last=block.last)
        )
        if whole is None:
            return None
        if head is None:
            self.losses.add("bad_prefix")
            return None
        return TraceRecord(
            kind=head[4].decode("ascii", "replace"),
            minute=head[1],
            second=head[2],
            pid=int(head[3]),
            metadata=line[head.start(4) - 2 :],
            payload=whole,
        )

    def _payload(self, raw: bytes, digest: bytes, may_cut: bool, *, last: bool) -> bytes | None:
        """The payload as torch wrote it, or its beginning; None where it is lost."""
        if len(raw) > PAYLOAD_LIMIT:
            if may_cut:
                return _unfolded(raw[:PAYLOAD_LIMIT])
            self.losses.add("too_long")
            return None
        payload = _unfolded(raw)
        if hashlib.md5(payload, usedforsecurity=False).hexdigest().encode() == digest:
            return payload
        if last:
            self.losses.torn = True
        else:
            self.losses.add("bad_payload_hash")
        return None


def _unfolded(raw: bytes) -> bytes:
    """Lines without the tab that each begins with."""
    return raw.replace(b"\n\t", b"\n")[1:]


@lru_cache(maxsize=16)
def _minute_s(minute: bytes) -> float:
    """Seconds from the beginning of the year to a minute: b"1121 14:17"."""
    month, day = divmod(int(minute[:4]), 100)
    days = _DAYS_BEFORE[min(month, 12)] + day
    return days * 86400.0 + int(minute[5:7]) * 3600 + int(minute[8:]) * 60
