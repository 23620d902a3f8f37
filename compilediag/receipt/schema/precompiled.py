"""Functions that were loaded with compiled code."""

from compilediag.receipt.schema.record import Record


class PrecompiledRecord(Record, frozen=True, kw_only=True):
    """One function, over all processes."""

    function: str
    entries: int
    called: bool
