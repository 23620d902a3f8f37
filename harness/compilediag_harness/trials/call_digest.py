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
_WORD = 1 << 64

_HASHED = ("str", "bytes", "complex", "Size", "dtype", "device", "layout", "memory_format")
"""Types of Python and torch whose values are compared by their text."""


class _Leaf(NamedTuple):
    """One compared value of a call."""

    place: Any = None
    """Stream or device of what was folded of it; None for a value of the host."""
    floor: float | None = None
    """Least square of its scale; None where it is compared bit for bit."""
    value: float = 0
    """A value of the host: a number or a hash."""


@dataclass(slots=True)
class PendingDigest:
    """Digest of a call whose numbers may not have been computed yet."""

    structure: str
    """Containers and leaves without values: "(float32[4,8], int64[4], None)"; "opaque:Type" for a
    value that is not compared, `NOT_COMPARED` and a reason where nothing is."""
    leaves: tuple[_Leaf, ...] = ()
    parts: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """What was folded, by stream or device: one vector of int64, four for each floating tensor."""
    sample: tuple[Any, ...] = ()
    """Numbers, and vectors of elements."""


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
        held: list[Any] = []
        structure = self._describe(value, MAX_DEPTH, held)
        tensors = [leaf for leaf in held if isinstance(leaf, torch.Tensor)]
        if any(leaf.is_cuda for leaf in tensors) and torch.cuda.is_current_stream_capturing():
            return PendingDigest(f"{NOT_COMPARED}a CUDA graph is captured")
        leaves: list[_Leaf] = []
        folded: dict[Any, tuple[list[Any], list[Any]]] = {}
        sampled: list[Any] = []
        for leaf in held:
            if not isinstance(leaf, torch.Tensor):
                leaves.append(_make_host_leaf(leaf))
                sampled.append(leaf)
                continue
            place = _get_place(torch, leaf)
            floats, integers = folded.setdefault(place, ([], []))
            flat = _flatten(torch, leaf)
            sampled.append(flat)
            floor = _FLOORS.get(str(leaf.dtype).removeprefix("torch."), _FLOOR)
            if flat.is_floating_point():
                floats += self._fold_floats(flat, integers)
                leaves.append(_Leaf(place, max(flat.numel(), 1) * floor**2))
            else:
                integers.append(self._fold_integers(flat))
                leaves.append(_Leaf(place))
        parts = {place: _join(torch, *lists) for place, lists in folded.items()}
        taken = _take_sample(torch, sampled) if sample else ()
        return PendingDigest(structure, tuple(leaves), parts, taken)

    def _describe(self, value: Any, depth: int, held: list[Any]) -> str:
        """Describe a value without its content, and add what is compared of it to `held`."""
        kind = get_class(value)
        members = list_members(kind, value) if depth else None
        if members is None:
            return self._describe_leaf(kind, value, held)
        texts = [(name, self._describe(member, depth - 1, held)) for name, member in members]
        if kind is tuple:
            return f"({', '.join(text for _, text in texts)})"
        return f"{kind.__name__}({', '.join(f'{name}={text}' for name, text in texts)})"

    def _describe_leaf(self, kind: Any, value: Any, held: list[Any]) -> str:
        torch = self._torch
        if issubclass(kind, torch.Tensor):
            if kind.__name__ == "DTensor" and hasattr(value, "to_local"):
                local = value.to_local()
                return f"DTensor:{self._describe_leaf(get_class(local), local, held)}"
            if not torch_api.is_plain_tensor(torch, value):
                return f"opaque:{kind.__name__}"
            held.append(value)
            shape = tuple(map(int, value.shape))
            sizes = "" if shape == (1,) else ",".join(map(str, shape))
            return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
        if value is None:
            return "None"
        if kind in (float, int, bool):
            held.append(value)
            return kind.__name__
        if kind.__name__ in _HASHED and kind.__module__ in ("builtins", "torch"):
            held.append(repr(value))
            return kind.__name__
        return f"opaque:{kind.__name__}"

    def _fold_floats(self, flat: Any, integers: list[Any]) -> list[Any]:
        """Fold a floating tensor: its sum, its weighted sum and its norm; to `integers` comes the
        checksum of which elements are not finite, or too large."""
        torch = self._torch
        rows: list[tuple[Any, Any, Any, Any]] = []
        for chunk in _iterate_chunks(flat):
            values = chunk if chunk.dtype == torch.float64 else chunk.float()
            # Neither is true of NaN, one of an infinite or large element.
            below, above = values <= LARGEST, values >= -LARGEST
            values = torch.where(below & above, values, 0.0)
            places = torch.add(below.view(torch.uint8), above.view(torch.uint8), alpha=2)
            weighted = values * self._get_weights(values)
            norm = torch.linalg.vector_norm(values)
            checksum = (places * self._get_weights(values, torch.int32)).sum()
            rows.append((values.sum(), weighted.sum(), norm, checksum))
        if len(rows) == 1:
            integers.append(rows[0][3])
            return [*rows[0][:3]]
        sums, weights, norms, checksums = (
            torch.stack(column) for column in zip(*rows, strict=True)
        )
        integers.append((checksums * self._get_weights(checksums)).sum())
        total = (weights * self._get_weights(weights)).sum()
        return [sums.sum(), total, torch.linalg.vector_norm(norms)]

    def _fold_integers(self, flat: Any) -> Any:
        """Fold a tensor of integers or flags into a checksum."""
        torch = self._torch
        chunks = (chunk.to(torch.int64) for chunk in _iterate_chunks(flat))
        sums = [(chunk * self._get_weights(chunk)).sum() for chunk in chunks]
        if len(sums) == 1:
            return sums[0]
        checksums = torch.stack(sums)
        return (checksums * self._get_weights(checksums)).sum()

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


def _iterate_chunks(flat: Any) -> Iterator[Any]:
    size = CPU_CHUNK if flat.is_cpu else CHUNK
    for start in range(0, max(flat.numel(), 1), size):
        yield flat[start : start + size]


def _get_place(torch: Any, tensor: Any) -> Any:
    """Get the stream on which a tensor is folded, which what is folded must be read on; its device
    where that has none."""
    return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else tensor.device


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
    vectors = [torch.stack(integers)] if integers else []
    if floats:
        doubles = torch.cat([value.reshape(1) for value in floats]).double()
        vectors.insert(0, doubles.view(torch.int64))
    return torch.cat(vectors)


def _take_sample(torch: Any, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Take elements, evenly spread over all leaves: numbers, then one vector a device."""
    numbers = [float(leaf) for leaf in leaves if isinstance(leaf, (int, float))]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)][:MAX_VALUES]
    taken: dict[Any, list[Any]] = {}
    for flat in tensors:
        most = MAX_VALUES // len(tensors)
        step = max(1, flat.numel() // most)
        # A copy: a view would keep the whole tensor.
        taken.setdefault(flat.device, []).append(flat[::step][:most])
    return (*numbers[:MAX_VALUES], *(torch.cat(vectors) for vectors in taken.values()))


def read_sample(sample: Iterable[Any]) -> tuple[float | None, ...]:
    """Read the elements that were taken with a digest, its `sample`; None for one that is not
    finite. Waits for the device."""
    values: list[float] = []
    for part in sample:
        values += [part] if isinstance(part, float) else map(float, part.tolist())
    return tuple(value if math.isfinite(value) else None for value in values[:MAX_VALUES])


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
    for index, leaf in enumerate(leaves):
        if leaf.place is not None:
            checksum = next(integers[leaf.place])
        elif leaf.floor is None:
            checksum = int(leaf.value) * _get_first_weight(64)
        else:
            checksum = _wrap(_find_place(leaf.value) * _get_first_weight(32), 32)
        exact += checksum * (2 * index + 1) * _ODD
        if leaf.floor is None:
            continue
        if leaf.place is not None:
            numbers = floats[leaf.place]
            one, other, norm = next(numbers), next(numbers), next(numbers)
        else:
            one = leaf.value if abs(leaf.value) <= LARGEST else 0.0
            other, norm = one * (1.0 + _GOLDEN), abs(one)
        coefficient = 1.0 + (index + 1) * _GOLDEN % 1.0
        scale = math.sqrt(norm**2 + leaf.floor)
        total += coefficient * one / scale
        weighted += coefficient * other / scale
        magnitude += coefficient * math.log(scale)
    return CallDigest(total, weighted, magnitude, _wrap(exact, 64))


def _make_host_leaf(value: Any) -> _Leaf:
    if isinstance(value, str):
        digest = hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=8).digest()
        return _Leaf(value=int.from_bytes(digest, "little"))
    return _Leaf(floor=_FLOOR**2 if isinstance(value, float) else None, value=value)


def _find_place(value: float) -> int:
    """Find what a floating element has in the checksum of those that are not finite."""
    return int(value <= LARGEST) + 2 * int(value >= -LARGEST)


def _get_first_weight(bits: int) -> int:
    """Get the weight of the first integer of a vector."""
    return _wrap((_ODD ^ (_ODD >> 29)) | 1, bits)


def _wrap(value: int, bits: int) -> int:
    """Wrap an integer around, as one of so many bits with a sign does."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half
