"""The phases of a step, by index: what a span, a hook and the step clock agree on."""

from __future__ import annotations

DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER, SPANS = range(5)
NAMES = ("data_wait", "forward", "backward", "optimizer", "spans")

HOLDS_PHASES = -1
"""A span of this "phase" is the work itself: the phases inside it count, not the span."""

REST = "rest"
"""What no phase has."""

UNMEASURED = "unmeasured"
"""The phase of what happens while not every phase is measured."""
