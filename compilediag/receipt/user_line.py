"""The program's own line of a record, which comes first: its place, or the call above it."""

from __future__ import annotations

from compilediag.receipt.schema.compiles import (
    FindingRecord,
    FrameDetail,
    GraphBreak,
    UserCallRecord,
)
from compilediag.timeline.ownership import classify_ownership

NOT_RECORDED = "your line that led there was not recorded"


def is_foreign(owner: str | None, file: str | None) -> bool:
    """True if a place is no line of the program's own. `owner`: as the receipt has it."""
    if not file:
        return False
    return (owner or classify_ownership(file)) != "user"


def find_leading_call(record: FindingRecord | GraphBreak | FrameDetail) -> UserCallRecord | None:
    """Find the call of the program's own that comes before the place of the record: that is in a
    library or in torch, or there is none. None where the place comes first, or no call is known."""
    nowhere = isinstance(record, FindingRecord) and record.location is None
    return record.entered_at if nowhere or is_foreign_record(record) else None


def is_foreign_record(record: FindingRecord | GraphBreak | FrameDetail) -> bool:
    """True if the record's place is in a library or in torch."""
    if isinstance(record, FindingRecord):
        return is_foreign(record.ownership, record.location.file if record.location else None)
    if isinstance(record, GraphBreak):
        return is_foreign(record.ownership, record.file)
    return is_foreign(None, record.frame.file)
