"""One value of a compiled call against eager: the same, beyond what eager's own rounding explains,
or not to be told.

A float counts as different where its error against float64 is larger than eager's by the rule of
torch's own accuracy checks (`same` in torch/_dynamo/utils.py). Without float64 nothing is concluded
of a number that may have been rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from compilediag.fixes.answers import difference_of, is_trusted, root_mean_square
from compilediag_harness.wire import Answer, ComparedValue

Kind = Literal["same", "differs", "unstable", "undetermined"]
"""`unstable`: two eager calls on the same input differ."""

_ADDED = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5}
"""What torch's rule adds to eager's error (`tol / 10`, and about one unit in the last place of half
types), here of numbers of size one and of larger ones in proportion."""

_MULTIPLIERS = ((10, 10.0), (500, 8.0), (1000, 3.0))
"""Most elements, and how many times eager's error is allowed: torch's own for small tensors, where
noise outweighs the error."""
_OF_HALF, _OF_FLOAT = 3.0, 2.0

_FEW, _FEW_TIMES = 10, 10.0
"""Of a few numbers eager's error may be small by chance: more is added."""

_FLOAT64_SHARE = 1e-6
"""Of float64 there is nothing more exact to compare with: so much of their size is no rounding."""

_MIN_CHANGED, _MIN_CHANGED_SHARE = 3, 0.1
"""Of the sampled whole numbers and flags of a call that rounds: fewer may be ties and thresholds
that rounding decides."""

_NEAR_OVERFLOW = {"float16": 3e4}
"""Numbers so large may be infinite by rounding."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What one value shows."""

    kind: Kind
    text: str = ""
    """The difference, or why nothing is told."""
    largest: float | None = None
    """Greatest difference between two numbers that are written."""
    eager_error: float | None = None
    """Root mean square of eager against float64, of the numbers that are written."""
    compiled_error: float | None = None


def judged(value: ComparedValue, *, floating: bool, drew_otherwise: bool = False) -> Judged:
    """What a value of a call shows.

    Args:
        value: of the call, compiled and eager.
        floating: floating tensors went into the call.
        drew_otherwise: it drew other random numbers compiled than eager.
    """
    if not value.compiled or not value.eager:
        where = "compiled" if value.compiled else "eager"
        return Judged("undetermined" if value.path else "differs", f"only {where} has it")
    compiled, eager = value.compiled[0], value.eager[0]
    if not value.stable:
        return Judged("unstable", "two eager calls on the same input differ")
    if eager.kind == "other" and not (eager.digest and compiled.digest):
        same = (eager.kind, eager.dtype) == (compiled.kind, compiled.dtype)
        return Judged("undetermined" if same else "differs", f"a {eager.dtype} is not compared")
    text, _ = difference_of(eager, compiled)
    if text is None:
        return Judged("same")
    if drew_otherwise:
        return Judged("undetermined", "it draws different random numbers compiled")
    exact = value.exact[0] if value.exact else None
    if (eager.kind, eager.dtype) != (compiled.kind, compiled.dtype):
        return Judged("differs", text)
    if eager.shape != compiled.shape:
        sure = not floating or (exact is not None and exact.shape == eager.shape)
        return Judged("differs" if sure else "undetermined", text)
    if eager.dtype.startswith(("float", "bfloat", "complex")):
        return _float(_as_tensor(compiled), _as_tensor(eager), exact and _as_tensor(exact), text)
    return _whole(compiled, eager, exact, text) if floating else Judged("differs", text)


def _as_tensor(answer: Answer) -> Answer:
    """A number of Python's that came out of a tensor is as exact as that was."""
    if answer.kind != "number":
        return answer
    return replace(answer, kind="tensor", dtype="float32", digest="")


def _float(compiled: Answer, eager: Answer, exact: Answer | None, text: str) -> Judged:
    if exact is None:
        return Judged("undetermined", "the call could not be made in float64")
    count = max(math.prod(eager.shape), 1)
    if eager.dtype == "float64":
        size = (eager.norm or 0.0) / math.sqrt(count)
        largest = _largest(compiled, eager)
        if not _same_finite(compiled, eager):
            return Judged("differs", text)
        if largest > _FLOAT64_SHARE * max(1.0, size):
            return Judged("differs", text, largest, 0.0, largest)
        return Judged("same", text, largest)
    added = _ADDED.get(eager.dtype)
    if added is None or exact.shape != eager.shape:
        return Judged("undetermined", f"{eager.dtype} has nothing more exact to compare with")
    if exact.dtype == "float32" and not exact.shape:
        exact = replace(exact, dtype="float64")
    if not _same_finite(compiled, eager):
        # It differs where eager is as finite as float64, and the numbers are far from overflow.
        near = _NEAR_OVERFLOW.get(eager.dtype, math.inf)
        if not _same_finite(eager, exact) or (exact.largest or 0.0) > near:
            return Judged("undetermined", "eager overflows where float64 does not")
        return Judged("differs", text)
    compiled, eager, exact = (replace(each, not_finite=0) for each in (compiled, eager, exact))
    eager_error, error = root_mean_square(eager, exact), root_mean_square(compiled, exact)
    if eager_error is None or error is None or not is_trusted(exact, eager.dtype, eager_error):
        return Judged("undetermined", "eager itself is far from float64")
    times = next((times for most, times in _MULTIPLIERS if count <= most), None)
    times = times or (_OF_FLOAT if eager.dtype == "float32" else _OF_HALF)
    size = (exact.norm or 0.0) / math.sqrt(count)
    added *= max(1.0, size) * (_FEW_TIMES if count <= _FEW else 1.0)
    allowed = times * eager_error + added
    if error > allowed or _norm_is_apart(compiled, eager, exact, allowed, times):
        return Judged("differs", text, _largest(compiled, eager), eager_error, error)
    return Judged("same", text, _largest(compiled, eager), eager_error, error)


def _norm_is_apart(
    compiled: Answer, eager: Answer, exact: Answer, allowed: float, times: float
) -> bool:
    """All elements are judged by the norm, beside those that are written."""
    if compiled.norm is None or eager.norm is None or exact.norm is None:
        return False
    of_eager = times * abs(eager.norm - exact.norm)
    limit = max(allowed * math.sqrt(math.prod(exact.shape)), of_eager)
    return abs(compiled.norm - exact.norm) > limit


def _same_finite(compiled: Answer, eager: Answer) -> bool:
    """The same of those that are written are finite, and as many of all."""
    if compiled.not_finite != eager.not_finite:
        return False
    pairs = zip(compiled.values, eager.values, strict=False)
    return all((x is None) == (y is None) for x, y in pairs)


def _whole(compiled: Answer, eager: Answer, exact: Answer | None, text: str) -> Judged:
    """Whole numbers and flags of a call that rounds."""
    if exact is None or exact.digest != eager.digest:
        return Judged("undetermined", "rounding may decide it: float64 gives another one, or none")
    pairs = list(zip(compiled.values, eager.values, strict=False))
    changed = sum(x != y for x, y in pairs)
    if changed >= _MIN_CHANGED and changed >= _MIN_CHANGED_SHARE * len(pairs):
        return Judged("differs", text, _largest(compiled, eager))
    return Judged("undetermined", "rounding may decide it: few values differ")


def _largest(compiled: Answer, eager: Answer) -> float:
    pairs = zip(compiled.values, eager.values, strict=False)
    return max((abs(x - y) for x, y in pairs if x is not None and y is not None), default=0.0)
