"""receipt.schema.json and receipt.md of docs/reference, from the types and `fields.toml`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from compilediag.receipt.schema.receipt import SCHEMA_VERSION, Receipt
from compilediag.receipt.versions import Field, registered_fields

SCHEMA_FILE, PAGE_FILE = "receipt.schema.json", "receipt.md"

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a receipt, meanings included. Unknown fields are allowed everywhere."""
    (root,), parts = msgspec.json.schema_components((Receipt,), ref_template="#/$defs/{name}")
    for part in parts.values():  # from 3.13 on Python itself removes the indentation of docstrings
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])
    schema: dict[str, Any] = {
        "$schema": _DIALECT,
        "title": f"compilediag receipt {SCHEMA_VERSION}",
        **root,
        "$defs": dict(sorted(parts.items())),
    }
    meanings = {field.path: field.meaning for field in registered_fields()}
    _describe(schema, "Receipt", "", meanings)
    return schema


def _describe(schema: dict[str, Any], name: str, prefix: str, meanings: dict[str, str]) -> None:
    """Writes the meaning of each field beside its type.

    A definition used at several places (a frame, a place) keeps the meanings of the first.
    """
    for key, member in schema["$defs"][name]["properties"].items():
        mark = next((m for m in ("", "[]", "{}") if f"{prefix}{key}{m}" in meanings), None)
        if mark is None or "description" in member:
            continue
        if "$ref" in member:
            # Beside "$ref" older validators ignore what follows.
            member["allOf"] = [{"$ref": member.pop("$ref")}]
        member["description"] = meanings[f"{prefix}{key}{mark}"]
        for inner in _references(member):
            _describe(schema, inner, f"{prefix}{key}{mark}.", meanings)


def _references(member: Any) -> Iterator[str]:
    if isinstance(member, dict):
        for key, value in cast(dict[str, Any], member).items():
            if key == "$ref":
                yield str(value).rpartition("/")[2]
            elif key != "default":
                yield from _references(value)
    elif isinstance(member, list):
        for value in cast(list[Any], member):
            yield from _references(value)


def page() -> str:
    """docs/reference/receipt.md: every field with its id and meaning, section by section."""
    fields = registered_fields()
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
        "In paths `[]` is every element of a list, `{}` every value of a map of any names. The id",
        "of a field never moves; its name may. The JSON Schema is",
        f"[{SCHEMA_FILE}]({SCHEMA_FILE}).",
        "",
        "## Versions",
        "",
        "- A minor version adds optional fields, a major one changes a meaning. Receipts of every",
        "  earlier version are read, a newer major version is refused.",
        "- A reader ignores the fields that are new in a later minor version, and commands name",
        "  that version; `compilediag show --json` prints such a file with all its fields.",
        "- A key that was renamed is found under its former name.",
        "- A field of the lane that a receipt's version did not have yet does not part it from",
        "  later ones: `compilediag diff` compares them and names the field.",
        "- NaN and numbers too large for a float are read as null, and `checks.values_finite` is",
        "  false; a file that ends in the middle is refused and left as it is.",
    ]
    section = None
    for field in fields:
        top = field.path.split(".")[0]
        head = top if any(other.path.startswith(f"{top}.") for other in fields) else ""
        if head != section:
            section = head
            title = f"`{head}`" if head else "Top level"
            lines += ["", f"## {title}", "", "| field | id | meaning |", "|---|---|---|"]
        lines.append(_row(field))
    return "\n".join(lines) + "\n"


def _row(field: Field) -> str:
    meaning = field.meaning.replace("|", "\\|")
    if field.since != "1.0":
        meaning += f" Since {field.since}."
    return f"| `{field.path}` | {field.id} | {meaning} |"


def rendered() -> dict[str, str]:
    """File name to content of both files."""
    schema = json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
    return {SCHEMA_FILE: schema, PAGE_FILE: page()}
