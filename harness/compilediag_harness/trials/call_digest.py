"""Digest of what one call returned, made where its tensors lie: nothing waits for a device, and
no mode, subclass or autocast of the program sees the operations.

Floating tensors are folded into sums that may be compared within a tolerance, everything else into
a checksum. Digests become numbers of the host in batches.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import get_class
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.torch_internals.torch_names import get_imported
from compilediag_harness.trials.sampled_values import MAX_DEPTH, list_members
from compilediag_harness.trials.weights import ODD, Weights
from compilediag_harness.wire import NOT_COMPARED, CallDigest

LARGE = 1e3
"""A tensor is folded twice, measured in it: with what is larger fading out, and all by a logarithm.
Neither an attention mask (-1e4, -1e9) nor what lies beside it hides the other, and there is no
threshold that rounding could cross."""

CHUNK, CPU_CHUNK = 1 << 22, 1 << 15
"""Elements that are folded at once: temporary tensors and weights are not larger. On the CPU they
fit into its cache, and one thread does them."""

_FLOORS = {"float16": 1e-2, "bfloat16": 1e-5 / 1.6e-2, "float64": 1.0}
"""`atol / rtol` of `torch.testing.assert_close` by dtype: an element below it is compared by
`atol`."""
_FLOOR = 1e-5 / 1.3e-6
"""Of float32, and of Python's numbers: what a tensor may stand for."""

_GOLDEN = 0.6180339887498949
_CHECKSUM = (1 << 52) - 1
"""Bits of a checksum that become a float64 without loss."""
_NORMS = (2, 4)
"""Places of norms in what a chunk is folded into."""
_SUMS = 5
"""Sums and norms of a floating tensor."""

_HASHED = ("str", "bytes", "complex", "Size", "dtype", "device", "layout", "memory_format")
"""Types of Python and torch whose values are compared by their text."""


MAX_LEAVES = 4096
"""Of a call, after which no more objects are looked into."""


class _Plain:
    """An object whose attributes are all that it holds: one that is larger holds something else,
    as a container or what is written in C does."""


_memory = torch_api.OwnMemory()


class _Leaf(NamedTuple):
    """One compared value of a call."""

    place: int
    """Among all of the call."""
    elements: int
    floor: float | None
    """Size below which an element is compared by `atol`; None where it is compared bit for bit."""


class _Part(NamedTuple):
    """Parts that were folded on one stream or device."""

    place: Any
    leaves: list[_Leaf]
    numbers: Any
    """One vector of float64: the sums of the floating leaves, then the checksums of all."""


@dataclass(slots=True)
class PendingDigest:
    """Digest of a call whose numbers may not have been computed yet."""

    structure: str
    """Containers and leaves without values: "(float32[4,8], int64[4], None)"; "opaque:Type" for a
    value that is not compared, `NOT_COMPARED` and a reason where nothing is."""
    parts: list[_Part] = field(default_factory=list[_Part])


class CallDigester:
    """Makes digests of what calls return; for one process."""

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._guards = torch_api.list_guards_below_modes()
        self._weights = Weights(torch_module)

    def begin(self, value: Any) -> PendingDigest:
        """Begin the digest of a value. No reference to the value is kept. Raises what torch raises
        where there is no memory."""
        functions, modes, autocast = self._guards
        with functions(), modes(), autocast(), self._torch.no_grad():
            return self.fold(value)

    def fold(self, value: Any) -> PendingDigest:
        """Fold a value as `begin` does, in view of the program's modes."""
        torch = self._torch
        held: list[tuple[Any, float]] = []
        structure = self._describe(value, MAX_DEPTH, held)
        if any(tensor.is_cuda for tensor, _ in held) and torch.cuda.is_current_stream_capturing():
            return PendingDigest(f"{NOT_COMPARED}a CUDA graph is captured")
        with _memory.allocate_on(dict.fromkeys(tensor.device for tensor, _ in held)):
            return PendingDigest(structure, self._fold_tensors(held))

    def _fold_tensors(self, held: list[tuple[Any, float]]) -> list[_Part]:
        torch = self._torch
        folded: dict[Any, tuple[list[_Leaf], list[Any], list[Any]]] = {}
        for index, (tensor, floor) in enumerate(held):
            flat = _flatten(torch, tensor)
            # What is folded on a stream must be read on it.
            place = torch.cuda.current_stream(flat.device) if flat.is_cuda else flat.device
            leaves, sums, checksums = folded.setdefault(place, ([], [], []))
            least = floor / LARGE if flat.is_floating_point() else None
            leaves.append(_Leaf(index, max(flat.numel(), 1), least))
            *floats, checksum = self._fold_tensor(flat)
            sums += floats
            checksums.append(checksum)
        made: list[_Part] = []
        for place, (leaves, sums, checksums) in folded.items():
            joined = (torch.stack(checksums) & _CHECKSUM).double()
            # Sums of tensors of different dtypes are joined too.
            parts = [torch.cat([one.reshape(1) for one in sums]).double()] if sums else []
            made.append(_Part(place, leaves, torch.cat([*parts, joined])))
        return made

    def _describe(self, value: Any, depth: int, held: list[tuple[Any, float]]) -> str:
        """Describe a value without its content, and add what is compared of it to `held`."""
        kind = get_class(value)
        members, (begin, end) = list_members(kind, value) if depth else None, "()"
        if members is None and depth and len(held) <= MAX_LEAVES:
            members, (begin, end) = self._list_attributes(kind, value), "{}"
        if members is None:
            return self._describe_leaf(kind, value, held)
        texts = [(name, self._describe(member, depth - 1, held)) for name, member in members]
        if kind is tuple:
            return f"({', '.join(text for _, text in texts)})"
        return f"{kind.__name__}{begin}{', '.join(f'{name}={text}' for name, text in texts)}{end}"

    def _list_attributes(self, kind: Any, value: Any) -> list[tuple[str, Any]] | None:
        """List the attributes of an object that has nothing else, such as a cache of transformers;
        None of any other, and of a module."""
        slots = any(base.__dict__.get("__slots__") for base in kind.__mro__)
        is_larger = slots or kind.__basicsize__ != _Plain.__basicsize__
        if is_larger or issubclass(kind, self._torch.nn.Module):
            return None
        try:
            held: dict[str, Any] = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return None
        return [(f".{name}", member) for name, member in held.items()]

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
        """Fold a tensor: of a floating one `_SUMS`, and a checksum of which elements are not
        finite; else a checksum of all."""
        torch = self._torch
        size = CPU_CHUNK if flat.is_cpu else CHUNK
        rows = [self._fold_chunk(chunk) for chunk in flat.split(size)]
        if len(rows) == 1:
            return rows[0]
        columns = [torch.stack(column) for column in zip(*rows, strict=True)]
        sums = [(column * self._weights.get(column)).sum() for column in columns]
        for place in _NORMS if flat.is_floating_point() else ():
            sums[place] = torch.linalg.vector_norm(columns[place])
        return sums

    def _fold_chunk(self, values: Any) -> list[Any]:
        torch = self._torch
        if not values.is_floating_point():
            values = values.to(torch.int64)
            return [(values * self._weights.get(values)).sum()]
        if values.dtype != torch.float64:
            values = values.float()
        finite = torch.nan_to_num(values, 0.0, 0.0, 0.0)
        kinds = torch.nan_to_num(values - finite, 3.0, 2.0, 1.0).to(torch.int32)
        checksum = (kinds * self._weights.get(kinds)).sum()
        values = finite / LARGE
        square = values * values
        small = values / (1.0 + square * square)
        logarithm = torch.copysign(values.abs().log1p(), values)
        weights, norm = self._weights.get(values), torch.linalg.vector_norm
        sums = [small.sum(), (small * weights).sum(), norm(small)]
        return [*sums, (logarithm * weights).sum(), norm(logarithm), checksum]


def _flatten(torch: Any, tensor: Any) -> Any:
    flat = tensor.detach()
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj())
    flat = flat.resolve_neg().reshape(-1)
    # What has no arithmetic of its own is compared bit for bit.
    is_small = flat.is_floating_point() and flat.element_size() == 1
    return flat.view(torch.uint8) if is_small else flat


class DigestBatch:
    """Digests on their way to the host."""

    def __init__(self, pending: Sequence[PendingDigest]) -> None:
        """Begin to copy them; nothing is waited for."""
        torch: Any = get_imported("torch")
        self._pending = tuple(pending)
        self._vectors: dict[Any, Any] = {}
        self._events: list[Any] = []
        parts: dict[Any, list[Any]] = {}
        for digest in pending:
            for part in digest.parts:
                parts.setdefault(part.place, []).append(part.numbers)
        with torch.no_grad():
            for place, vectors in parts.items():
                self._vectors[place] = self._copy(torch, place, vectors)

    def _copy(self, torch: Any, place: Any, vectors: list[Any]) -> Any:
        if not vectors[0].is_cuda:
            return torch.cat(vectors)
        with torch.cuda.stream(place), _memory.allocate_on([place.device]):
            vector = torch.cat(vectors)
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
        numbers: dict[Any, Iterator[float]] = {
            place: iter(vector.tolist()) for place, vector in self._vectors.items()
        }
        digests: list[CallDigest] = []
        for digest in self._pending:
            total = weighted = magnitude = 0.0
            exact = 0
            for place, leaves, vector in digest.parts:
                read: list[float] = list(islice(numbers[place], len(vector)))
                sums = iter(read)
                for leaf, checksum in zip(leaves, read[-len(leaves) :], strict=True):
                    index, count, floor = leaf
                    exact += int(checksum) * (2 * index + 1) * ODD
                    if floor is None:
                        continue
                    one, other, norm, logarithm, log_norm = islice(sums, _SUMS)
                    # Each by its scale, and with a weight of its own.
                    coefficient = 1.0 + (index + 1) * _GOLDEN % 1.0
                    least, size = count * floor**2, log_norm / math.sqrt(count)
                    scale, log_scale = math.sqrt(norm**2 + least), math.sqrt(log_norm**2 + least)
                    total += coefficient * one / scale
                    weighted += coefficient * (other / scale + logarithm / log_scale)
                    magnitude += coefficient * (math.log(scale) + size)
            digests.append(CallDigest(total, weighted, magnitude, _wrap(exact)))
        return digests


def _wrap(value: int) -> int:
    """Wrap an integer around, as one of 64 bits does."""
    half = 1 << 63
    return (value + half) % (2 * half) - half
