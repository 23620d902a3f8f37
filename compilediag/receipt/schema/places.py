"""Frames, lines and calls of the program, as the parts of a receipt name them."""

from compilediag.receipt.schema.record import Record


class FrameName(Record, frozen=True, kw_only=True):
    """A frame by its code object; `line` is the first line of the function."""

    function: str
    file: str
    line: int
