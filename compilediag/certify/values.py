"""Values of two runs compared: one sampled value, and those of the same keys in both.

Numbers of the same kind may differ by rounding, as `torch.testing.assert_close` allows for their
dtype; anything else must be equal. Tensors are compared by a sample, their norm and their digest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from compilediag.certify.points import Execution
from compilediag_harness.wire import SampledValue

TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
    "float": (1e-7, 1e-7),
}
"""Relative and absolute, of `torch.testing.assert_close`; "float" is Python's. Any other dtype must
be equal bit for bit."""

WEIGHTED = 8.0
"""So many times the tolerance of a norm is that of a weighted sum. Weights are from 1 to 2 and of
both signs: rounding, which knows nothing of them, adds up to some 1.5 times the norm of it."""

MOST_UNSTABLE = 0.25
"""Where a larger share differs between two unchanged executions, the rest says nothing."""

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class ResultComparison:
    """The results of one kind of one execution against those of another."""

    equal: int = 0  #: How many are.
    difference: str | None = None  #: The first one; None where all are equal.
    size: float = math.inf  #: Of that one, relative to its value.
    decided: bool = True  #: False where two unchanged executions differ too much to tell.
    notes: tuple[str, ...] = ()  #: What was not compared, or only in part, and why.
    shows_calls: bool = False  #: It depends on what compiled calls return.
    further: Execution | None = None  #: What could tell whether the difference counts.


def get_cap(dtypes: Collection[str]) -> float:
    """Get the largest relative difference that can be rounding in values of these dtypes."""
    coarse = ("float16", "bfloat16", "complex32")
    return 1e-1 if any(dtype in coarse for dtype in dtypes) else 1e-3


def is_rounding(size: float, yardstick: float, cap: float) -> bool:
    """True where a relative difference is no larger than three times that of eager, nor than
    rounding can be at all."""
    return size <= min(3 * yardstick, cap)


def compare_values(
    before: Mapping[Key, SampledValue],
    after: Mapping[Key, SampledValue],
    again: Mapping[Key, SampledValue] | None,
    eager: Mapping[Key, SampledValue] | None,
) -> ResultComparison:
    """Compare values that two executions have under the same keys; see `judge` for the others."""
    equal, unstable = 0, list[Key]()
    words, first_size, decided = None, 0.0, True
    for key, value in before.items():
        other = after.get(key)
        if other is None:
            continue
        difference, size = find_difference(value, other)
        if difference is None:
            equal += value.kind != "other" or bool(value.digest and other.digest)
            continue
        repeated = value if again is None else again.get(key)
        if repeated is None or find_difference(value, repeated)[0] is not None:
            unstable.append(key)
            continue
        cap, yardstick = get_cap({value.dtype}), 0.0
        if eager is not None and key in eager and value.dtype in TOLERANCES:
            yardstick = find_difference(value, eager[key])[1]
        if yardstick <= cap and is_rounding(size, yardstick, cap):
            equal += 1
        elif words is None:
            words, first_size, decided = f"{key}: {difference}", size, yardstick <= cap
    notes = tuple(f"not compared, differs when unchanged: {key}" for key in unstable)
    if len(unstable) > MOST_UNSTABLE * len(before):
        why = f"{len(unstable)} of {len(before)} values differ when nothing is changed"
        return ResultComparison(difference=why, decided=False, notes=notes)
    return ResultComparison(equal, words, first_size, decided, notes)


def find_difference(before: SampledValue, after: SampledValue) -> tuple[str | None, float]:
    """Find the first difference between two values, where a number and a tensor of one element
    are equal by value, and so are the shapes () and (1,).

    Returns:
        The difference in words, None where they are the same within tolerance; and the greatest
        difference of their numbers, relative to the largest of them or 1, infinity where they
        cannot be subtracted.
    """
    both = before, after
    kinds = {value.kind for value in both}
    one = all(math.prod(value.shape) == 1 and value.values for value in both)
    by_value = kinds == {"number", "tensor"} or (
        kinds == {"tensor"} and before.dtype == after.dtype and before.shape != after.shape
    )
    tolerances = [TOLERANCES.get(value.dtype, (0.0, 0.0)) for value in both]
    if one and by_value:
        # What is compared has no shape and no digest: that of a number is made of its text.
        before, after = (replace(v, shape=(), norm=None, values=v.values[:1]) for v in both)
    elif (before.kind, before.dtype, before.shape) != (after.kind, after.dtype, after.shape):
        return f"{_format_kind(before)} → {_format_kind(after)}", math.inf
    elif before.digest and before.digest == after.digest:
        return None, 0.0
    elif before.dtype not in TOLERANCES:
        known = before.digest and after.digest
        same = not known and before.values == after.values
        return (None, 0.0) if same else (_format_difference(before, after), math.inf)
    elif before.not_finite != after.not_finite:
        return f"{before.not_finite} → {after.not_finite} values that are not finite", math.inf
    relative, absolute = map(max, zip(*tolerances, strict=True))
    difference, error = _compare_numbers(before, after, relative, absolute)
    return difference, error / max(1.0, before.largest or 0.0)


def _compare_numbers(
    before: SampledValue, after: SampledValue, relative: float, absolute: float
) -> tuple[str | None, float]:
    """Compare numbers. The absolute tolerance grows with the largest number: sums of large numbers
    round like them."""
    absolute *= max(1.0, before.largest or 0.0)
    error = 0.0
    for old, new in zip(before.values, after.values, strict=True):
        if old is None or new is None:
            if old is not new:
                return f"{_format_number(old)} → {_format_number(new)}", math.inf
            continue
        error = max(error, abs(new - old))
        if abs(new - old) > absolute + relative * abs(old):
            return f"{_format_number(old)} → {_format_number(new)}", abs(new - old)
    if before.norm is not None and after.norm is not None:
        count = math.prod(before.shape) if before.shape else 1
        if abs(after.norm - before.norm) > absolute * math.sqrt(count) + relative * before.norm:
            text = f"norm {_format_number(before.norm)} → {_format_number(after.norm)}"
            return text, abs(after.norm - before.norm)
        apart = abs((after.weighted or 0.0) - (before.weighted or 0.0))
        if apart > WEIGHTED * (absolute * math.sqrt(count) + relative * before.norm):
            return "the order or the signs of its elements, or some of them", apart
    return None, error


def _format_kind(value: SampledValue) -> str:
    shape = str(list(value.shape)) if value.kind == "tensor" else ""
    return f"{value.dtype or value.kind}{shape}"


def _format_difference(before: SampledValue, after: SampledValue) -> str:
    if before.values and after.values and before.values != after.values:
        pairs = zip(before.values, after.values, strict=False)
        old, new = next(pair for pair in pairs if pair[0] != pair[1])
        return f"{_format_number(old)} → {_format_number(new)}"
    return f"another {before.dtype}"


def _format_number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"
