"""The JSON that commands print: documents of a named, versioned schema, declared once as types.

A later minor version adds fields; a field that means something else, or is gone, is a major
version. `docs/reference/schemas/` is generated from these types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct


class Document(Struct, frozen=True, kw_only=True):
    """The output of one command with `--json`."""

    schema: str
    schema_version: str = "1.0"


def convert_to_builtins(value: Any) -> Any:
    """Convert structs, dataclasses and named tuples to JSON objects, at any depth."""
    if isinstance(value, Struct):
        kind = type(value)
        names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        return {name: convert_to_builtins(getattr(value, field)) for name, field in names}
    if isinstance(value, Mapping):
        return {str(k): convert_to_builtins(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (tuple, list)):
        elements = [convert_to_builtins(element) for element in cast("tuple[Any, ...]", value)]
        names = getattr(cast("object", value), "_fields", None)
        return elements if names is None else dict(zip(names, elements, strict=True))
    slots = getattr(value, "__dataclass_fields__", None)
    if slots is not None:
        return {name: convert_to_builtins(getattr(value, name)) for name in slots}
    return value
