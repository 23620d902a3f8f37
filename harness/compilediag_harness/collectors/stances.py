"""Which line of the program set the stance that is in force."""

from __future__ import annotations

import types

from compilediag_harness.blame.source_locations import is_library, is_ours
from compilediag_harness.torch_internals import torch_stances
from compilediag_harness.wire import Location

EAGER = frozenset(("force_eager", "eager_on_recompile"))
"""Stances under which no call compiles, and nothing is reported."""

_program_set: str | None = None
"""The stance that the program set last; None where it has set none since we look."""
_set_at: Location | None = None


def stance_set(stance: str, frame: types.FrameType | None) -> None:
    """A stance was set in `frame`: at the innermost line below it that is not torch's. A trial of
    `FixedShape` sets one for itself and puts back the program's, which stays the program's."""
    global _program_set, _set_at
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        _program_set, _set_at = stance, None
    elif not is_ours(frame.f_code.co_filename):
        code = frame.f_code
        _program_set, _set_at = stance, Location(code.co_filename, frame.f_lineno, code.co_name)


def eager_stance() -> tuple[str, Location | None] | None:
    """The stance in force, if it compiles nothing and the program set it; and the line that did,
    None where it was set before we looked."""
    known = torch_stances.stance()
    ours = _program_set is not None and known != _program_set
    return None if known not in EAGER or ours else (known, _set_at)
