"""Which line of the program set the stance that is in force."""

from __future__ import annotations

import os
import types

from compilediag_harness.source.source_locations import is_library
from compilediag_harness.torch_internals import torch_stances
from compilediag_harness.wire import Location

EAGER = frozenset(("force_eager", "eager_on_recompile"))
"""Stances under which no call compiles, and nothing is reported."""

_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_set_at: Location | None = None


def stance_set(frame: types.FrameType | None) -> None:
    """A stance was set in `frame`: the innermost line below it that is not torch's."""
    global _set_at
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    code = None if frame is None else frame.f_code
    _set_at = code and frame and Location(code.co_filename, frame.f_lineno, code.co_name)


def eager_stance() -> tuple[str, Location | None] | None:
    """The stance in force, if it compiles nothing and the program set it; and the line that did,
    None where it was set before we looked."""
    known = torch_stances.stance()
    # A trial of `FixedShape` runs eager on purpose.
    ours = _set_at is not None and _set_at.file.startswith(_OURS)
    return None if known not in EAGER or ours else (known, _set_at)
