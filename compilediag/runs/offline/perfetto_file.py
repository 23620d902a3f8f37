"""`show --perfetto FILE`: the timeline of a run for a trace viewer, from its journals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from compilediag.compare.gate.baseline_file import write_whole
from compilediag.errors import UsageError
from compilediag.readers.journal import ProcessJournal, read_run
from compilediag.readers.lines import parse_unix_s
from compilediag.readers.storage import open_regular
from compilediag.runs.run_directory import check_file
from compilediag.timeline.timeline import fold
from compilediag.views.perfetto import build_tracks, convert_foreign_events, render_perfetto
from compilediag_harness.redaction.redactor import Redactor, list_secret_values

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt

TIMELINE_ROLE = "tlparse_timeline"
"""Of artifacts: torch's own timeline, as tlparse writes it."""
MAX_BYTES = 512 << 20
"""A larger timeline of torch's is left out: viewers do not open it either."""
PRODUCER = "compilediag show --perfetto"


def write_perfetto(receipt: Receipt, receipt_path: str, file: str) -> list[str]:
    """Write the timeline of a run for ui.perfetto.dev; return sentences for the user about it.

    Raises:
        UsageError: the run has no journals, or `file` holds something else.
        OutputUnwritable: `file` cannot be written; an older one is left as it was.
    """
    check_file(file, PRODUCER)
    folder = os.path.dirname(receipt_path)
    journals = read_run(folder)
    if not any(journal.events for journal in journals):
        raise UsageError(
            f"{folder or '.'} has no journals: a timeline needs the times in them, which a receipt "
            "alone does not hold; name the folder of the run"
        )
    events = [journal.events for journal in journals]
    processes = build_tracks(receipt, fold(events), events)
    starts_ns = [_compute_start_ns(journal) for journal in journals]
    known = [ns for ns in starts_ns if ns is not None]
    first_ns = min(known, default=0)
    redactor = Redactor(list_secret_values((), os.environ))
    begin_ns = first_ns if known else None
    foreign, notes = _read_torch_timelines(receipt, folder, len(processes), begin_ns, redactor)
    about = {
        "producer": PRODUCER,
        "receipt_id": receipt.receipt_id,
        "begins_at_unix_ns": first_ns if known else None,
        "clocks": "processes are put side by side by the wall clock at their start",
    }
    origins = [first_ns if ns is None else ns for ns in starts_ns]
    text = render_perfetto(processes, [ns - first_ns for ns in origins], about, redactor, foreign)
    write_whole(file, text)
    if None in starts_ns:
        notes.append("a process whose start is not known is drawn from the start of the run")
    lost = sum(sum(journal.lost.values()) for journal in journals)
    if lost:
        notes.insert(0, f"{lost} records of the journals are lost and missing in the timeline")
    return notes


def _read_torch_timelines(
    receipt: Receipt, folder: str, processes: int, first_ns: int | None, redactor: Redactor
) -> tuple[list[dict[str, Any]], list[str]]:
    """Read torch's own events of every tlparse report that the receipt links."""
    events: list[dict[str, Any]] = []
    notes: list[str] = []
    linked = [artifact.uri for artifact in receipt.artifacts if artifact.role == TIMELINE_ROLE]
    for index, uri in enumerate(linked):
        if first_ns is None:
            notes.append(f"{uri} is left out: no process recorded when it began")
            continue
        raw = _decode_artifact(folder, uri)
        if raw is None:
            notes.append(f"{uri} is left out: it is gone, too large, or no JSON")
            continue
        name = f"torch's own timeline (tlparse) {index + 1}"
        made, dropped = convert_foreign_events(raw, processes + 1 + index, name, first_ns, redactor)
        events += made
        if dropped:
            notes.append(f"{dropped} entries of {uri} are no events and are left out")
    return events, notes


def _decode_artifact(folder: str, uri: str) -> object:
    """Decode a linked JSON file of the run, never one outside its folder; None where that fails."""
    parts = uri.split("/")
    if uri.startswith("/") or ".." in parts or "\0" in uri:
        return None
    path = os.path.join(folder, *parts)
    inside = os.path.realpath(folder) + os.sep
    if not os.path.realpath(path).startswith(inside):
        return None
    stream = open_regular(path)
    if stream is None:
        return None
    with stream:
        if os.fstat(stream.fileno()).st_size > MAX_BYTES:
            return None
        try:
            return msgspec.json.decode(stream.read())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def _compute_start_ns(journal: ProcessJournal) -> int | None:
    """Compute the nanoseconds since the epoch at which the clock of a process read 0."""
    started = journal.started
    began_s = None if started is None else parse_unix_s(started.started_utc)
    if started is None or began_s is None:
        return None
    # To the microsecond; the start of a fork is on the clock of its parent.
    return round(began_s * 1e6) * 1000 - round(started.t * 1e9)
