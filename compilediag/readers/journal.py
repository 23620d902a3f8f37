"""Journal files in, events out; every line that is no event is counted.

A journal is written by `compilediag_harness.base.journal`, but what stands in it is in part text of
the program that ran, and the file may be torn, cut or doctored: nothing here raises on contents,
and every size has a cap.
"""

from __future__ import annotations

import binascii
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from compilediag.readers import lenient_json
from compilediag.readers.storage import below, is_uri, lines_of, names_in, open_uri, sentence
from compilediag_harness.wire import KINDS, Event, EvidenceLost, ProcessStarted

LINE_LIMIT = 1 << 20
"""Longest line in bytes; `compilediag_harness.base.journal` writes none that is longer."""

RECORD_LIMIT = 2_000_000
"""Most records read from one file."""

LOST_KEYS = ("bad_json", "bad_payload_hash", "too_long", "unknown_kind", "gap")
"""Reasons in `Journal.lost`. "gap" counts sequence numbers that no line has: records that the
process dropped (disk full, size limit), or that were cut out of the file."""


@dataclass(frozen=True, slots=True)
class Journal:
    """One process's events, in the order in which they were written."""

    name: str
    """File name, "journal-4711-1a2b3c4d.jsonl"."""
    events: tuple[Event, ...] = ()
    torn_tail: bool = False
    """The last line has no end: the process was killed, or the disk was full, while it wrote."""
    lost: dict[str, int] = field(default_factory=dict[str, int])
    """Records lost by reason; empty when none was."""

    @property
    def started(self) -> ProcessStarted | None:
        """The record of the process's start, which is the first when it is there."""
        return next((item for item in self.events if isinstance(item, ProcessStarted)), None)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no event; `reason` is one of `LOST_KEYS`."""

    reason: str
    sequence: int | None = None


def read_journal(path: str) -> Journal:
    """The journal at `path`; empty when the file cannot be opened or is no regular file."""
    name = os.path.basename(path)
    if is_uri(path):
        return _read_remote(path, name)
    file = open_regular(path)
    if file is None:
        return Journal(name)
    with file:
        return _collect(name, _lines(file))


def _read_remote(path: str, name: str) -> Journal:
    """The same at a URI, where a connection may be lost: what came before counts."""
    broken: list[str] = []
    try:
        with lines_of(open_uri(path)) as file:
            found = _collect(name, _while_readable(_lines(file), broken))
    except OSError as error:
        found = Journal(name)
        broken.append(str(error))
    if not broken:
        return found
    lost = EvidenceLost(0.0, 0, "journal", f"{name}: {broken[0]}")
    return Journal(name, (*found.events, lost), True, {**found.lost, "unreadable": 1})


def _while_readable(
    lines: Iterator[tuple[bytes, bool]], broken: list[str]
) -> Iterator[tuple[bytes, bool]]:
    try:
        yield from lines
    except Exception as error:  # whatever a file system of others raises
        broken.append(sentence(error))


def read_run(run_dir: str) -> tuple[Journal, ...]:
    """Every journal of a run directory, ordered by the start of its process."""
    journals = [read_journal(below(run_dir, name)) for name in journal_names(run_dir)]
    return tuple(sorted(journals, key=_start_order))


def journal_names(run_dir: str) -> list[str]:
    """Names of the journal files in a run directory; empty when it cannot be listed."""
    names = names_in(run_dir)
    return sorted(name for name in names if name.startswith("journal-") and name.endswith(".jsonl"))


def decode_line(line: bytes) -> tuple[int, Event] | BadLine:
    """One line without its newline as (sequence, event)."""
    if len(line) > LINE_LIMIT:
        return BadLine("too_long")
    crc, _, body = line.partition(b" ")
    if len(crc) != 8 or crc != b"%08x" % binascii.crc32(body):
        return BadLine("bad_payload_hash")
    number, _, payload = body.partition(b" ")
    if not number.isdigit() or len(number) > 15:
        return BadLine("bad_json")
    return _decode_payload(int(number), payload)


def _decode_payload(sequence: int, payload: bytes) -> tuple[int, Event] | BadLine:
    bad = BadLine("bad_json", sequence)
    record = lenient_json.parse(payload)
    if not isinstance(record, dict):
        return bad
    fields: dict[str, Any] = record  # pyright: ignore[reportUnknownVariableType]
    kind = fields.get("k")
    if not isinstance(kind, str):
        return bad
    known = KINDS.get(kind)
    if known is None:
        return BadLine("unknown_kind", sequence)
    try:
        return sequence, msgspec.convert(fields, known)
    except (msgspec.ValidationError, RecursionError, OverflowError):
        return bad


def open_regular(path: str) -> BinaryIO | None:
    """The file opened for reading, unless it is a link, a pipe or a device."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    return None


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """(line without its end, whether it had one); a line over the limit comes cut, once."""
    for _ in range(RECORD_LIMIT):
        line = file.readline(LINE_LIMIT + 2)
        if not line:
            return
        ended = line.endswith(b"\n")
        if not ended and len(line) > LINE_LIMIT:
            ended = _skip_line(file)
        yield line.removesuffix(b"\n"), ended


def _skip_line(file: BinaryIO) -> bool:
    """Reads on to the end of a line over the limit; whether it has one."""
    while piece := file.readline(LINE_LIMIT):
        if piece.endswith(b"\n"):
            return True
    return False


def _collect(name: str, lines: Iterator[tuple[bytes, bool]]) -> Journal:
    events: list[tuple[int, Event]] = []
    numbers: set[int] = set()
    unnumbered = 0
    lost: dict[str, int] = {}
    torn = False
    for line, ended in lines:
        if not line:
            continue
        result = decode_line(line)
        if isinstance(result, BadLine):
            if not ended and result.reason == "bad_payload_hash":
                torn = True
                continue
            lost[result.reason] = lost.get(result.reason, 0) + 1
            if result.sequence is None:
                unnumbered += 1
            else:
                numbers.add(result.sequence)
            continue
        torn = not ended
        numbers.add(result[0])
        events.append(result)
    # A damaged line has lost its number too: it must not be counted again as a gap.
    gap = max(numbers, default=-1) + 1 - len(numbers) - unnumbered
    if gap > 0:
        lost["gap"] = gap
    events.sort(key=lambda item: item[0])
    return Journal(name, tuple(event for _, event in events), torn, lost)


def _start_order(journal: Journal) -> tuple[bool, str, str]:
    started = journal.started
    return (started is None, started.started_utc if started else "", journal.name)
