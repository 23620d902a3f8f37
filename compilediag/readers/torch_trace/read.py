"""TORCH_TRACE files in, the events of each process out, every loss counted.

The events are those that a live run writes, as far as a trace holds them. torch's printed reasons
take the place of evaluated guards, so causes have confidence "text". A trace has no steps.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from compilediag.readers.compression import Opened
from compilediag.readers.journal import Journal
from compilediag.readers.torch_trace.events import NOT_IN_A_TRACE, TraceProcess
from compilediag.readers.torch_trace.metadata import ARTIFACTS, WANTED, decode
from compilediag.readers.torch_trace.scan import Losses, TraceRecord, TraceScanner
from compilediag_harness.wire import EvidenceLost

__all__ = ["NOT_IN_A_TRACE", "rank_in_name", "read_trace", "trace_of"]

PROCESS_LIMIT = 1024
"""Most process ids told apart in one file; torch 2.7 lets forked children write into it."""

_RANK = re.compile(r"rank[_-]?(\d{1,7})(?!\d)")


def read_trace(path: str) -> tuple[Journal, ...]:
    """The processes that wrote into the trace at `path`, in the order of their first record.

    A file that holds no record, or cannot be read, is one process that says so.
    """
    opened = Opened(path)
    found = trace_of(opened.pieces(), os.path.basename(path))
    if opened.problem is None:
        return found
    lost = EvidenceLost(0.0, 0, "torch_trace", f"{os.path.basename(path)}: {opened.problem}")
    first = found[0]
    return (
        Journal(first.name, (*first.events, lost), torn_tail=True, lost=first.lost),
        *found[1:],
    )


def trace_of(pieces: Iterable[bytes], name: str) -> tuple[Journal, ...]:
    """The same of a trace's bytes; `name` is the file's, from which only a rank is ever read."""
    scanner = TraceScanner(WANTED, ARTIFACTS)
    processes: dict[int, TraceProcess] = {}
    strings: dict[int, str] = {}
    rank = rank_in_name(name)
    for record in scanner.records(pieces):
        process = processes.get(record.pid)
        if process is None:
            if len(processes) >= PROCESS_LIMIT:
                scanner.losses.add("over_limit")
                continue
            process = processes[record.pid] = TraceProcess(record, rank, strings)
        _take(process, record, scanner.losses)
    losses = scanner.losses
    if not processes and not losses.counts:
        losses.add("empty")
    made = [process.finished(name) for process in processes.values()]
    if not made:
        made.append(Journal(name))
    return (_with_losses(made[0], losses), *made[1:])


def rank_in_name(name: str) -> int | None:
    """The rank that a file's name tells: "dedicated_log_torch_trace_rank_3_x1y2.log"."""
    found = _RANK.search(name)
    return int(found[1]) if found else None


def _take(process: TraceProcess, record: TraceRecord, losses: Losses) -> None:
    if not _is_text(record):
        losses.add("bad_utf8")
    metadata = decode(record.metadata)
    if metadata is None:
        losses.add("bad_json")
        return
    reason = process.take(record, metadata)
    if reason is not None:
        losses.add(reason)


def _is_text(record: TraceRecord) -> bool:
    """Whether its bytes are UTF-8, as all that torch writes is."""
    if record.metadata.isascii() and record.payload.isascii():
        return True
    try:
        record.metadata.decode()
        record.payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _with_losses(journal: Journal, losses: Losses) -> Journal:
    """What was lost in a file is told by its first process."""
    if not losses.counts and not losses.torn:
        return journal
    told = [f"{count} {_SAID.get(reason, reason)}" for reason, count in losses.counts.items()]
    told += ["the last record is cut"] if losses.torn else []
    lost = EvidenceLost(0.0, 0, "torch_trace", f"{journal.name}: {', '.join(told)}")
    return Journal(journal.name, (*journal.events, lost), losses.torn, dict(losses.counts))


_SAID = {
    "bad_prefix": "lines are not of torch's trace",
    "bad_json": "records are no JSON that was understood",
    "bad_payload_hash": "payloads are not what torch wrote",
    "bad_utf8": "records hold bytes that are not UTF-8, and are read without them",
    "too_long": "records are too long to be read",
    "over_limit": "records are beyond the limit on what is kept",
    "empty": "files hold no record",
}
