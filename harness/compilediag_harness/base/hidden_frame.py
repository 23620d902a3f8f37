"""Leaves frames of ours out of tracebacks of the program."""

from __future__ import annotations

from typing import Any


class _HiddenFrame:
    """Leaves the frame of the function that has this `with` block out of the traceback of what is
    raised in it, which then reads as in a plain run (not on CPython 3.10)."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        # Invariant: the block stands in the very function that is to be left out: its frame is the
        # first of the traceback here.
        # What is raised again after the block does not put the frame back.
        if error is not None and traceback is not None and traceback.tb_next is not None:
            error.__traceback__ = traceback.tb_next


hide_own_frame = _HiddenFrame()
"""Encloses the call of the original in a function of ours that stands in its place."""
