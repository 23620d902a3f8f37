"""TORCH_TRACE files in, the events of each process out, every loss counted.

The events are those of a live run, as far as a trace holds them. torch's printed reasons take the
place of evaluated guards, so causes have confidence "text". A trace has no steps.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace

from compilediag.readers.journal import ProcessJournal, with_loss, with_problem
from compilediag.readers.storage import open_stream
from compilediag.readers.torch_trace.events import TraceProcess
from compilediag.readers.torch_trace.metadata import ARTIFACTS, WANTED, decode
from compilediag.readers.torch_trace.scan import TIMING, TraceScanner

PROCESS_LIMIT = 1024
"""Most process ids distinguished in one file; torch 2.7 lets forked children write into it."""

_RANK = re.compile(r"rank[_-]?(\d{1,7})(?!\d)")


def read_trace(path: str) -> tuple[ProcessJournal, ...]:
    """The processes that wrote into the trace at `path`, in the order of their first record.

    A file that holds no record, or cannot be read, is one process with that loss.
    """
    stream = open_stream(path)
    found = trace_of(stream.chunks(), os.path.basename(path))
    return with_problem(found, "torch_trace", stream.problem)


def trace_of(chunks: Iterable[bytes], name: str) -> tuple[ProcessJournal, ...]:
    """The same for the bytes of a trace; `name` is the file's, from which only a rank is read."""
    scanner = TraceScanner(WANTED, ARTIFACTS)
    losses = scanner.losses
    processes: dict[int, TraceProcess] = {}
    strings: dict[int, str] = {}
    rank = rank_in_name(name)
    for record in scanner.records(chunks):
        if record.pid not in processes:
            if len(processes) >= PROCESS_LIMIT:
                losses.add("over_limit")
                continue
            processes[record.pid] = TraceProcess(record, rank, strings, losses)
        if record.kind == TIMING:
            processes[record.pid].take_timing(record)
        else:
            try:
                record.metadata.decode()
                record.payload.decode()
            except UnicodeDecodeError:
                losses.add("bad_utf8")
            metadata = decode(record.metadata)
            process = processes[record.pid]
            problem = "bad_json" if metadata is None else process.take(record, metadata)
            if problem is not None:
                losses.add(problem)
    if not processes and not losses.counts:
        losses.add("empty")
    journals = [process.finished(name) for process in processes.values()] or [ProcessJournal(name)]
    if losses.counts or losses.torn:
        # Those of a file are reported by its first process.
        texts = [f"{count} {_TEXTS[reason]}" for reason, count in losses.counts.items()]
        texts += ["the last record is cut"] if losses.torn else []
        found = with_loss(journals[0], "torch_trace", ", ".join(texts))
        journals[0] = replace(found, torn_tail=losses.torn, lost=dict(losses.counts))
    return tuple(journals)


def rank_in_name(name: str) -> int | None:
    """The rank in a file's name: "dedicated_log_torch_trace_rank_3_x1y2.log"."""
    found = _RANK.search(name)
    return int(found[1]) if found else None


_TEXTS = {
    "bad_prefix": "lines are not of torch's trace",
    "bad_json": "records are no JSON that was understood",
    "bad_payload_hash": "payloads are not what torch wrote",
    "bad_utf8": "records hold bytes that are not UTF-8, and are read without them",
    "too_long": "records are too long to be read",
    "over_limit": "records are beyond the limit on what is kept",
    "empty": "files hold no record",
}
