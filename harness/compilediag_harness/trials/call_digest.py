"""Digest of what one call returned, made where its tensors lie: nothing waits for a device, and
no mode, subclass or autocast of the program sees the operations.

Floating tensors are folded into sums that may be compared within a tolerance, everything else into
a checksum. Digests become numbers of the host in batches.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import get_class
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.torch_internals.torch_names import get_imported
from compilediag_harness.trials.sampled_values import MAX_DEPTH, MAX_VALUES, list_members
from compilediag_harness.wire import NOT_COMPARED, CallDigest

LARGEST = 1e18
"""Of a greater element, whose square no float32 holds, only place and sign are compared."""

CHUNK, CPU_CHUNK = 1 << 22, 1 << 15
"""Elements that are folded at once: temporary tensors and weights are not larger. On the CPU they
fit into its cache, and one thread does them."""

_FLOORS = {"float16": 1e-2, "bfloat16": 1e-5 / 1.6e-2, "float64": 1.0}
"""`atol / rtol` of `torch.testing.assert_close` by dtype: an element below it is compared by
`atol`."""
_FLOOR = 1e-5 / 1.3e-6
"""Of float32, and of Python's numbers: what a tensor may stand for."""

_GOLDEN, _ROOT = 0.6180339887498949, 0.41421356237309515
_ODD = 0x5851F42D4C957F2D
_NORM = 2
"""Place of the norm in what a chunk is folded into."""

_HASHED = ("str", "bytes", "complex", "Size", "dtype", "device", "layout", "memory_format")
"""Types of Python and torch whose values are compared by their text."""


class _Leaf(NamedTuple):
    """One compared value of a call."""

    place: Any
    """Stream or device of what was folded of it."""
    floor: float | None
    """Least square of its scale; None where it is compared bit for bit."""


@dataclass(slots=True)
class PendingDigest:
    """Digest of a call whose numbers may not have been computed yet."""

    structure: str
    """Containers and leaves without values: "(float32[4,8], int64[4], None)"; "opaque:Type" for a
    value that is not compared, `NOT_COMPARED` and a reason where nothing is."""
    leaves: tuple[_Leaf, ...] = ()
    parts: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """What was folded, by stream or device: one vector of int64, four for each floating value."""
    sample: tuple[Any, ...] = ()
    """Vectors of elements, for `read_sample`."""


class CallDigester:
    """Makes digests of what calls return; for one process."""

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._guards = torch_api.list_guards_below_modes()
        self._weights: dict[Any, Any] = {}

    def begin(self, value: Any, *, sample: bool = False) -> PendingDigest:
        """Begin the digest of a value, and with `sample` take some of its elements. No reference to
        the value is kept. Raises what torch raises where there is no memory."""
        functions, modes, autocast = self._guards
        with functions(), modes(), autocast(), self._torch.no_grad():
            return self.fold(value, sample=sample)

    def fold(self, value: Any, *, sample: bool = False) -> PendingDigest:
        """Fold a value as `begin` does, in view of the program's modes."""
        torch = self._torch
        held: list[tuple[Any, float]] = []
        structure = self._describe(value, MAX_DEPTH, held)
        if any(tensor.is_cuda for tensor, _ in held) and torch.cuda.is_current_stream_capturing():
            return PendingDigest(f"{NOT_COMPARED}a CUDA graph is captured")
        leaves: list[_Leaf] = []
        folded: dict[Any, tuple[list[Any], list[Any]]] = {}
        flats = [_flatten(torch, tensor) for tensor, _ in held]
        for flat, (_, floor) in zip(flats, held, strict=True):
            # What is folded on a stream must be read on it.
            place = torch.cuda.current_stream(flat.device) if flat.is_cuda else flat.device
            is_floating = flat.is_floating_point()
            leaves.append(_Leaf(place, max(flat.numel(), 1) * floor**2 if is_floating else None))
            floats, integers = folded.setdefault(place, ([], []))
            *sums, checksum = self._fold_tensor(flat)
            floats += sums
            integers.append(checksum)
        parts = {place: _join(torch, *lists) for place, lists in folded.items()}
        taken = _take_sample(torch, flats) if sample else ()
        return PendingDigest(structure, tuple(leaves), parts, taken)

    def _describe(self, value: Any, depth: int, held: list[tuple[Any, float]]) -> str:
        """Describe a value without its content, and add what is compared of it to `held`."""
        kind = get_class(value)
        members = list_members(kind, value) if depth else None
        if members is None:
            return self._describe_leaf(kind, value, held)
        texts = [(name, self._describe(member, depth - 1, held)) for name, member in members]
        if kind is tuple:
            return f"({', '.join(text for _, text in texts)})"
        return f"{kind.__name__}({', '.join(f'{name}={text}' for name, text in texts)})"

    def _describe_leaf(self, kind: Any, value: Any, held: list[tuple[Any, float]]) -> str:
        torch = self._torch
        if issubclass(kind, torch.Tensor):
            if kind.__name__ == "DTensor" and hasattr(value, "to_local"):
                local = value.to_local()
                return f"DTensor:{self._describe_leaf(get_class(local), local, held)}"
            if not torch_api.is_plain_tensor(torch, value):
                return f"opaque:{kind.__name__}"
            dtype = str(value.dtype).removeprefix("torch.")
            held.append((value, _FLOORS.get(dtype, _FLOOR)))
            shape = tuple(map(int, value.shape))
            return f"{dtype}[{'' if shape == (1,) else ','.join(map(str, shape))}]"
        if value is None:
            return "None"
        if kind.__name__ in _HASHED and kind.__module__ in ("builtins", "torch"):
            content = hashlib.blake2b(repr(value).encode("utf-8", "replace"), digest_size=8)
            value = int.from_bytes(content.digest(), "little")
        elif kind not in (float, int, bool):
            return f"opaque:{kind.__name__}"
        number = value if kind is float else _wrap(value)
        dtype = torch.float64 if kind is float else torch.int64
        held.append((torch.tensor(number, dtype=dtype, device="cpu"), _FLOOR))
        return kind.__name__

    def _fold_tensor(self, flat: Any) -> list[Any]:
        """Fold a tensor: of a floating one its sum, its weighted sum and its norm, and a checksum
        of which elements are not finite or too large; else a checksum of all."""
        torch = self._torch
        size = CPU_CHUNK if flat.is_cpu else CHUNK
        if flat.numel() <= size:
            return self._fold_chunk(flat)
        starts = range(0, flat.numel(), size)
        rows = [self._fold_chunk(flat[start : start + size]) for start in starts]
        columns = [torch.stack(column) for column in zip(*rows, strict=True)]
        sums = [(column * self._get_weights(column)).sum() for column in columns]
        if flat.is_floating_point():
            sums[_NORM] = torch.linalg.vector_norm(columns[_NORM])
        return sums

    def _fold_chunk(self, values: Any) -> list[Any]:
        torch = self._torch
        if not values.is_floating_point():
            values = values.to(torch.int64)
            return [(values * self._get_weights(values)).sum()]
        if values.dtype != torch.float64:
            values = values.float()
        # Neither is true of NaN, one of an infinite or large element.
        below, above = values <= LARGEST, values >= -LARGEST
        values = torch.where(below & above, values, 0.0)
        places = torch.add(below.view(torch.uint8), above.view(torch.uint8), alpha=2)
        weighted = (values * self._get_weights(values)).sum()
        checksum = (places * self._get_weights(values, torch.int32)).sum()
        return [values.sum(), weighted, torch.linalg.vector_norm(values), checksum]

    def _get_weights(self, like: Any, dtype: Any = None) -> Any:
        """Get a weight for each element of a vector, of its type unless another is given: the same
        in every process and on every device."""
        key, count = (dtype or like.dtype, like.device), like.numel()
        weights = self._weights.get(key)
        if weights is None or len(weights) < count:
            size = max(256, 1 << (count - 1).bit_length())
            weights = self._weights[key] = self._make_weights(size, *key)
        return weights[:count]

    def _make_weights(self, size: int, dtype: Any, device: Any) -> Any:
        torch = self._torch
        if not dtype.is_floating_point:
            odd = torch.arange(1, 2 * size, 2, dtype=torch.int64, device=device) * _ODD
            return ((odd ^ (odd >> 29)) | 1).to(dtype)
        # Signs change, so that what all elements share does not hide what one has alone.
        position = torch.arange(1, size + 1, dtype=torch.float64, device=device)
        positive = (position * _ROOT).frac() < 0.5
        weights = 1.0 + (position * _GOLDEN).frac()
        return torch.where(positive, weights, -weights).to(dtype)


def _flatten(torch: Any, tensor: Any) -> Any:
    flat = tensor.detach()
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj())
    flat = flat.resolve_neg().reshape(-1)
    # What has no arithmetic of its own is compared bit for bit.
    is_small = flat.is_floating_point() and flat.element_size() == 1
    return flat.view(torch.uint8) if is_small else flat


def _join(torch: Any, floats: list[Any], integers: list[Any]) -> Any:
    """Join floats, by their bits, and integers into one vector."""
    vectors = [torch.stack(integers)]
    if floats:
        doubles = torch.cat([value.reshape(1) for value in floats]).double()
        vectors.insert(0, doubles.view(torch.int64))
    return torch.cat(vectors)


def _take_sample(torch: Any, flats: Sequence[Any]) -> tuple[Any, ...]:
    """Take elements, evenly spread over all tensors, in one vector a device."""
    taken: dict[Any, list[Any]] = {}
    for flat in flats[:MAX_VALUES]:
        most = max(1, MAX_VALUES // len(flats))
        step = max(1, flat.numel() // most)
        # A copy: a view would keep the whole tensor.
        taken.setdefault(flat.device, []).append(flat[::step][:most])
    return tuple(torch.cat(vectors) for vectors in taken.values())


def read_sample(sample: Iterable[Any]) -> tuple[float | None, ...]:
    """Read the elements that were taken with a digest, its `sample`; None for one that is not
    finite. Waits for the device."""
    values = [float(value) for vector in sample for value in vector.tolist()]
    return tuple(value if math.isfinite(value) else None for value in values)


class DigestBatch:
    """Digests on their way to the host."""

    def __init__(self, pending: Sequence[PendingDigest]) -> None:
        """Begin to copy them; nothing is waited for."""
        torch: Any = get_imported("torch")
        self._pending = tuple(pending)
        self._vectors: dict[Any, Any] = {}
        self._events: list[Any] = []
        places = dict.fromkeys(place for digest in pending for place in digest.parts)
        with torch.no_grad():
            for place in places:
                parts = [digest.parts[place] for digest in pending if place in digest.parts]
                self._vectors[place] = self._copy(torch, place, parts)

    def _copy(self, torch: Any, place: Any, parts: list[Any]) -> Any:
        if not parts[0].is_cuda:
            return torch.cat(parts)
        with torch.cuda.stream(place):
            vector = torch.cat(parts)
            pinned = torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True)
            pinned.copy_(vector, non_blocking=True)
            event = torch.cuda.Event()
            event.record(place)
        self._events.append(event)
        return pinned

    def is_ready(self) -> bool:
        """True if nothing has to be waited for."""
        return all(event.query() for event in self._events)

    def read(self) -> list[CallDigest]:
        """Read the digests, in their order; waits for the device where it is not ready."""
        for event in self._events:
            event.synchronize()
        vectors = {place: vector.tolist() for place, vector in self._vectors.items()}
        offsets = dict.fromkeys(vectors, 0)
        digests: list[CallDigest] = []
        for digest in self._pending:
            words: dict[Any, list[int]] = {}
            for place, part in digest.parts.items():
                start = offsets[place]
                offsets[place] = end = start + len(part)
                words[place] = vectors[place][start:end]
            digests.append(_fold_leaves(digest.leaves, words))
        return digests


def read_digests(pending: Sequence[PendingDigest]) -> list[CallDigest]:
    """Read digests, in their order. Waits for the device."""
    return DigestBatch(pending).read()


def _fold_leaves(leaves: Sequence[_Leaf], words: dict[Any, list[int]]) -> CallDigest:
    """Fold the leaves of one call, each by its scale and with a weight of its own.

    `words` are what was folded on each device: three floats a floating leaf, then all checksums.
    """
    floats: dict[Any, Iterator[float]] = {}
    integers: dict[Any, Iterator[int]] = {}
    for place, content in words.items():
        count = 3 * sum(leaf.place == place and leaf.floor is not None for leaf in leaves)
        floats[place] = iter(struct.unpack(f"{count}d", struct.pack(f"{count}q", *content[:count])))
        integers[place] = iter(content[count:])
    total = weighted = magnitude = 0.0
    exact = 0
    for index, (place, floor) in enumerate(leaves):
        exact += next(integers[place]) * (2 * index + 1) * _ODD
        if floor is not None:
            numbers = floats[place]
            one, other, norm = next(numbers), next(numbers), next(numbers)
            coefficient = 1.0 + (index + 1) * _GOLDEN % 1.0
            scale = math.sqrt(norm**2 + floor)
            total += coefficient * one / scale
            weighted += coefficient * other / scale
            magnitude += coefficient * math.log(scale)
    return CallDigest(total, weighted, magnitude, _wrap(exact))


def _wrap(value: int) -> int:
    """Wrap an integer around, as one of 64 bits does."""
    half = 1 << 63
    return (value + half) % (2 * half) - half
