"""What exactly a false TENSOR_MATCH guard found different, in the words torch prints.

The leaf itself only returns true or false; torch's message ("tensor 'x' size mismatch at index 0.
expected 4, actual 5") is made in C++ for the first failing guard of an entry alone. The same
comparison is made here for every false tensor guard, from the guard's own text and the live value.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from compilediag_harness.torch_internals import torch_guards

_CHECK = re.compile(
    r"check_tensor\((?P<source>.*), (?P<type>[\w.]+), (?P<keys>DispatchKeySet\([^)]*\)), "
    r"torch\.(?P<dtype>\w+), device=(?P<device>[^,]*), requires_grad=(?P<grad>True|False), "
    r"size=(?P<size>\[[^\]]*\]|None), stride=(?P<stride>\[[^\]]*\]|None)\)",
    re.DOTALL,
)

# c10::ScalarType as torch's C++ message prints it, where it is not the capitalised Python name.
_SCALAR_NAMES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


class Mismatch(NamedTuple):
    """`text` in torch's grammar; `expected` and `actual` as a person would compare them."""

    text: str
    expected: str
    actual: str


def mismatches_of(text: str, value: Any, tensor_type: type) -> tuple[Mismatch, ...]:
    """Every difference between the guard `check_tensor(...)` and `value`, in the order in which
    torch checks, without those that follow from another one; empty if the text cannot be read or
    nothing visible differs."""
    guard = _CHECK.match(text)
    if guard is None:
        return ()
    source = guard["source"]
    if not isinstance(value, tensor_type):
        expected, actual = f"torch.{guard['type']}", type_name(value)
        message = f"expected type of '{source}' to be <class '{expected}'>, but found "
        return (Mismatch(f"{message}<class '{actual}'>", expected, actual),)
    found = tuple(_mismatches(guard, value)) or tuple(_key_mismatch(guard, value))
    return tuple(each._replace(text=f"tensor '{source}' {each.text}") for each in found)


def type_name(value: Any) -> str:
    """The type as guards print it: "int", "torch.Tensor", "app.Config"."""
    kind: type[object] = value.__class__
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _mismatches(guard: re.Match[str], value: Any) -> Iterator[Mismatch]:
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype != guard["dtype"]:
        names = [_SCALAR_NAMES.get(name, name.capitalize()) for name in (guard["dtype"], dtype)]
        text = f"dtype mismatch. expected {names[0]}, actual {names[1]}"
        yield Mismatch(text, f"torch.{guard['dtype']}", f"torch.{dtype}")
    device = str(value.device.index)
    if device != guard["device"]:
        text = (
            "Tensor device index mismatch. Expected device index to be "
            f"{guard['device']}, actual {device}"
        )
        yield Mismatch(text, f"device index {guard['device']}", str(value.device))
    if str(bool(value.requires_grad)) != guard["grad"]:
        expected = int(guard["grad"] == "True")
        text = f"requires_grad mismatch. expected requires_grad={expected}"
        shown = f"requires_grad={value.requires_grad}"
        yield Mismatch(text, f"requires_grad={guard['grad']}", shown)
    yield from _size_mismatches(guard, value)
    if device == guard["device"]:
        yield from (each for each in _key_mismatch(guard, value) if each.expected != each.actual)


def _key_mismatch(guard: re.Match[str], value: Any) -> Iterator[Mismatch]:
    """The dispatch keys: device type, inference mode, autocast, functorch, subclass."""
    keys = torch_guards.dispatch_keys(value)
    if keys is not None:
        text = f"dispatch key set mismatch. expected {guard['keys']}, actual {keys}"
        yield Mismatch(text, guard["keys"], keys)


def _size_mismatches(guard: re.Match[str], value: Any) -> Iterator[Mismatch]:
    """Rank, then size, then stride; `None` in the guard stands for a dynamic dimension."""
    sizes, actual = _sizes(guard["size"]), list(value.shape)
    if sizes is None:
        return
    if len(sizes) != len(actual):
        text = f"rank mismatch. expected {len(sizes)}, actual {len(actual)}"
        yield Mismatch(text, _shown(sizes), _shown(actual))
        return
    resized = list(_first_difference("size", sizes, actual))
    yield from resized
    strides = _sizes(guard["stride"])
    if strides is not None and hasattr(value, "stride"):
        try:
            actual = list(value.stride())
        except (RuntimeError, NotImplementedError):  # sparse and nested tensors have none
            return
        if not resized or not _is_ordered_alike(strides, actual):
            yield from _first_difference("stride", strides, actual)


def _is_ordered_alike(one: list[int | None], other: list[int]) -> bool:
    """Whether the strides differ only as other sizes make them: the dimensions lie in memory in the
    same order. A dynamic stride has no known place."""
    pairs = [(a, b) for a, b in zip(one, other, strict=False) if a is not None]
    return all(
        (a1 > a2) == (b1 > b2) or a1 == a2 or b1 == b2
        for (a1, b1), (a2, b2) in itertools.combinations(pairs, 2)
    )


def _sizes(text: str) -> list[int | None] | None:
    """The sizes of "[None, 16]", symbolic ones as None; None for "None" itself."""
    if text == "None":
        return None
    items = [item.strip() for item in text[1:-1].split(",") if item.strip()]
    return [int(item) if item.lstrip("-").isdigit() else None for item in items]


def _first_difference(
    what: str, expected: list[int | None], actual: list[int]
) -> Iterator[Mismatch]:
    prefix = "" if what == "size" else f"{what} "
    for index, (size, found) in enumerate(zip(expected, actual, strict=False)):
        if len(expected) == len(actual) and size is not None and size != found:
            text = f"{what} mismatch at index {index}. expected {size}, actual {found}"
            yield Mismatch(text, f"{prefix}{_shown(expected)}", f"{prefix}{_shown(actual)}")
            return


def _shown(sizes: Sequence[int | None]) -> str:
    return "[" + ", ".join("*" if size is None else str(size) for size in sizes) + "]"
