"""Numbers and configurations that a program hands us, as JSON-ready values.

Nothing is read from a tensor: that may wait for its device, and the program alone decides when it
waits.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, cast

from compilediag_harness.wire import clip

NAME_LIMIT = 200
"""Longest name, in characters."""

TEXT_LIMIT = 512
"""Longest text of a configuration, in characters."""

CONFIG_LIMIT = 512
"""Most values of a configuration."""

DEPTH_LIMIT = 16
"""Most levels of one."""

_TORCH_WORDS = frozenset({"dtype", "device", "layout", "memory_format"})
"""Types of torch's that are words, and are written as torch prints them."""


def number_of(value: Any, what: str) -> float | None:
    """A number as a float; None stays None. An integer that no float can hold is an infinity.

    Raises:
        TypeError: it is no number; a tensor is none, on whatever device it is.
    """
    if value is None:
        return None
    if not isinstance(value, Real):
        raise TypeError(f"{what} must be a number, not {_named(value)}{_advice(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if cast("Any", value) > 0 else -math.inf


def whole_number(value: Any, what: str) -> int:
    """An integer that is 0 or more.

    Raises:
        TypeError: it is none; a tensor is none.
        ValueError: it is negative.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{what} must be an integer, not {_named(value)}{_advice(value)}")
    if (number := int(value)) < 0:
        raise ValueError(f"{what} must be 0 or more, not {number}")
    return number


def name_of(value: Any) -> str:
    """A name, bounded."""
    return clip(str(value), NAME_LIMIT)


def config_of(given: Any) -> dict[str, Any]:
    """A configuration (a mapping, a dataclass, an `argparse.Namespace`) as JSON-ready values.

    Raises:
        TypeError: it is none of these, or a value in it is an object that has no stable text.
        ValueError: it is too large, or too deep.
    """
    if given is None:
        return {}
    found = _members(given)
    if found is None:
        raise TypeError(f"config must be a mapping, not {_named(given)}")
    counted = [0]
    return {name_of(key): _plain(item, f"config[{key!r}]", counted, 1) for key, item in found}


def _members(value: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(value, Mapping):
        return list(cast("Mapping[Any, Any]", value).items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(item.name, getattr(value, item.name)) for item in dataclasses.fields(value)]
    if type(value).__module__ == "argparse":
        return list(vars(value).items())
    return None


def _plain(value: Any, where: str, counted: list[int], depth: int) -> Any:
    counted[0] += 1
    if counted[0] > CONFIG_LIMIT or depth > DEPTH_LIMIT:
        raise ValueError(
            f"config is too large: {CONFIG_LIMIT} values in {DEPTH_LIMIT} levels are the most; "
            "give only what changes results or speed"
        )
    if isinstance(value, enum.Enum):
        value = value.name
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return clip(value, TEXT_LIMIT)
    if isinstance(value, os.PathLike):
        return clip(os.fsdecode(os.fspath(cast("os.PathLike[str]", value))), TEXT_LIMIT)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if type(value).__name__ in _TORCH_WORDS and type(value).__module__.startswith("torch"):
        return clip(str(value), TEXT_LIMIT)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        items = cast("Sequence[Any]", value)
        return [_plain(item, f"{where}[{i}]", counted, depth + 1) for i, item in enumerate(items)]
    members = _members(value)
    if members is None:
        raise TypeError(
            f"{where} is {_named(value)}: give a name or a number, the same in every run"
        )
    return {
        name_of(key): _plain(item, f"{where}[{key!r}]", counted, depth + 1) for key, item in members
    }


def _named(value: Any) -> str:
    """The type alone: a text of the value may be long, and a tensor's waits for its device."""
    kind = cast("type[Any]", type(value))
    return f"a {kind.__module__}.{kind.__qualname__}".replace("a builtins.", "a ")


def _advice(value: Any) -> str:
    if not hasattr(cast("type[Any]", type(value)), "item"):
        return ""
    return "; value.item() reads it, and waits for the device it is on"
