"""The error of a sampled tensor against the same value in float64."""

from __future__ import annotations

import math

from compilediag_harness.wire import SampledValue

_TRUSTED = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-3}
"""Largest error of eager, of the size of the numbers: where it is larger nothing can be told from
it."""


def is_trusted(exact: SampledValue, dtype: str, error: float) -> bool:
    """True where eager is near enough to float64 for its error to be a measure."""
    if exact.dtype != "float64" or exact.norm is None:
        return False
    return error <= _TRUSTED[dtype] * exact.norm / math.sqrt(math.prod(exact.shape) or 1)


def compute_rms_error(value: SampledValue, exact: SampledValue) -> float | None:
    """Compute the root-mean-square error of a floating tensor's sample; None where it is none, or
    not all is finite."""
    floating = value.kind == "tensor" and value.dtype in _TRUSTED
    if not floating or value.not_finite or exact.not_finite or value.shape != exact.shape:
        return None
    pairs = zip(value.values, exact.values, strict=True)
    squares = [(x - y) ** 2 for x, y in pairs if x is not None and y is not None]
    return math.sqrt(sum(squares) / len(squares)) if squares else None
