"""Reads the journals of a run that has ended or goes on as events; what is no event is counted.
Part of a journal is text of the program that ran, and the file may be torn, cut or doctored:
nothing here raises on contents, and every size has a cap."""

from __future__ import annotations

import binascii
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

import msgspec

from compilediag.readers.lines import parse_object, split_lines
from compilediag.readers.storage import PlainStream, list_names, open_regular
from compilediag_harness.wire import KINDS, Event, EvidenceLost, ProcessStarted

LINE_LIMIT = 1 << 20
"""Longest line in bytes; `compilediag_harness.base.journal` writes none that is longer."""

JOURNAL_START = "journal-"

RECORD_LIMIT = 2_000_000

LOST_KEYS = ("bad_json", "bad_payload_hash", "too_long", "unknown_kind", "gap")
"""Reasons in `Journal.lost`. "gap" counts sequence numbers that no line has: records that the
process dropped (disk full, size limit), or that were cut out of the file."""


@dataclass(frozen=True, slots=True)
class ProcessJournal:
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
        return next((event for event in self.events if isinstance(event, ProcessStarted)), None)


def add_loss(journal: ProcessJournal, source: str, reason: str) -> ProcessJournal:
    """Add a last event about evidence that was lost to a journal."""
    lost = EvidenceLost(0.0, 0, source, f"{journal.name}: {reason}")
    return replace(journal, events=(*journal.events, lost))


def read_processes(
    path: str,
    source: str,
    parse_processes: Callable[[Iterable[bytes], str], tuple[ProcessJournal, ...]],
) -> tuple[ProcessJournal, ...]:
    """Read the processes of one file; the first reports why it could not be read to its end."""
    stream = PlainStream(path)
    journals = parse_processes(stream.read_chunks(), os.path.basename(path))
    if stream.problem is None:
        return journals
    first = replace(journals[0], torn_tail=True)
    return (add_loss(first, source, stream.problem), *journals[1:])


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no event; `reason` is one of `LOST_KEYS`."""

    reason: str
    sequence: int | None = None


@dataclass(slots=True)
class _Lines:
    """The lines of one journal so far: what was lost, and the numbers that were met."""

    lost: Counter[str] = field(default_factory=Counter[str])
    _sequences: set[int] = field(default_factory=set[int])
    _unnumbered: int = 0

    def take(self, decoded: tuple[int, Event] | BadLine) -> None:
        """Count a decoded line."""
        sequence = decoded.sequence if isinstance(decoded, BadLine) else decoded[0]
        if isinstance(decoded, BadLine):
            self.lost[decoded.reason] += 1
        if sequence is None:
            self._unnumbered += 1
        else:
            self._sequences.add(sequence)

    @property
    def gap(self) -> int:
        """Numbers that no line has. A damaged line has lost its number too: it is none of them."""
        numbered = len(self._sequences) + self._unnumbered
        return max(0, max(self._sequences, default=-1) + 1 - numbered)


def read_journal(path: str) -> ProcessJournal:
    """Read the journal at a path: empty when it cannot be opened or is no regular file; what came
    before where reading fails on the way."""
    stream, events, torn = PlainStream(path), list[tuple[int, Event]](), False
    lines = _Lines()
    for line in islice(split_lines(stream.read_chunks(), LINE_LIMIT + 1), RECORD_LIMIT):
        if not line.raw:
            continue
        decoded = decode_line(line.raw)
        torn = not line.ended
        if isinstance(decoded, BadLine) and torn and decoded.reason == "bad_payload_hash":
            continue
        lines.take(decoded)
        if not isinstance(decoded, BadLine):
            events.append(decoded)
    lost = {**lines.lost, **({"gap": lines.gap} if lines.gap else {})}
    in_order = tuple(event for _, event in sorted(events, key=lambda pair: pair[0]))
    journal = ProcessJournal(os.path.basename(path), in_order, torn, lost)
    if stream.problem is None or not events:
        return journal
    journal = replace(journal, torn_tail=True, lost={**lost, "unreadable": 1})
    return add_loss(journal, "journal", stream.problem)


def read_run(run_dir: str) -> tuple[ProcessJournal, ...]:
    """Read every journal of a run directory, ordered by the start of its process."""
    journals = [read_journal(os.path.join(run_dir, name)) for name in list_journal_names(run_dir)]
    return tuple(sorted(journals, key=lambda journal: order_start(journal.started, journal.name)))


def order_start(started: ProcessStarted | None, name: str) -> tuple[bool, str, str]:
    """Order processes by their start, then by their name; those without a start come last."""
    return started is None, started.started_utc if started else "", name


def list_journal_names(run_dir: str) -> list[str]:
    """List the names of the journals in a run directory; empty when it cannot be listed."""
    names = (name for name in list_names(run_dir) if name.startswith(JOURNAL_START))
    return sorted(name for name in names if name.endswith(".jsonl"))


def decode_line(line: bytes) -> tuple[int, Event] | BadLine:
    """Decode one line without its newline to (sequence, event)."""
    if len(line) > LINE_LIMIT:
        return BadLine("too_long")
    crc, _, body = line.partition(b" ")
    if len(crc) != 8 or crc != b"%08x" % binascii.crc32(body):
        return BadLine("bad_payload_hash")
    sequence, _, payload = body.partition(b" ")
    if not sequence.isdigit() or len(sequence) > 15:
        return BadLine("bad_json")
    number, fields = int(sequence), parse_object(payload)
    kind = fields.get("k") if fields is not None else None
    if not isinstance(kind, str):
        return BadLine("bad_json", number)
    known = KINDS.get(kind)
    if known is None:
        return BadLine("unknown_kind", number)
    try:
        return number, msgspec.convert(fields, known)
    except (msgspec.ValidationError, RecursionError, OverflowError):
        return BadLine("bad_json", number)


READ_BYTES = 1 << 20
"""Most bytes of one file in one poll; what is left comes with the next."""


@dataclass(slots=True)
class _Position:
    """The position up to which one journal was read."""

    offset: int = 0
    rest: bytes = b""
    """The beginning of a line whose end is not written yet."""
    lines: _Lines = field(default_factory=_Lines)

    def take(self, chunk: bytes) -> list[Event]:
        """Take the next bytes of the file; return the events of the lines that they complete."""
        self.offset += len(chunk)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        decoded = [decode_line(line) for line in lines if line]
        if len(self.rest) > LINE_LIMIT:
            self.rest = b""
            decoded.append(BadLine("too_long"))
        for line in decoded:
            self.lines.take(line)
        return [line[1] for line in decoded if not isinstance(line, BadLine)]


class JournalTail:
    """The journals of one run directory, read further in each poll. No file stays open."""

    def __init__(self, run_dir: str, max_files: int) -> None:
        self._run_dir = run_dir
        self._max_files = max_files
        self._positions: dict[str, _Position] = {}
        self.files_left_out = 0
        """Journals beyond the limit, which are not read."""

    def poll(self, max_bytes: int = READ_BYTES) -> dict[str, list[Event]]:
        """Read on, and return the events added to every journal that is followed, by file name, in
        order of names; a new journal comes after those already known."""
        names = list_journal_names(self._run_dir)
        for name in names:
            if name not in self._positions and len(self._positions) < self._max_files:
                self._positions[name] = _Position()
        self.files_left_out = max(0, len(names) - self._max_files)
        added: dict[str, list[Event]] = {}
        for name, position in self._positions.items():
            added[name] = []
            if (file := open_regular(os.path.join(self._run_dir, name))) is not None:
                with file:
                    file.seek(position.offset)
                    added[name] = position.take(file.read(max_bytes))
        return added

    @property
    def records_lost(self) -> int:
        """Records that are damaged or missing in what was read so far. Threads write side by side:
        a record still being written counts until it is there."""
        return sum(at.lines.lost.total() + at.lines.gap for at in self._positions.values())
