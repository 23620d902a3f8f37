"""Conversion of a program's numbers, names and configurations to values that JSON knows.

Nothing is read from a tensor: that may wait for its device, and only the program decides when.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, cast

from compilediag_harness.wire import clip

MAX_NAME = 200
"""Characters of a name."""

MAX_TEXT = 512
"""Characters of a text in a configuration."""

MAX_VALUES = 512
"""Values of a configuration."""

MAX_DEPTH = 16
"""Levels of a configuration."""

_TORCH_NAMES = frozenset({"dtype", "device", "layout", "memory_format"})
"""Types of torch's that are written as torch prints them."""


def parse_float(value: Any, what: str) -> float | None:
    """Parse a number as a float; None stays None. An integer that no float holds is an infinity.

    Raises:
        TypeError: it is no number. A tensor is none, on whatever device it is.
    """
    if value is None:
        return None
    if not isinstance(value, Real):
        raise TypeError(f"{what} must be a number, not {_describe_type(value)}{_advise(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if cast("Any", value) > 0 else -math.inf


def parse_count(value: Any, what: str) -> int:
    """Parse an integer that is 0 or more. `what` names it in errors.

    Raises:
        TypeError: it is none; a tensor is none.
        ValueError: it is negative.
    """
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise TypeError(f"{what} must be an integer, not {_describe_type(value)}{_advise(value)}")
    if (number := int(value)) < 0:
        raise ValueError(f"{what} must be 0 or more, not {number}")
    return number


def clip_name(value: Any) -> str:
    """Clip a name to `MAX_NAME` characters."""
    return clip(str(value), MAX_NAME)


def parse_config(value: Any) -> dict[str, Any]:
    """Parse a configuration (mapping, dataclass, `argparse.Namespace`) to JSON-ready values.

    Raises:
        TypeError: it is none of these, or a value in it is an object that has no stable text.
        ValueError: it is too large, or too deep.
    """
    if value is None:
        return {}
    members = _list_members(value)
    if members is None:
        raise TypeError(f"config must be a mapping, not {_describe_type(value)}")
    count = itertools.count(1)
    return _convert_members(members, "config", count, 1)


def _list_members(value: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(value, Mapping):
        return list(cast("Mapping[Any, Any]", value).items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if type(value).__module__ == "argparse":
        return list(vars(value).items())
    return None


def _convert_members(
    pairs: list[tuple[Any, Any]], path: str, count: Iterator[int], depth: int
) -> dict[str, Any]:
    return {clip_name(key): _convert(part, f"{path}[{key!r}]", count, depth) for key, part in pairs}


def _convert(value: Any, path: str, count: Iterator[int], depth: int) -> Any:
    if next(count) > MAX_VALUES or depth > MAX_DEPTH:
        raise ValueError(
            f"config is too large: {MAX_VALUES} values in {MAX_DEPTH} levels are the most; "
            "give only what changes results or speed"
        )
    if isinstance(value, enum.Enum):
        value = value.name
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return clip(value, MAX_TEXT)
    if isinstance(value, os.PathLike):
        return clip(os.fsdecode(os.fspath(cast("os.PathLike[str]", value))), MAX_TEXT)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if type(value).__name__ in _TORCH_NAMES and type(value).__module__.startswith("torch"):
        return clip(str(value), MAX_TEXT)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        parts = cast("Sequence[Any]", value)
        return [_convert(part, f"{path}[{i}]", count, depth + 1) for i, part in enumerate(parts)]
    members = _list_members(value)
    if members is None:
        raise TypeError(
            f"{path} is {_describe_type(value)}: give a name or a number, the same in every run"
        )
    return _convert_members(members, path, count, depth + 1)


def _describe_type(value: Any) -> str:
    """Describe the type alone: a value's text may be long, and a tensor's waits for its device."""
    kind = cast("type[Any]", type(value))
    return f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")


def _advise(value: Any) -> str:
    if not hasattr(cast("type[Any]", type(value)), "item"):
        return ""
    return "; value.item() reads it, and waits for the device it is on"
