"""What exactly a false TENSOR_MATCH guard found different, in the words torch prints.

The leaf itself only says yes or no; torch's message ("tensor 'x' size mismatch at index 0.
expected 4, actual 5") is made in C++ for the first failing guard of an entry alone. The same
comparison is made here for every false tensor guard, from the guard's own text and the live value.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from compilediag_harness.torch_internals import torch_guards

_CHECK = re.compile(
    r"check_tensor\((?P<source>.*), (?P<type>[\w.]+), (?P<keys>DispatchKeySet\([^)]*\)), "
    r"torch\.(?P<dtype>\w+), device=(?P<device>[^,]*), requires_grad=(?P<grad>True|False), "
    r"size=(?P<size>\[[^\]]*\]|None), stride=(?P<stride>\[[^\]]*\]|None)\)",
    re.DOTALL,
)

# Dispatch-key words of ScalarType as torch's C++ message spells them, where they are not the
# capitalised Python name.
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
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


class Mismatch(NamedTuple):
    """`text` in torch's grammar; `expected` and `actual` as a person would compare them."""

    text: str
    expected: str
    actual: str


def mismatch_of(text: str, value: Any, tensor_type: type) -> Mismatch | None:
    """What differs between the guard `check_tensor(...)` and `value`; None if the text cannot be
    read or nothing visible differs."""
    found = _CHECK.match(text)
    if found is None:
        return None
    source = found["source"]
    if not isinstance(value, tensor_type):
        name = type_name(value)
        message = (
            f"expected type of '{source}' to be <class 'torch.{found['type']}'>, "
            f"but found <class '{name}'>"
        )
        return Mismatch(message, f"torch.{found['type']}", name)
    for check in (_dtype, _device, _requires_grad, _sizes, _keys):
        mismatch = check(source, found, value)
        if mismatch is not None:
            return mismatch
    return None


def type_name(value: Any) -> str:
    """The type as guards print it: "int", "torch.Tensor", "app.Config"."""
    kind: type[object] = value.__class__
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _dtype(source: str, guard: re.Match[str], value: Any) -> Mismatch | None:
    actual = str(value.dtype).removeprefix("torch.")
    if actual == guard["dtype"]:
        return None
    spelled = tuple(_SCALAR_NAMES.get(n, n.capitalize()) for n in (guard["dtype"], actual))
    text = f"tensor '{source}' dtype mismatch. expected {spelled[0]}, actual {spelled[1]}"
    return Mismatch(text, f"torch.{guard['dtype']}", f"torch.{actual}")


def _device(source: str, guard: re.Match[str], value: Any) -> Mismatch | None:
    actual = str(value.device.index)
    if actual == guard["device"]:
        return None
    text = (
        f"tensor '{source}' Tensor device index mismatch. Expected device index to be "
        f"{guard['device']}, actual {actual}"
    )
    return Mismatch(text, f"device index {guard['device']}", str(value.device))


def _requires_grad(source: str, guard: re.Match[str], value: Any) -> Mismatch | None:
    if str(bool(value.requires_grad)) == guard["grad"]:
        return None
    expected = int(guard["grad"] == "True")
    text = f"tensor '{source}' requires_grad mismatch. expected requires_grad={expected}"
    return Mismatch(text, f"requires_grad={guard['grad']}", f"requires_grad={value.requires_grad}")


def _sizes(source: str, guard: re.Match[str], value: Any) -> Mismatch | None:
    """Rank, then size, then stride; `None` in the guard stands for a dynamic dimension."""
    sizes = _numbers(guard["size"])
    if sizes is None:
        return None
    actual = list(value.shape)
    if len(sizes) != len(actual):
        text = f"tensor '{source}' rank mismatch. expected {len(sizes)}, actual {len(actual)}"
        return Mismatch(text, _shown(sizes), _shown(actual))
    index = _first_difference(sizes, actual)
    if index is not None:
        text = (
            f"tensor '{source}' size mismatch at index {index}. "
            f"expected {sizes[index]}, actual {actual[index]}"
        )
        return Mismatch(text, _shown(sizes), _shown(actual))
    strides = _numbers(guard["stride"])
    if strides is None or not hasattr(value, "stride"):
        return None
    try:
        actual_strides = list(value.stride())
    except (RuntimeError, NotImplementedError):  # sparse and nested tensors have none
        return None
    index = _first_difference(strides, actual_strides)
    if index is None:
        return None
    text = (
        f"tensor '{source}' stride mismatch at index {index}. "
        f"expected {strides[index]}, actual {actual_strides[index]}"
    )
    return Mismatch(text, f"stride {_shown(strides)}", f"stride {_shown(actual_strides)}")


def _keys(source: str, guard: re.Match[str], value: Any) -> Mismatch | None:
    """What is left when all else is equal: the dispatch keys (device type, inference mode,
    autocast, functorch, subclass)."""
    actual = torch_guards.dispatch_keys(value)
    if actual is None:
        return None
    text = f"tensor '{source}' dispatch key set mismatch. expected {guard['keys']}, actual {actual}"
    return Mismatch(text, guard["keys"], actual)


def _numbers(text: str) -> list[int | None] | None:
    """The numbers of "[None, 16]", symbolic ones as None; None for "None" itself."""
    if text == "None":
        return None
    items = [item.strip() for item in text[1:-1].split(",") if item.strip()]
    return [int(item) if item.lstrip("-").isdigit() else None for item in items]


def _first_difference(expected: list[int | None], actual: list[int]) -> int | None:
    if len(expected) != len(actual):
        return None
    pairs = enumerate(zip(expected, actual, strict=True))
    return next((i for i, (want, have) in pairs if want is not None and want != have), None)


def _shown(sizes: list[int | None] | list[int]) -> str:
    return "[" + ", ".join("*" if size is None else str(size) for size in sizes) + "]"
