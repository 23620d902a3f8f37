"""Paths as a receipt shows them: relative to the working directory where they lie below it."""

from __future__ import annotations

import re
from typing import Any

from compilediag.readers.lenient_json import map_json
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location


class PathShortener:
    """The working directories of a run's processes."""

    def __init__(self, timeline: Timeline) -> None:
        found = {item.started.cwd for item in timeline.processes if item.started is not None}
        folders = {folder.rstrip("/\\") for folder in found} - {""}
        self._prefixes = tuple(
            f"{folder}/" for folder in sorted(folders, key=lambda item: (-len(item), item))
        )
        alternatives = "|".join(re.escape(prefix) for prefix in self._prefixes)
        self._inside = re.compile(rf"(?<![\w./\\-])(?:{alternatives})") if alternatives else None

    def short(self, file: str) -> str:
        """One path."""
        for prefix in self._prefixes:
            if file.startswith(prefix):
                return file[len(prefix) :]
        return file

    def file_and_line(self, where: Location) -> dict[str, Any]:
        """The fields `file` and `line` of a record; None where they are not known."""
        file = self.short(where.file) if where.file else None
        return {"file": file, "line": where.line or None}

    def shorten(self, value: Any) -> Any:
        """Every path inside a text, or inside the texts of a JSON-ready value."""
        return value if self._inside is None else map_json(value, self._shortened)

    def _shortened(self, leaf: Any) -> Any:
        return self._inside.sub("", leaf) if self._inside and isinstance(leaf, str) else leaf
