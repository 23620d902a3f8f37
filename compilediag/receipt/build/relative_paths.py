"""Paths as a receipt shows them: relative to the working directory where they lie below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from compilediag.timeline.timeline import Timeline


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

    def shorten(self, value: Any) -> Any:
        """Every path inside a text, or inside the texts of a JSON-ready value."""
        if self._inside is None:
            return value
        if isinstance(value, str):
            # Most texts name no folder, which is seen much sooner than where one would begin.
            named = any(prefix in value for prefix in self._prefixes)
            return self._inside.sub("", value) if named else value
        if isinstance(value, dict):
            items = cast(dict[Any, Any], value).items()
            return {key: self.shorten(item) for key, item in items}
        if isinstance(value, (list, tuple)):
            return [self.shorten(item) for item in cast(Sequence[Any], value)]
        return value
