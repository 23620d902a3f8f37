"""Results that a program prints: lines that begin with RESULT, and losses wherever they stand. The
rest of its output may have times in it, which differ in every run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
_LOSS = re.compile(rf"\b[\w./]*loss\b\W{{0,3}}({_NUMBER})\b", re.IGNORECASE)
_TOKENS = re.compile(rf"(?<![\w.]){_NUMBER}(?![\w.])")

MAX_RESULTS = 10_000

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""What is printed is rounded, four digits after the point most often."""


def results_in(output: str) -> tuple[str, ...]:
    """The results in a program's output, in their order."""
    found: list[str] = []
    for line in output.splitlines():
        if line.lstrip().startswith("RESULT"):
            found.append(line.strip())
        else:
            found += [f"loss {item}" for item in _LOSS.findall(line)]
        if len(found) > MAX_RESULTS:
            break
    return tuple(found[:MAX_RESULTS])


def left_out(before: Sequence[str], after: Sequence[str]) -> int | None:
    """How many results of a run another one does not print; None where it prints others, or in
    another order."""
    rest = iter(before)
    if all(any(same_result(old, new) for old in rest) for new in after):
        return len(before) - len(after)
    return None


def same_result(before: str, after: str) -> bool:
    """Whether two results are equal but for the rounding of their numbers."""
    if before == after:
        return True
    if _TOKENS.sub("#", before) != _TOKENS.sub("#", after):
        return False
    pairs = zip(_TOKENS.findall(before), _TOKENS.findall(after), strict=True)
    return all(_close(float(old), float(new)) for old, new in pairs)


def _close(old: float, new: float) -> bool:
    if math.isnan(old) or math.isnan(new):
        return math.isnan(old) and math.isnan(new)
    return math.isclose(old, new, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
