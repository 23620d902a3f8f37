"""The pipeline of a Timeline to a receipt, written once: diagnose, build; and what every way to it
fills in alike, its id among them.

Live runs, `watch()`, blocks of a pytest test, `analyze` and the workers that read ranks all fold
their events and call it, so that the same events give the same receipt wherever they come from.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from compilediag.readers.journal import ProcessJournal
from compilediag.receipt.assemble import build_receipt
from compilediag.receipt.run_metadata import JournalFacts, RunMetadata
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.diagnose import Diagnosis, diagnose
from compilediag.runs.excerpts import read_excerpts
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
