"""A receipt of each test as a file whose name is safe whatever the test is called."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from compilediag.errors import OutputUnwritable

if TYPE_CHECKING:
    from compilediag.runs.watch import WatchResult

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_CHARS = 100


def file_name(nodeid: str) -> str:
    """The name of a test's receipt: readable, and different for each test. No part of it leads
    out of the folder, hides the file, or is too long."""
    readable = _UNSAFE.sub("-", nodeid).strip("-.")[-_MAX_CHARS:].lstrip("-.") or "test"
    digest = hashlib.sha256(nodeid.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{readable}-{digest}.json"


def write_receipt_of(run: WatchResult, nodeid: str, folder: Path) -> Path:
    """Writes the receipt of a test into the folder, which is made where it is missing.

    Raises:
        OutputUnwritable: the folder or the file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputUnwritable(
            f"--compilediag-report: cannot write into {folder}: {error}"
        ) from error
    return run.save(folder / file_name(nodeid))
