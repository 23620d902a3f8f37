"""JSON files that users keep: written whole or not at all, read with care."""

from __future__ import annotations

import json
import os
from typing import Any

from compilediag_harness.base import atomic_write

MAX_BYTES = 64 << 20
"""A larger file is not read."""


def write(path: str | os.PathLike[str], document: Any) -> bytes:
    """Replaces a file in one move, making missing folders; the bytes that it now holds.

    Raises:
        ValueError: a number in `document` is not finite.
        OSError: the folder or the disk does not take it; the file is left as it was.
    """
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    content = text.encode("utf-8", "replace") + b"\n"
    os.makedirs(os.path.dirname(os.path.realpath(path)), exist_ok=True)
    atomic_write.write(path, (content,))
    return content


def read(path: str | os.PathLike[str], schema: str, major: int) -> dict[str, Any]:
    """The object in a file of ours.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is too large, half written, of another kind, or of a newer major version.
    """
    named = os.fspath(path)
    with open(path, "rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{named} is larger than {MAX_BYTES >> 20} MiB: this is no {schema}")
    try:
        found = json.loads(content.decode("utf-8-sig", "replace"), parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{named} is not readable as JSON: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != schema:  # pyright: ignore[reportUnknownMemberType]
        raise ValueError(f"{named} is no {schema}")
    version = str(found.get("schema_version"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    written = version.partition(".")[0]
    if not written.isdecimal() or len(written) > 6:
        raise ValueError(f"{named} has no schema version that can be read")
    if int(written) > major:
        raise ValueError(
            f"{named} has schema version {version} and this compilediag reads {major}.x: "
            "upgrade compilediag to read it"
        )
    return found  # pyright: ignore[reportUnknownVariableType]
