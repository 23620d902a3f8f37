"""`[tool.compilediag]` of pyproject.toml: defaults for the options of `run`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from compilediag.errors import UsageError

_toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

KEYS: dict[str, tuple[type, ...]] = {
    "output": (str,),
    "name": (str,),
    "steps": (int,),
    "warmup": (int, str),
    "timeout": (int, float),
    "grace": (int, float),
    "quiet": (bool,),
    "live": (bool, str),
    "json": (bool,),
    "trace": (bool,),
    "tlparse": (bool,),
    "depyf": (bool,),
    "profile_on_signal": (bool,),
    "fail_on": (str,),
    "prices": (str,),
    "otlp": (str,),
    "prometheus_textfile": (str,),
    "pushgateway": (str,),
    "prometheus_listen": (str, int),
    "telemetry_every": (int, float),
    "experiments": (bool,),
}
"""Key to the types its value may have."""

PROBE_KEYS: dict[str, tuple[type, ...]] = {
    "steps": (int,),
    "keep_caches": (bool,),
    "groups": (dict,),
}
"""The same for the table below it, [tool.compilediag.probe]."""


def read_defaults(start: Path) -> dict[str, Any]:
    """The table of the nearest pyproject.toml at or above `start`; empty when there is none.

    Raises:
        UsageError: the file is no TOML, or the table has a key or a value `run` does not know.
    """
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return checked(_table(file), str(file))
    return {}


def _table(file: Path) -> dict[str, Any]:
    try:
        found: Any = _toml.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    for key in ("tool", "compilediag"):
        found = cast("dict[str, Any]", found).get(key, {})
        if not isinstance(found, dict):
            raise UsageError(f"{key} in {file} is no table")
    return cast("dict[str, Any]", found)


def checked(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The table, if every key and type is known; that of the probe stands in it as "probe"."""
    own = {key: value for key, value in table.items() if key != "probe"}
    _check(own, KEYS, f"[tool.compilediag] of {where}")
    if "probe" in table:
        name = f"[tool.compilediag.probe] of {where}"
        _check(_mapping(table["probe"], name), PROBE_KEYS, name)
        groups = table["probe"].get("groups", {})
        for group, template in groups.items():
            if not isinstance(template, str):
                raise UsageError(
                    f"{group} in [tool.compilediag.probe.groups] of {where} must be a template "
                    "such as '--entropy-every {n}'"
                )
    return dict(table)


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} is no table")
    return cast("dict[str, Any]", value)


def _check(table: Mapping[str, Any], keys: Mapping[str, tuple[type, ...]], name: str) -> None:
    for key, value in table.items():
        kinds = keys.get(key)
        if kinds is None:
            raise UsageError(f"unknown key {key!r} in {name}: the keys are {', '.join(keys)}")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"{key} in {name} must be {wanted}")
