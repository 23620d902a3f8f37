"""receipt.schema.json, receipt.md and receipt_ids.json of docs/reference, from the records and
what stands beside their fields. The ids that the last of them has stay, a new field takes the next
one."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect

from compilediag.receipt.schema.receipt import SCHEMA_VERSION, Receipt
from compilediag.receipt.schema.record import Record

SCHEMA_FILE, PAGE_FILE, IDS_FILE = "receipt.schema.json", "receipt.md", "receipt_ids.json"

_FOLDER = Path(__file__).parents[1] / "docs" / "reference"
_SHOWN = ("completeness", "header", "compile", "cost", "findings[]", "checks")
"""Sections whose own fields are on the page."""
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Field(NamedTuple):
    """One field at one place of a receipt."""

    path: str
    """"[]" after a key marks a list, "{}" a map of any names."""
    meaning: str
    record: type[msgspec.Struct] | None
    """Of what is in it."""


def fields(kind: type[msgspec.Struct] = Receipt, prefix: str = "") -> Iterator[Field]:
    """Every field of a record and of those in it, in the order of the file."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        inside, mark = _inside(field.type)
        path = f"{prefix}{field.encode_name}{mark}"
        yield Field(path, meanings(kind)[field.name], inside)
        if inside is not None:
            yield from fields(inside, f"{path}.")


def _inside(info: msgspec.inspect.Type) -> tuple[type[msgspec.Struct] | None, str]:
    """The record in a type, and the mark of what holds it."""
    if isinstance(info, msgspec.inspect.UnionType):
        found = map(_inside, info.types)
        return next((each for each in found if each != (None, "")), (None, ""))
    if isinstance(info, msgspec.inspect.VarTupleType):
        return _inside(info.item_type)[0], "[]"
    if isinstance(info, msgspec.inspect.DictType):
        return _inside(info.value_type)[0], "{}"
    return (info.cls if isinstance(info, msgspec.inspect.StructType) else None), ""


@cache
def meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What the fields of a record mean, by name: "#:" beside a field, or above it."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        comments: list[str] = []
        for line in inspect.getsource(base).splitlines() if issubclass(base, Record) else ():
            code, _, comment = line.partition("#:")
            comments += [comment.strip()] if comment else []
            if comments and (name := re.match(r" {4}(\w+):", code)):
                found[name[1]] = " ".join(comments)
                comments = []
    return found


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a receipt, meanings included. Unknown fields are allowed everywhere."""
    (root,), parts = msgspec.json.schema_components((Receipt,), ref_template="#/$defs/{name}")
    records = {Receipt, *(field.record for field in fields() if field.record is not None)}
    for record in records:
        part = parts[record.__name__]
        # From 3.13 on Python itself removes the indentation of docstrings.
        part["description"] = inspect.cleandoc(part["description"])
        names = dict(zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True))
        for name, member in part["properties"].items():
            if "$ref" in member:
                # Beside "$ref" older validators ignore what follows.
                member["allOf"] = [{"$ref": member.pop("$ref")}]
            member["description"] = meanings(record)[names[name]]
    return {
        "$schema": _DIALECT,
        "title": f"compilediag receipt {SCHEMA_VERSION}",
        **root,
        "$defs": dict(sorted(parts.items())),
    }


class Ids(NamedTuple):
    """The register of the fields' ids."""

    next: int
    """Of the next new field; ids of fields that went are not given again."""
    fields: dict[str, int]
    """By path."""


def read_ids() -> Ids:
    """Read the register as it is."""
    return Ids(**json.loads((_FOLDER / IDS_FILE).read_text(encoding="utf-8")))


def add_new_fields(before: Ids) -> Ids:
    """Give new fields the next ids, and drop those that are gone."""
    paths = [field.path for field in fields()]
    new = [path for path in paths if path not in before.fields]
    known = before.fields | {path: before.next + position for position, path in enumerate(new)}
    return Ids(before.next + len(new), {path: known[path] for path in paths})


def page() -> str:
    """docs/reference/receipt.md: the sections of a receipt and their own fields."""
    lines = [
        "<!-- Written by `make docs`; change the code instead. -->",
        f"# The receipt, version {SCHEMA_VERSION}",
        "",
        "One JSON file per run, the durable record: `receipt.json` in the run's directory.",
        "Traces and logs are linked, never inlined. Units are in the names. `null` means not",
        "measured, never zero; NaN and infinities become `null` and turn `checks.values_finite`",
        "false. A receipt holds no secret that is recognised: what was replaced is counted in",
        "`header.run.redactions`.",
        "",
        "This page has the sections, and the own fields of those that are read most. All fields,",
        f"with types and meanings, are in the JSON Schema: [{SCHEMA_FILE}]({SCHEMA_FILE}). Each",
        f"has an id that never moves, though its name may: [{IDS_FILE}]({IDS_FILE}). In paths",
        "`[]` is every element of a list, `{}` every value of a map of any names.",
        "",
        "## Versions",
        "",
        "- A minor version adds optional fields, a major one changes a meaning. Receipts of every",
        "  earlier version are read, a newer major version is refused.",
        "- A reader ignores the fields that are new in a later minor version, and commands name",
        "  that version; `compilediag show --json` prints such a file with all its fields.",
        "- A key that was renamed is found under its former name.",
        "- A field of the configuration that a receipt's version did not have yet does not part it",
        "  from later ones: `compilediag diff` compares them and names the field.",
        "- NaN and numbers too large for a float are read as null, and `checks.values_finite` is",
        "  false; a file that ends in the middle is refused and left as it is.",
        "",
        "## Fields",
        "",
        "| field | meaning |",
        "|---|---|",
    ]
    for field in fields():
        section, _, rest = field.path.partition(".")
        if not rest or (section in _SHOWN and "." not in rest):
            meaning = field.meaning.replace("|", "\\|")
            lines.append(f"| `{field.path}` | {meaning} |")
    return "\n".join(lines) + "\n"


def rendered() -> dict[str, str]:
    """File name to content of the three files."""
    schema = json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
    ids = json.dumps(add_new_fields(read_ids())._asdict(), indent=1) + "\n"
    return {SCHEMA_FILE: schema, PAGE_FILE: page(), IDS_FILE: ids}
