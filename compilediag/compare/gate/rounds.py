"""How many pairs of runs `--ab` measures; apart from its statistics, so that help starts fast."""

from __future__ import annotations

ROUNDS = 15
FEWEST_ROUNDS = 8
"""With fewer pairs the interval of a median promises more than it holds."""
