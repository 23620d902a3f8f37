"""What an object holds under a name, found without running any code of the program."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

UNKNOWN = object()
"""Stands for what cannot be found so."""

_TABLES = ("_modules", "_buffers", "_parameters")
"""Where a module keeps what it holds beside its attributes."""


def plain_attribute(holder: Any, name: str) -> Any:
    """An attribute that an object or a module holds itself; `UNKNOWN` where there is none."""
    try:
        own: dict[str, Any] = object.__getattribute__(holder, "__dict__")
    except (AttributeError, TypeError):
        return UNKNOWN
    for table in (own, *map(own.get, _TABLES)):
        if type(table) in (dict, OrderedDict) and name in cast("dict[str, Any]", table):
            return cast("dict[str, Any]", table)[name]
    return UNKNOWN
