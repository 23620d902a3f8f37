"""A value that the program computed, as answers: a sample, a norm and a digest of each tensor in
it. Nothing of the value is kept or changed, and no code of the program runs."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import math
from collections.abc import Iterator
from typing import Any

from compilediag_harness.base.object_graph import class_of
from compilediag_harness.torch_internals import torch_api, torch_pytree
from compilediag_harness.wire import Answer, clip

MAX_LEAVES = 64
"""Values of one output."""

MAX_VALUES = 64
"""Elements of one tensor that are written."""

MAX_DEPTH = 8
MAX_BYTES = 128 << 20
"""Of a larger tensor only the written elements are looked at."""

_CHUNK = 1 << 22
_NUMBERS = (int, float, bool)
_sequences: tuple[Any, ...] = (list, tuple)
"""Called as functions of the builtin classes: a subclass may have its own."""


class AnswerReader:
    """Reads answers; for one process."""

    def __init__(self, torch_module: Any) -> None:
        self._torch = torch_module
        self._below = torch_api.without_torch_function()

    def read(self, value: Any) -> tuple[tuple[Answer, ...], bool]:
        """The answers in a value, and whether they are all of it."""
        found: list[Answer] = []
        complete = True
        for path, leaf in leaves("", value):
            if len(found) == MAX_LEAVES:
                return tuple(found), False
            answer, whole = self.leaf(path, leaf)
            found.append(answer)
            complete = complete and whole
        return tuple(found), complete

    def leaf(self, path: str, value: Any, values: int = MAX_VALUES) -> tuple[Answer, bool]:
        """One value, and whether it is read whole. Of a tensor `values` elements are written."""
        kind = class_of(value)
        if issubclass(kind, self._torch.Tensor):
            with self._below(), self._torch.no_grad():
                return self._tensor(path, value, values)
        if kind in _NUMBERS:
            return _number(path, value), True
        plain = kind is str or kind is bytes or value is None
        digest = _digest(repr(value).encode()) if plain else ""
        return Answer(path, "other", kind.__name__, digest=digest), plain

    def _tensor(self, path: str, tensor: Any, values: int) -> tuple[Answer, bool]:
        torch = self._torch
        if not torch_api.is_plain_data(torch, tensor):
            return Answer(path, "other", type(tensor).__name__), False
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(map(int, tensor.shape))
        flat = tensor.detach().resolve_conj().resolve_neg()
        count = flat.numel()
        whole = count * flat.element_size() <= MAX_BYTES
        if whole:
            flat = flat.cpu().contiguous()
        sampled = _floats(torch, _spread(torch, flat, values)).tolist()
        answer = Answer(
            path,
            "tensor",
            dtype,
            shape,
            tuple(value if math.isfinite(value) else None for value in sampled),
        )
        if not whole:
            return answer, False
        norm, largest, not_finite = _size_of(torch, flat.reshape(-1))
        digest = _digest(_bytes_of(flat))
        return dataclasses.replace(
            answer, norm=norm, largest=largest, not_finite=not_finite, digest=digest
        ), True


def leaves(path: str, value: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """The members of containers of Python's, of torch's pytree and of dataclasses."""
    kind = class_of(value)
    members = _members(kind, value) if depth else None
    if members is None:
        yield path, value
        return
    for name, member in members:
        yield from leaves(path + name, member, depth - 1)


def _members(kind: Any, value: Any) -> list[tuple[str, Any]] | None:
    for base in _sequences:
        if kind is base or (issubclass(kind, base) and hasattr(kind, "_fields")):
            return [(f"[{index}]", member) for index, member in enumerate(base.__iter__(value))]
    if kind is dict:
        return [(f"[{clip(repr(key), 64)}]", member) for key, member in value.items()]
    if torch_pytree.is_registered(kind):
        members = torch_pytree.members_of(value)
        return [(f".{name}", m) for name, m in zip(members.names, members.values, strict=True)]
    if dataclasses.is_dataclass(kind) and hasattr(value, "__dict__"):
        held: dict[str, Any] = object.__getattribute__(value, "__dict__")
        return [(f".{name}", member) for name, member in held.items()]
    return None


def _number(path: str, value: float) -> Answer:
    try:
        as_float = float(value)
    except OverflowError:
        as_float = math.inf
    finite = math.isfinite(as_float)
    return Answer(
        path,
        "number",
        type(value).__name__,
        values=(as_float if finite else None,),
        norm=abs(as_float) if finite else None,
        largest=abs(as_float) if finite else None,
        not_finite=int(not finite),
        digest=_digest(repr(value).encode()),
    )


def _spread(torch: Any, tensor: Any, values: int) -> Any:
    """So many elements, evenly spread; all, where there are no more."""
    count = tensor.numel()
    flat = tensor.reshape(-1) if tensor.is_contiguous() else None
    if count <= values:
        return tensor.reshape(-1)
    places = [index * count // values for index in range(values)]
    if flat is not None:
        return flat[torch.tensor(places, device=flat.device)]
    # Of a large tensor that is not contiguous no copy is made.
    return torch.stack([tensor[_place(index, tensor.shape)] for index in places])


def _place(index: int, shape: Any) -> tuple[int, ...]:
    found: list[int] = []
    for size in reversed(shape):
        index, place = divmod(index, size)
        found.append(place)
    return tuple(reversed(found))


def _floats(torch: Any, tensor: Any) -> Any:
    """In float64, complex numbers as pairs."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor).reshape(-1)
    return tensor.to(device="cpu", dtype=torch.float64)


def _size_of(torch: Any, flat: Any) -> tuple[float | None, float | None, int]:
    """Euclidean norm, greatest magnitude, and how many are not finite."""
    squares, largest, not_finite = 0.0, 0.0, 0
    for start in range(0, flat.numel(), _CHUNK):
        chunk = _floats(torch, flat[start : start + _CHUNK])
        finite = chunk.isfinite()
        lost = chunk.numel() - int(finite.sum())
        if lost:
            not_finite += lost
            chunk = chunk[finite]
        if chunk.numel():
            squares += float(torch.dot(chunk, chunk))
            largest = max(largest, float(chunk.abs().max()))
    norm = math.sqrt(squares)
    return (norm if math.isfinite(norm) else None), largest, not_finite


def _bytes_of(tensor: Any) -> Any:
    """The elements of a contiguous tensor on the host, not copied."""
    size = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b""


def _digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
