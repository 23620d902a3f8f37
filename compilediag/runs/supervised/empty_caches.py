"""Compile caches of a run's own: new, empty, and gone with it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator

CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@contextlib.contextmanager
def caches(*, keep: bool) -> Generator[dict[str, str], None, None]:
    """Variables that give one run new, empty caches, which are gone with it."""
    if keep:
        yield {}
        return
    with tempfile.TemporaryDirectory(
        prefix="compilediag-caches-", ignore_cleanup_errors=True
    ) as folder:
        yield {name: os.path.join(folder, name.partition("_")[0]) for name in CACHE_VARIABLES}
