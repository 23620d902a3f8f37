"""Folders of receipts, for the tests of the index."""

import random
import shutil
from pathlib import Path

from many_receipts import measured, written

from compilediag.extensions.fleet.folder import INDEX_NAME, Fleet, load_fleet

NUMBER = 60


def receipts_of_two_lanes(folder: Path) -> Path:
    """Made long enough ago to have settled."""
    names = ("gpt/train", "vit/train")
    return written(
        folder, range(NUMBER), lambda n: measured(header__lane__name=names[n % 2], steps__median=n)
    )


def indexed_copy(made: Path, folder: Path) -> Path:
    """Receipts with an index."""
    shutil.copytree(made, folder)
    assert load_fleet(str(folder)).files_read == NUMBER
    assert (folder / INDEX_NAME).is_file()
    return folder


def truth(folder: Path) -> Fleet:
    """What the files say, read without any index."""
    bare = folder.parent / f"bare-{random.random()}"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns(INDEX_NAME))
    return load_fleet(str(bare))._replace(root=str(folder))


def same(found: Fleet, folder: Path) -> bool:
    expected = truth(folder)
    return (found.entries, found.problems) == (expected.entries, expected.problems)
