"""Folders of receipts, for the tests of the index."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from compilediag.extensions.fleet.folder import INDEX_NAME, Fleet, fleet_of

NUMBER = 60


def truth(folder: Path) -> Fleet:
    """What the files say, read without any index."""
    bare = folder.parent / f"bare-{random.random()}"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns(INDEX_NAME))
    found = fleet_of(str(bare))
    return found._replace(root=str(folder))


def same(found: Fleet, folder: Path) -> bool:
    expected = truth(folder)
    return (found.entries, found.problems) == (expected.entries, expected.problems)
