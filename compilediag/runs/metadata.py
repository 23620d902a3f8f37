"""The parts of a run's metadata that every way to a receipt fills in alike, its id among them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from compilediag.readers.journal import ProcessJournal
from compilediag.receipt.run_metadata import JournalFacts

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_BITS, _RANDOM_BYTES, _LENGTH = 48, 10, 26


def receipt_identity(at_unix: float) -> tuple[str, str]:
    """A new receipt id and the time of the run in UTC, the first two fields of `RunMetadata`."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_unix))
    return ulid(int(at_unix * 1000), os.urandom(10)), stamp


def journal_facts(journals: Sequence[ProcessJournal]) -> JournalFacts:
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


def unix_s(utc: str) -> float | None:
    """Seconds since the epoch of a time, in UTC unless it has another zone; None where the text is
    no time."""
    try:
        # Python 3.10 does not read the "Z".
        moment = datetime.fromisoformat(utc[:-1] + "+00:00" if utc.endswith("Z") else utc)
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def ulid(unix_ms: int, random_bytes: bytes) -> str:
    """26 characters of Crockford's base 32: 48 bits of milliseconds, then 80 random bits.

    Raises:
        ValueError: the time does not fit 48 bits, or there are not 10 random bytes.
    """
    if not 0 <= unix_ms < 1 << _TIME_BITS:
        raise ValueError(f"{unix_ms} ms is outside the range of a ULID")
    if len(random_bytes) != _RANDOM_BYTES:
        raise ValueError(f"a ULID takes {_RANDOM_BYTES} random bytes, got {len(random_bytes)}")
    number = unix_ms << (8 * _RANDOM_BYTES) | int.from_bytes(random_bytes, "big")
    shifts = range(5 * (_LENGTH - 1), -1, -5)
    return "".join(_ALPHABET[number >> shift & 31] for shift in shifts)
