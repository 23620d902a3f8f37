"""The shapes of a call's tensors, read without side effects: no torch function of the program's
runs, no symbol is guarded on, no tensor kept, no device waited for."""

from __future__ import annotations

import math
from typing import Any

from compilediag_harness.torch_internals import torch_api

Shapes = tuple[tuple[str, tuple[Any, ...]], ...]
"""Path of each tensor among the arguments, "" for those by position, and its sizes."""

MAX_TENSORS = 16
"""Tensors of one call that are looked at."""

MAX_ITEMS = 64
"""Arguments, or members of one argument, that are looked at."""

_CUT = ("...", ())


class ShapeReader:
    """Reads the shapes of plain tensors, in arguments and one container deep. Subclasses may
    run the program's own code when their shape is read: of them the class is recorded."""

    def __init__(self, torch_module: Any) -> None:
        self._without_torch_function = torch_api.without_torch_function()
        self._tensor: type = torch_module.Tensor
        self._plain = (torch_module.Tensor, torch_module.nn.Parameter)

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes:
        """The shapes of the tensors of one call."""
        found: list[tuple[str, tuple[Any, ...]]] = []
        with self._without_torch_function():
            for value in args if len(args) <= MAX_ITEMS else args[:MAX_ITEMS]:
                self._add("", value, found)
            if kwargs:
                for name in list(kwargs)[:MAX_ITEMS]:
                    self._add(name, kwargs[name], found)
        if len(found) > MAX_TENSORS:
            found[MAX_TENSORS:] = [_CUT]
        return tuple(found)

    def _add(self, path: str, value: Any, found: list[tuple[str, tuple[Any, ...]]]) -> None:
        """Adds a tensor, or the tensors of a plain container; containers of other types may run
        any code."""
        # type() and not isinstance(): a proxy's `__class__` may be the program's code.
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind in self._plain:
            found.append((path, _sizes(value)))
        elif kind is list or kind is tuple:
            for member in value[:MAX_ITEMS]:
                self._add_tensor(path, member, found)
        elif kind is dict:
            for key in list(value)[:MAX_ITEMS]:
                if type(key) is str:
                    self._add_tensor(f"{path}.{key}" if path else key, value[key], found)
        else:
            self._add_tensor(path, value, found)

    def _add_tensor(self, path: str, value: Any, found: list[tuple[str, tuple[Any, ...]]]) -> None:
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind in self._plain:
            found.append((path, _sizes(value)))
        elif issubclass(kind, self._tensor):
            found.append((path, (kind.__name__,)))


def _sizes(tensor: Any) -> tuple[Any, ...]:
    try:
        sizes = tensor.shape
    except RuntimeError:  # a nested tensor has none
        return ("nested",)
    if any(type(size) is not int for size in sizes):  # to look closer would guard on it
        return ("symbolic",)
    return sizes


def to_text(shapes: Shapes) -> str:
    """As one would write them: "[8, 16], mask=[8]"."""
    texts: list[str] = []
    for path, sizes in shapes:
        bracketed = f"[{', '.join(map(str, sizes))}]"
        text = f"{path}={bracketed}" if path else bracketed
        texts.append(path if (path, sizes) == _CUT else text)
    return ", ".join(texts)


def samples(shapes: Shapes | None) -> int | None:
    """The leading size of the first tensor that has one; None where there is none."""
    first = _first(shapes)
    return None if first is None else first[0]


def elements(shapes: Shapes | None) -> int | None:
    """The number of elements of that tensor: tokens, where it holds token ids."""
    first = _first(shapes)
    return None if first is None else math.prod(first)


def _first(shapes: Shapes | None) -> tuple[int, ...] | None:
    for _, sizes in shapes or ():
        if sizes:
            return sizes if all(type(size) is int for size in sizes) else None
    return None
