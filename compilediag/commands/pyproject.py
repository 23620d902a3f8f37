"""`[tool.compilediag]` of pyproject.toml and the tables below it: defaults for options."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from compilediag.errors import UsageError

_toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

TABLES = ("probe", "fix", "gate")
"""Tables below it; each is checked by the commands that read it."""

Keys = Mapping[str, tuple[type, ...]]
"""Key to the types that its value may have."""


def read_defaults(start: Path, keys: Mapping[str, Keys]) -> dict[str, Any]:
    """The table of the nearest pyproject.toml at or above `start`; empty when there is none.

    Args:
        start: a folder.
        keys: of the table itself at "", of a table below it at its name, which is no key. What has
            none is not read.
    """
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            found: Any = _toml.loads(file.read_text(encoding="utf-8"))
        except RecursionError as error:
            raise UsageError(f"{file} cannot be read: it is nested too deep") from error
        except (OSError, ValueError) as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
        for key in ("tool", "compilediag"):
            found = _mapping(found.get(key, {}), f"{key} in {file}")
        return checked(found, keys, str(file))
    return {}


def checked(table: dict[str, Any], keys: Mapping[str, Keys], where: str) -> dict[str, Any]:
    """What of the table is read, if every key in that is known and every value has a type that its
    key may have."""
    own = {key: value for key, value in table.items() if key not in TABLES and "" in keys}
    read = own | {key: value for key, value in table.items() if key in TABLES and key in keys}
    if own:
        _check(own, keys[""], f"[tool.compilediag] of {where}")
    for name in read.keys() - own.keys():
        shown = f"[tool.compilediag.{name}] of {where}"
        _check(_mapping(table[name], shown), keys[name], shown)
    for group, template in read.get("probe", {}).get("groups", {}).items():
        if not isinstance(template, str):
            raise UsageError(
                f"{group} in [tool.compilediag.probe.groups] of {where} must be a template "
                "such as '--entropy-every {n}'"
            )
    return read


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} is no table")
    return cast("dict[str, Any]", value)


def _check(table: Mapping[str, Any], keys: Keys, name: str) -> None:
    for key, value in table.items():
        kinds = keys.get(key)
        if kinds is None:
            raise UsageError(f"unknown key {key!r} in {name}: the keys are {', '.join(keys)}")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"{key} in {name} must be {wanted}")
