"""What one step writes into buffers that it has filled with one value before: how many bytes were
filled, and how many of them were written again."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compilediag_harness.source import source_locations
from compilediag_harness.source.packing_source import Packing, elements_at, packing_at
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import Location, PackedBuffer

KINDS = frozenset({"setitem", "copy_"})
"""Kinds of writes: `buffer[...] = value`, `buffer[...].copy_(value)`."""

MAX_STORES = 4096
"""Looked at in one step; a step with more of them reports no buffer."""

_Key = tuple[types.CodeType, str, int]
"""Code, name of the buffer, and the line that fills it."""


@dataclass(slots=True)
class Buffer:
    """One buffer, as far as the step has come."""

    packing: Packing
    line: int
    buffers: int = 0
    stores: int = 0
    buffer_bytes: int = 0
    written_bytes: int | None = 0
    """None: it is not known of one of the stores."""
    seconds: float | None = 0.0
    filled: set[int] = field(default_factory=set[int])
    """Memory that was filled in this step."""


class PackingSample:
    """The packings of one thread in one step, as they come."""

    def __init__(self) -> None:
        self._buffers: dict[_Key, Buffer] = {}
        self._stores = 0

    def begun(self, kind: str, tensor: Any, frame: types.FrameType) -> Buffer | None:
        """A write into a tensor begins; None where it is no packing."""
        code, line = frame.f_code, frame.f_lineno
        if source_locations.is_library(code.co_filename):
            return None
        packing = packing_at(code, line)
        if packing is None:
            return None
        self._stores += 1
        if self._stores > MAX_STORES:
            return None
        key = (code, packing.name, packing.fill_line)
        buffer = self._buffers.get(key)
        if buffer is None:
            buffer = self._buffers[key] = Buffer(packing, line)
        buffer.stores += 1
        facts = torch_guards.memory_of(tensor)
        if facts is None:
            buffer.written_bytes = None
            return buffer
        if facts.fresh or facts.storage not in buffer.filled:
            buffer.filled.add(facts.storage)
            buffer.buffers += 1
            buffer.buffer_bytes += facts.storage_bytes
        elements = facts.elements if kind == "copy_" else _elements(packing, facts.shape, frame)
        if elements is None or buffer.written_bytes is None:
            buffer.written_bytes = None
        else:
            buffer.written_bytes += elements * facts.element_bytes
        return buffer

    def ended(self, buffer: Buffer, seconds: float | None) -> None:
        """The write has ended."""
        known = buffer.seconds is not None and seconds is not None
        buffer.seconds = (buffer.seconds or 0.0) + (seconds or 0.0) if known else None

    def buffers(self) -> tuple[PackedBuffer, ...]:
        """Every buffer of the step; none where there were more stores than are looked at."""
        if self._stores > MAX_STORES:
            return ()
        return tuple(
            PackedBuffer(
                place=Location(code.co_filename, buffer.line, code.co_name),
                name=name,
                fill=buffer.packing.fill,
                fill_line=fill_line,
                buffers=buffer.buffers,
                stores=buffer.stores,
                buffer_bytes=buffer.buffer_bytes,
                written_bytes=buffer.written_bytes,
                seconds=buffer.seconds,
            )
            for (code, name, fill_line), buffer in self._buffers.items()
        )


def _elements(packing: Packing, shape: tuple[int, ...], frame: types.FrameType) -> int | None:
    """Elements that a store writes: as its index shows, else at least those of its value."""
    names: Mapping[str, Any] = frame.f_locals
    elements = elements_at(packing.index, shape, names)
    if elements is not None or packing.value is None:
        return elements
    value = names.get(packing.value)
    facts = torch_guards.memory_of(value) if torch_guards.is_tensor(value) else None
    return facts.elements if facts is not None else None
