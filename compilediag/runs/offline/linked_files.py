"""The files that a receipt was made of, as links from where it will lie.

What lies at a URI is linked by it and by its size: a digest would fetch it once more.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence

from compilediag.readers.inputs import TEXT, TRACE, TRAIN, Source
from compilediag.readers.storage import is_uri, size_of
from compilediag.receipt.schema.receipt import Artifact

DIGEST_LIMIT_BYTES = 64 << 20
ARTIFACT_LIMIT = 256

_ROLES = {TRACE: "torch_trace", TEXT: "torch_logs", TRAIN: "train_log"}


def links_to(sources: Sequence[Source], folder: str) -> Iterator[Artifact]:
    """The traces and logs among the sources, at most `ARTIFACT_LIMIT`."""
    read = [source for source in sources if source.kind in _ROLES]
    for source in read[:ARTIFACT_LIMIT]:
        try:
            size = size_of(source.path)
        except OSError:
            continue
        here = not is_uri(source.path)
        yield Artifact(
            role=_ROLES[source.kind],
            uri=os.path.relpath(source.path, folder) if here else source.path,
            media_type="text/plain",
            bytes=size,
            sha256=_digest(source.path) if here and size <= DIGEST_LIMIT_BYTES else None,
        )


def _digest(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            digest = hashlib.sha256()
            while piece := file.read(1 << 20):
                digest.update(piece)
            return digest.hexdigest()
    except OSError:
        return None
