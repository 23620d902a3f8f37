"""One tensor brought to a fixed size: rows copied in, the rest filled so that it harms nobody.

Without gradients the padded tensor is one buffer per size that stays where it is, which CUDA graphs
need. Where autograd may keep what it was given until the backward pass, every call gets a tensor of
its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from compilediag_harness.shapes.dims import AxisDims
from compilediag_harness.shapes.shape_errors import ShapeUnusable
from compilediag_harness.torch_internals import torch_api

REPEAT = "repeat"
"""Padding repeats the last row: always valid, also for ids and indices."""

MOST_PARTS = 256
"""Sizes for which the views of one buffer are kept."""

Pad = float | int | bool | str
"""A value, or `REPEAT`."""


def read_pad(given: Any) -> dict[str, Pad]:
    """Padding by path; "" is that of every other leaf.

    Raises:
        ShapeUnusable: a value is neither a number nor "repeat".
    """
    by_path: dict[Any, Any] = (
        dict(cast(Mapping[Any, Any], given)) if isinstance(given, Mapping) else {"": given}
    )
    for path, value in by_path.items():
        if value != REPEAT and not isinstance(value, (int, float)):
            where = f" of {path!r}" if path else ""
            raise ShapeUnusable(f'pad{where} must be "repeat" or a number, not {value!r}')
    return {"": REPEAT, **{str(path): value for path, value in by_path.items()}}


def pad_of_leaf(pad: Mapping[str, Pad], path: str) -> Pad:
    """The padding of one leaf: of the longest path that it is, or is below."""
    fitting = [key for key in pad if not key or path == key or path.startswith(f"{key}.")]
    return pad[max(fitting, key=len)]


class _Parts(NamedTuple):
    """Views of a padded tensor."""

    real: Any
    tail: Any
    """The rest; None where there is none, or where it takes several views."""
    last: Any
    """The last real row; None where it is not repeated."""


class Buffer:
    """One padded tensor that stays where it is."""

    __slots__ = ("_bucket", "_dims", "_filled", "_marked", "_pad", "_parts", "tensor", "version")

    def __init__(
        self, torch: Any, like: Any, dims: AxisDims, bucket: Sequence[int], pad: Pad
    ) -> None:
        shape = list(like.shape)
        for axis, dim in dims:
            shape[dim] = bucket[axis]
        # A tensor of inference mode could not be written outside of it.
        with torch.inference_mode(mode=False):
            self.tensor = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self._dims, self._bucket, self._pad = dims, tuple(bucket), pad
        self._filled: tuple[int, ...] | None = None
        self._parts: dict[Sequence[int], _Parts] = {}
        self._marked = torch_api.mark_fixed(self.tensor, address=True)
        self.version = 0
        """Of the tensor after it was filled; one that is higher after a call was written to."""

    def fill(self, rows: Any, sizes: tuple[int, ...]) -> Any:
        """The padded tensor; `sizes`: real size of each axis."""
        tensor, held = self.tensor, self._filled
        if not self._marked:
            self._marked = torch_api.mark_fixed(tensor, address=True)
        parts = self._parts.get(sizes) or self._parts_of(sizes)
        parts.real.copy_(rows)
        if len(self._dims) > 1:
            fill(tensor, self._dims, sizes, self._bucket, self._pad)
        elif parts.tail is not None:
            if parts.last is not None:
                parts.tail.copy_(parts.last)
            else:
                self._clear(sizes, held, parts.tail)
        self._filled = sizes
        self.version = tensor._version
        return tensor

    def _clear(self, sizes: tuple[int, ...], held: tuple[int, ...] | None, tail: Any) -> None:
        """With a value only what the last call used is written again."""
        axis, dim = self._dims[0]
        value = 0 if self._pad == REPEAT else self._pad
        if held is None:
            tail.fill_(value)
        elif held[axis] > sizes[axis]:
            tail.narrow(dim, 0, held[axis] - sizes[axis]).fill_(value)

    def _parts_of(self, sizes: tuple[int, ...]) -> _Parts:
        """The views that are written to; kept, because making them costs more than copying."""
        real, tail, last = self.tensor, None, None
        for axis, dim in self._dims:
            if sizes[axis] != self._bucket[axis]:
                real = real.narrow(dim, 0, sizes[axis])
        if len(self._dims) == 1:
            axis, dim = self._dims[0]
            size, end = sizes[axis], self._bucket[axis]
            tail = self.tensor.narrow(dim, size, end - size) if size < end else None
            repeats = tail is not None and self._pad == REPEAT and size
            last = self.tensor.narrow(dim, size - 1, 1) if repeats else None
        parts = _Parts(real, tail, last)
        if len(self._parts) < MOST_PARTS:
            self._parts[sizes] = parts
        return parts

    @property
    def written(self) -> bool:
        """Something wrote to the tensor since it was filled."""
        if self.tensor._version == self.version:
            return False
        self._filled = None  # what is there now is not known
        return True


def fill(
    tensor: Any, dims: AxisDims, sizes: Sequence[int], bucket: Sequence[int], pad: Pad
) -> None:
    """Fills everything outside of the real sizes, axis by axis."""
    for place, (axis, dim) in enumerate(dims):
        size, end = sizes[axis], bucket[axis]
        if size < end:
            region = tensor
            for later, later_dim in dims[place + 1 :]:
                region = region.narrow(later_dim, 0, sizes[later])
            _write(region, region.narrow(dim, size, end - size), dim, size, pad)


def _write(region: Any, tail: Any, dim: int, size: int, pad: Pad) -> None:
    if pad != REPEAT:
        tail.fill_(pad)
    elif size == 0:
        tail.fill_(0)  # there is nothing to repeat
    else:
        tail.copy_(region.narrow(dim, size - 1, 1))


def padded(
    torch: Any, rows: Any, dims: AxisDims, sizes: Sequence[int], bucket: Sequence[int], pad: Pad
) -> Any:
    """A new padded tensor, through which gradients flow back to `rows`."""
    result = rows
    for axis, dim in dims:
        size, end = sizes[axis], bucket[axis]
        if size < end:
            tail = list(result.shape)
            tail[dim] = end - size
            if pad != REPEAT or size == 0:
                more = result.new_full(tail, 0 if pad == REPEAT else pad)
            else:
                more = result.detach().narrow(dim, size - 1, 1).expand(tail)
            result = torch.cat((result, more), dim)
    if result is rows:
        result = rows.clone(memory_format=torch.contiguous_format)
    torch_api.mark_fixed(result, address=False)
    return result
