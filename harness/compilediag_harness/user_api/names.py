"""Names that a program gives to what it measures."""

from __future__ import annotations

from typing import Any

from compilediag_harness.wire import clip

MAX_NAME = 200
"""Characters of a name."""


def clip_name(value: Any) -> str:
    """Clip a name to `MAX_NAME` characters."""
    return clip(str(value), MAX_NAME)
