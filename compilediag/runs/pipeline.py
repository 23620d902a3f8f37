"""The pipeline of a Timeline to a receipt, written once: diagnose, build; and what every way to it
fills in alike: its id, and excerpts of source.

Live runs, `watch()`, blocks of a pytest test, `analyze` and the workers that read ranks all fold
their events and call it, so that the same events give the same receipt wherever they come from.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from compilediag.diagnosis.codes import LIMIT, REGISTER
from compilediag.readers.journal import ProcessJournal
from compilediag.readers.lines import parse_unix_s
from compilediag.readers.storage import compute_sha256, open_regular
from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.run_metadata import JournalFacts, RunMetadata
from compilediag.receipt.schema.compiles import ExcerptRecord, FindingRecord, Place
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import make_record
from compilediag.receipt.user_line import find_leading_call
from compilediag.rules.diagnose import Diagnosis, diagnose
from compilediag.runs.checkout import iterate_imported
from compilediag.timeline.timeline import Timeline

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class DiagnosedRun(NamedTuple):
    """A folded run, its diagnosis, and the receipt of both."""

    timeline: Timeline
    diagnosis: Diagnosis
    receipt: Receipt


Stage = Callable[[str], None]
"""Takes what is done next, for whoever waits."""


def diagnose_run(
    timeline: Timeline, metadata: RunMetadata, stage: Stage = lambda text: None
) -> DiagnosedRun:
    """Diagnose a folded run and build its receipt. `metadata` is what the events do not say;
    `stage` is called with the name of each stage before it begins."""
    stage(f"explaining {timeline.counts.recompiles} recompiles")
    diagnosis = diagnose(timeline)
    stage("writing the receipt")
    excerpts = read_excerpts(diagnosis.findings, timeline, metadata.provenance.source_sha256)
    metadata = replace(metadata, excerpts=excerpts)
    return DiagnosedRun(timeline, diagnosis, build_receipt(timeline, diagnosis, metadata))


def make_identity(at_unix: float) -> tuple[str, str]:
    """Make a new receipt id and the run's time in UTC, the first two fields of `RunMetadata`."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_unix))
    return make_ulid(int(at_unix * 1000), os.urandom(10)), stamp


def summarize_journals(journals: Sequence[ProcessJournal]) -> JournalFacts:
    """Count what reading the journals of all processes met: records, losses, torn ends."""
    return JournalFacts(
        records=sum(len(journal.events) for journal in journals),
        torn_tail=any(journal.torn_tail for journal in journals),
        records_lost=sum_losses(journal.lost for journal in journals),
    )


def sum_losses(losses: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum the records lost, by reason."""
    total: Counter[str] = Counter()
    for lost in losses:
        total.update(lost)
    return dict(total)


def make_ulid(unix_ms: int, random_bytes: bytes) -> str:
    """Make a ULID (github.com/ulid/spec), which sorts by time: 26 characters of Crockford's base
    32, of 48 bits of milliseconds and 80 random bits."""
    number = unix_ms << 80 | int.from_bytes(random_bytes, "big")
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


# --- excerpts of source: the lines that findings are about, as the run had them -------------------

AROUND = 2
"""Lines before and behind the one to look at."""
MAX_FINDINGS = 200
MAX_BYTES = 4 << 20
MAX_CHARS = 300
"""Of a line; one that is longer is left out: half of it could be half of a secret."""

Excerpts = tuple[ExcerptRecord, ...]


def read_excerpts(
    findings: Iterable[FindingRecord], timeline: Timeline, digests: Mapping[str, str]
) -> dict[str, Excerpts]:
    """Read the line that each finding is about, and the one that changes its value, by finding id.

    An event comes from anywhere, and a receipt is shared: only source below the folder of the
    program is read, what it imported that is not installed, and files that its run has `digests`
    of, by their path from that folder. What is gone, or changed since the program started, is left
    out.
    """
    started = [process.started for process in timeline.processes if process.started is not None]
    folder = started[0].cwd if started else ""
    start_s = parse_unix_s(started[0].started_utc) if started else None
    imported = frozenset(map(os.path.realpath, iterate_imported(timeline)))
    read = partial(_read_lines, folder=folder, start_s=start_s, imported=imported, digests=digests)
    texts: dict[str, list[str]] = {}
    by_finding: dict[str, Excerpts] = {}
    for finding in [*findings][:MAX_FINDINGS] if folder else ():
        made: list[ExcerptRecord] = []
        for place in _list_places(finding):
            if place.file not in texts:
                texts[place.file] = read(place.file)
            made += _cut_excerpt(place, texts[place.file])
        if made:
            by_finding[finding.id] = tuple(made)
    return by_finding


def _list_places(finding: FindingRecord) -> list[Place]:
    """List the line to look at, of an argument the call that passes it; and the line that changes
    the value, where it is another."""
    passed = REGISTER[finding.rule].owner in ("argument", "process")
    at = (finding.entered_at if passed else None) or find_leading_call(finding) or finding.location
    writers = [w for w in GuardEvidence.parse(finding.evidence).writers if not isinstance(w, str)]
    single = len({(writer.file, writer.function) for writer in writers}) == 1
    changed = finding.changed_at or finding.common_cause or (writers[0] if single else None)
    lines = {(one.file, one.line): one for one in (changed, at) if one is not None and one.line > 0}
    return (
        [] if finding.rule in LIMIT else [make_record(Place, x) for x in reversed(lines.values())]
    )


def _cut_excerpt(place: Place, lines: list[str]) -> Excerpts:
    if not place.line <= len(lines) or len(lines[place.line - 1]) > MAX_CHARS:
        return ()
    first, last = max(1, place.line - AROUND), min(len(lines), place.line + AROUND)
    while any(len(line) > MAX_CHARS for line in lines[first - 1 : place.line]):
        first += 1
    while any(len(line) > MAX_CHARS for line in lines[place.line : last]):
        last -= 1
    return (make_record(ExcerptRecord, place, first=first, lines=tuple(lines[first - 1 : last])),)


def _read_lines(
    file: str,
    *,
    folder: str,
    start_s: float | None,
    imported: frozenset[str],
    digests: Mapping[str, str],
) -> list[str]:
    """Read the lines of a file; none where they may be others than those that ran."""
    root, path = os.path.realpath(folder), os.path.realpath(os.path.join(folder, file))
    digest = digests.get(os.path.relpath(path, root).replace(os.sep, "/"))
    known = digest is not None or path in imported or path.startswith(os.path.join(root, ""))
    stream = open_regular(path) if known else None
    if stream is None:
        return []
    with stream:
        status = os.fstat(stream.fileno())
        same = path.endswith(".py") and start_s is not None and int(status.st_mtime) <= start_s
        if digest is not None and status.st_size <= MAX_BYTES:
            same = compute_sha256(stream) == digest
            stream.seek(0)
        if not same or status.st_size > MAX_BYTES:
            return []
        # As Python counts lines, which a form feed or a separator of Unicode does not end.
        text = stream.read().decode("utf-8", "replace")
        return text.replace("\r\n", "\n").replace("\r", "\n").expandtabs(4).split("\n")
