"""The functions of a receipt that were loaded with compiled code."""

from __future__ import annotations

from compilediag.receipt.schema.caches import PrecompiledRecord
from compilediag.timeline.caches import Precompiled
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

KEPT = 200
"""Most functions listed."""


def precompiled_records(timeline: Timeline) -> tuple[PrecompiledRecord, ...]:
    """Each function once, in the order in which it was first loaded."""
    found: dict[Location, list[Precompiled]] = {}
    for item in timeline.precompiled:
        found.setdefault(item.function, []).append(item)
    return tuple(
        PrecompiledRecord(
            function=f"{at.function} at {at.file}:{at.line}",
            entries=sum(item.entries for item in items),
            called=any(item.called for item in items),
        )
        for at, items in list(found.items())[:KEPT]
    )
