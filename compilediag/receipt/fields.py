"""The register of receipt fields: every path with its stable id, its meaning, its old spellings."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import Any, cast

from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import UNKNOWN_FIELD, Record
from compilediag.receipt.schema.unknown_fields import record_inside
from compilediag.receipt.versions import version_of

_TOML_PARSER = "tomllib" if sys.version_info >= (3, 11) else "tomli"


@dataclass(frozen=True, slots=True)
class Field:
    """One field. The id never moves and is never used again; the path's last key may."""

    path: str
    id: int
    meaning: str
    since: str = "1.0"
    aliases: tuple[str, ...] = ()
    """Former last keys of the path."""


def registered() -> tuple[Field, ...]:
    """Every field of `fields.toml`, in the order of the file."""
    text = files("compilediag.receipt").joinpath("fields.toml").read_text(encoding="utf-8")
    parser = import_module(_TOML_PARSER)
    table = cast(Mapping[str, Mapping[str, Any]], parser.loads(text)["fields"])
    return tuple(
        Field(
            path=path,
            id=int(entry["id"]),
            meaning=str(entry["meaning"]),
            since=str(entry.get("since", "1.0")),
            aliases=tuple(entry.get("aliases", ())),
        )
        for path, entry in table.items()
    )


def old_spellings() -> dict[str, str]:
    """Old path to present last key, as `history.respelled` takes them."""
    found: dict[str, str] = {}
    for field in registered():
        parent, dot, last = field.path.rpartition(".")
        for alias in field.aliases:
            found[f"{parent}{dot}{alias}"] = last.removesuffix("[]").removesuffix("{}")
    return found


def unknown_to(version: str) -> Callable[[str], bool]:
    """Tells of a path whether a receipt of that version had no such field. What is not registered
    is of a version later than this one."""
    written = version_of(version) or (0, 0)
    fields = ((field.path, version_of(field.since) or (0, 0)) for field in registered())
    known = {path for path, since in fields if since <= written}
    return lambda path: path not in known


def schema_paths(record: type[Record] = Receipt, prefix: str = "") -> Iterator[str]:
    """Every path the code knows: "[]" after a key marks a list, "{}" a map of any names."""
    hints = typing.get_type_hints(record)
    names = zip(record.__struct_fields__, record.__struct_encode_fields__, strict=True)
    for attribute, key in names:
        if key == UNKNOWN_FIELD:
            continue
        inner, mark = record_inside(hints[attribute])
        yield f"{prefix}{key}{mark}"
        if inner is not None:
            yield from schema_paths(inner, f"{prefix}{key}{mark}.")
