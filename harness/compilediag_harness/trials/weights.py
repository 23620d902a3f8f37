"""Weights of the elements of a vector, by their places: a sum of weighted elements changes with the
order and the signs of these, as a norm does not."""

from __future__ import annotations

from typing import Any

_GOLDEN, _ROOT = 0.6180339887498949, 0.41421356237309515
ODD = 0x5851F42D4C957F2D


class Weights:
    """Weights that were made, by type and device."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._made: dict[Any, Any] = {}

    def get(self, like: Any) -> Any:
        """Get a weight for each element of a vector, of its type: the same in every process and on
        every device."""
        key, count = (like.dtype, like.device), like.numel()
        weights = self._made.get(key)
        if weights is None or len(weights) < count:
            size = max(256, 1 << (count - 1).bit_length())
            weights = self._made[key] = self._make(size, *key)
        return weights[:count]

    def _make(self, size: int, dtype: Any, device: Any) -> Any:
        torch = self._torch
        if not dtype.is_floating_point:
            odd = torch.arange(1, 2 * size, 2, dtype=torch.int64, device=device) * ODD
            return ((odd ^ (odd >> 29)) | 1).to(dtype)
        # Signs change, so that what all elements share does not hide what one has alone.
        position = torch.arange(1, size + 1, dtype=torch.float64, device=device)
        positive = (position * _ROOT).frac() < 0.5
        weights = 1.0 + (position * _GOLDEN).frac()
        return torch.where(positive, weights, -weights).to(dtype)
