"""The digest of a file: for artifacts of a run and for the source that it ran."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

DIGEST_LIMIT_BYTES = 64 << 20
"""Larger files have no digest."""


def sha256_of(file: BinaryIO) -> str:
    """The digest of the rest of an open file, read in pieces."""
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()
