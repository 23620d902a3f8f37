"""The parts of a run's metadata that every way to a receipt fills in alike."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from compilediag.readers.journal import Journal
from compilediag.receipt.run_metadata import JournalFacts
from compilediag.receipt.ulid import ulid


def receipt_identity(at_unix: float) -> tuple[str, str]:
    """A new receipt id and the time of the run in UTC, the first two fields of `RunMetadata`."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_unix))
    return ulid(int(at_unix * 1000), os.urandom(10)), stamp


def journal_facts(journals: Sequence[Journal]) -> JournalFacts:
    """What reading the journals of all processes met."""
    return JournalFacts(
        records=sum(len(journal.events) for journal in journals),
        torn_tail=any(journal.torn_tail for journal in journals),
        records_lost=sum_losses(journal.lost for journal in journals),
    )


def sum_losses(losses: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Records lost by reason, over all of them."""
    total: Counter[str] = Counter()
    for lost in losses:
        total.update(lost)
    return dict(total)


def unix_s(utc: str, *, unreadable: float) -> float:
    """Seconds since the epoch of a time in UTC, as journals and receipts have it; `unreadable`
    where the text is no time."""
    try:
        return datetime.fromisoformat(utc.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return unreadable
