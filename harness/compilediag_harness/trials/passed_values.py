"""Another value passed for an argument: what the program's own call would pass with a copy, another
layout or dtype, or a tensor in place of a number. Nothing of the program's is changed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from compilediag_harness.torch_internals import torch_guards, torch_names
from compilediag_harness.torch_internals.torch_open_calls import in_compiled_call, pass_instead
from compilediag_harness.wire import ArgumentChange

UNWRITTEN = "unwritten"
_DTYPE = re.compile(r"to\(torch\.(\w+)\)")

_NUMBERS: dict[str, tuple[type, ...]] = {"tensor": (int,), "tensor(torch.float64)": (int, float)}
"""Which numbers a tensor is made of without loss."""


def _with_format(name: str) -> Callable[[Any, Any], Any]:
    return lambda torch, value: value.contiguous(memory_format=getattr(torch, name))


_COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "contiguous": lambda _, value: value.contiguous(),
    "channels_last": _with_format("channels_last"),
    "channels_last_3d": _with_format("channels_last_3d"),
    "clone": lambda _, value: value.clone(),
}
"""From torch and the tensor; the tensor itself where it is as wanted."""


def is_known(action: str) -> bool:
    """Whether an action passes another value, or looks whether one is written into."""
    return action in (UNWRITTEN, *_NUMBERS, *_COPIES) or _DTYPE.fullmatch(action) is not None


class _ThisCall(threading.local):
    def __init__(self) -> None:
        self.watched: list[tuple[str, Any, Callable[[Any], bool]]] = []


class PassedValues:
    """The values that are passed in calls in progress."""

    def __init__(self) -> None:
        self._this = _ThisCall()

    def replace(self, change: ArgumentChange, value: Any, where: int | str | None) -> str | None:
        """Passes another value in the outermost call that begins; why it cannot be."""
        torch: Any = torch_names.loaded("torch")
        if change.action in _NUMBERS:
            if type(value) not in _NUMBERS[change.action]:
                return f"{change.argument} is {type(value).__name__}, not a number"
            dtype = None if change.action == "tensor" else torch.float64
            return _pass(change, torch.tensor(value, dtype=dtype), where)
        if not torch_guards.is_tensor(value):
            return f"{change.argument} is no tensor"
        if change.action == UNWRITTEN:
            self._watch(change.label, torch, value)
            return None
        other = _other(torch, change.action, value)
        if other is value:
            return None
        self._watch(change.label, torch, other)
        return _pass(change, other, where)

    def _watch(self, label: str, torch: Any, value: Any) -> None:
        if value.is_inference():  # has no version
            before = value.clone()
            self._this.watched.append((label, value, lambda now: not torch.equal(now, before)))
        else:
            version = value._version
            self._this.watched.append((label, value, lambda now: now._version != version))

    def written(self) -> Iterator[str]:
        """The labels of changes whose value was written into, when an outermost call has ended."""
        if in_compiled_call():
            return
        watched, self._this.watched = self._this.watched, []
        for label, value, is_written in watched:
            if is_written(value):
                yield label


def _other(torch: Any, action: str, value: Any) -> Any:
    dtype = _DTYPE.fullmatch(action)
    if dtype is None:
        return _COPIES[action](torch, value)
    wanted = getattr(torch, dtype[1])
    if not isinstance(wanted, torch.dtype):
        raise TypeError(f"torch.{dtype[1]} is no dtype")
    return value.to(wanted)


def _pass(change: ArgumentChange, value: Any, where: int | str | None) -> str | None:
    if where is None:
        return f"{change.argument} is no argument of its own in this call"
    pass_instead(where, value)
    return None
