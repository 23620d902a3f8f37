"""Where a format that marks lines of a repository puts an item: only where such a line can be."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from compilediag.compare.gate.judgement import Item, Judgement
from compilediag.views.style import RenderOptions
from compilediag.views.text import clean

LOCK = "compilediag.lock.json"
"""Where what has no place of its own is shown, unless the gate has another baseline."""
MAX_PATH_CHARS = 1000


class RepositoryLine(NamedTuple):
    """A file below the repository's root, and a line of it that starts at 1."""

    path: str
    line: int


def location(item: Item, options: RenderOptions) -> RepositoryLine | None:
    """The item's place: of what is in a library the call of the program's own that led there. None
    where no file below the root of the repository is to blame."""
    called = [] if item.call is None else [(item.call.file, item.call.line)]
    for file, line in (*called, (item.file, item.line)):
        path = _below(file, options)
        if path:
            return RepositoryLine(path, max(line or 1, 1))
    return None


def home(judgement: Judgement, options: RenderOptions) -> RepositoryLine:
    """The baseline's file: for formats in which everything must have a place."""
    return RepositoryLine(_below(judgement.baseline, options) or LOCK, 1)


def _below(file: str | None, options: RenderOptions) -> str | None:
    """The path relative to the root, normalized; None for anything that lies elsewhere."""
    if not file:
        return None
    root = options.root.rstrip("/") + "/"
    path = file[len(root) :] if options.root and file.startswith(root) else file
    if path is file and options.folder and not path.startswith(("/", "<")):
        path = f"{options.folder}/{path}"
    parts = [part for part in path.split("/") if part not in ("", ".")]
    # "<string>" and the like: code that was never in a file.
    strange = path.startswith(("/", "<")) or ".." in parts or "\\" in path or not parts
    if strange or len(path) > MAX_PATH_CHARS or clean(path, limit=MAX_PATH_CHARS) != path:
        return None
    return "/".join(parts)


def fingerprinted(
    failures: Iterable[tuple[Judgement, Item]],
) -> Iterator[tuple[Judgement, Item, str]]:
    """Each failure with a fingerprint of its own: lane, cause and, for twins, which of them."""
    seen: Counter[tuple[str, str]] = Counter()
    for judgement, item in failures:
        twin = seen[judgement.lane, item.fingerprint]
        seen[judgement.lane, item.fingerprint] += 1
        parts = (judgement.lane, item.fingerprint, *([str(twin)] if twin else []))
        digest = hashlib.sha256("\x00".join(parts).encode("utf-8", "replace"))
        yield judgement, item, digest.hexdigest()[:32]
