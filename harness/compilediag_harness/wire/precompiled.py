"""Compiled code that another process made, and that this one runs without compiling."""

from __future__ import annotations

from compilediag_harness.wire.event import StepEvent, event
from compilediag_harness.wire.quoted import Location


@event
class PrecompiledLoaded(StepEvent):
    """torch put compiled code of a file or of its cache of precompiled functions in place."""

    function: Location
    entries: int
    """Compiled variants of it, each with guards of its own."""


@event
class PrecompiledCalled(StepEvent):
    """Such a function ran its compiled code for the first time."""

    function: Location
