"""One tensor brought to a fixed size: rows copied in, the rest filled with harmless values.

Without gradients the padded tensor is one buffer per size that stays where it is, which CUDA graphs
need. Where autograd may keep its inputs until the backward pass, every call gets its own tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from compilediag_harness.shapes.dims import (
    AxisDims,
    ShapeUnusable,
    Sizes,
    compute_shape,
    cut_to_sizes,
)
from compilediag_harness.torch_internals import torch_api

REPEAT = "repeat"
"""Padding repeats the last row: always valid, also for ids and indices."""

MAX_VIEWS = 256
"""Sizes for which the views of one buffer are stored."""

Pad = float | int | bool | str
"""A value, or `REPEAT`."""


def read_pad(given: Any) -> dict[str, Pad]:
    """Read the user's padding, by path; "" is that of every other leaf.

    Raises:
        ShapeUnusable: a value is neither `REPEAT` nor a number.
    """
    by_path: dict[Any, Any] = (
        dict(cast(Mapping[Any, Any], given)) if isinstance(given, Mapping) else {"": given}
    )
    for path, value in by_path.items():
        if value != REPEAT and not isinstance(value, (int, float)):
            where = f" of {path!r}" if path else ""
            raise ShapeUnusable(f'pad{where} must be "repeat" or a number, not {value!r}')
    return {"": REPEAT, **{str(path): value for path, value in by_path.items()}}


class _Views(NamedTuple):
    real: Any
    tail: Any
    """The rest; None where there is none, or where it takes several views."""
    last: Any
    """The last real row; None where it is not repeated."""


class Buffer:
    """One padded tensor that stays where it is."""

    __slots__ = ("_bucket", "_dims", "_filled", "_marked", "_pad", "_version", "_views", "tensor")

    def __init__(self, torch: Any, like: Any, dims: AxisDims, bucket: Sizes, pad: Pad) -> None:
        shape = compute_shape(like, dims, bucket)
        # A tensor of inference mode could not be written outside it.
        with torch.inference_mode(mode=False):
            self.tensor = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self._dims, self._bucket, self._pad = dims, bucket, pad
        self._filled: Sizes | None = None
        self._views: dict[Sizes, _Views] = {}
        self._marked = torch_api.mark_fixed(self.tensor, address=True)
        self._version = 0
        """Of the tensor after it was filled; one that is higher after a call was written to."""

    def fill(self, rows: Any, sizes: Sizes) -> Any:
        """Fill the padded tensor and return it; `sizes`: real size of each axis."""
        tensor = self.tensor
        if not self._marked:
            self._marked = torch_api.mark_fixed(tensor, address=True)
        views = self._views.get(sizes) or self._make_views(sizes)
        views.real.copy_(rows)
        (axis, dim), *others = self._dims
        if others:
            _fill_padding(tensor, self._dims, sizes, self._bucket, self._pad)
        elif views.last is not None:
            views.tail.copy_(views.last)
        elif views.tail is not None:
            # With a value only the rows of the last call are written again.
            value = 0 if self._pad == REPEAT else self._pad
            if self._filled is None:
                views.tail.fill_(value)
            elif self._filled[axis] > sizes[axis]:
                views.tail.narrow(dim, 0, self._filled[axis] - sizes[axis]).fill_(value)
        self._filled = sizes
        self._version = tensor._version
        return tensor

    def _make_views(self, sizes: Sizes) -> _Views:
        """Make the views that are written to; stored, as making them costs more than copying."""
        tail = last = None
        axis, dim = self._dims[0]
        size, end = sizes[axis], self._bucket[axis]
        if len(self._dims) == 1 and size < end:
            tail = self.tensor.narrow(dim, size, end - size)
            if self._pad == REPEAT and size:
                last = self.tensor.narrow(dim, size - 1, 1)
        views = _Views(cut_to_sizes(self.tensor, self._dims, sizes), tail, last)
        if len(self._views) < MAX_VIEWS:
            self._views[sizes] = views
        return views

    @property
    def written(self) -> bool:
        """Something wrote to the tensor since it was filled."""
        if self.tensor._version == self._version:
            return False
        self._filled = None  # its contents are not known any more
        return True


def _fill_padding(tensor: Any, dims: AxisDims, sizes: Sizes, bucket: Sizes, pad: Pad) -> None:
    """Fills everything outside the real sizes, axis by axis."""
    for index, (axis, dim) in enumerate(dims):
        size, end = sizes[axis], bucket[axis]
        if size == end:
            continue
        region = tensor
        for later, later_dim in dims[index + 1 :]:
            region = region.narrow(later_dim, 0, sizes[later])
        tail = region.narrow(dim, size, end - size)
        if pad == REPEAT and size:
            tail.copy_(region.narrow(dim, size - 1, 1))
        else:
            tail.fill_(0 if pad == REPEAT else pad)


def pad_tensor(torch: Any, rows: Any, dims: AxisDims, sizes: Sizes, bucket: Sizes, pad: Pad) -> Any:
    """Make a new padded tensor, through which gradients flow back to `rows`."""
    result = rows
    for axis, dim in dims:
        size, end = sizes[axis], bucket[axis]
        if size < end:
            tail = list(result.shape)
            tail[dim] = end - size
            if pad == REPEAT and size:
                more = result.detach().narrow(dim, size - 1, 1).expand(tail)
            else:
                more = result.new_full(tail, 0 if pad == REPEAT else pad)
            result = torch.cat((result, more), dim)
    if result is rows:
        result = rows.clone(memory_format=torch.contiguous_format)
    torch_api.mark_fixed(result, address=False)
    return result
