"""A receipt of each test as a file whose name is safe whatever the test is called, and one page
of them all."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Sequence
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


PAGE = "index.html"


def write_page_of(nodeids: Sequence[str], folder: Path) -> Path:
    """Writes a page of the receipts that tests of this session have left in the folder.

    Raises:
        CompilediagError: a receipt cannot be read, or the page cannot be written.
    """
    from compilediag.receipt.file import read_receipt
    from compilediag.runs.offline.html_file import assets, write_page
    from compilediag.views.html.session_page import render_session

    files = {nodeid: folder / file_name(nodeid) for nodeid in nodeids}
    there = {nodeid: file for nodeid, file in files.items() if file.is_file()}
    text = render_session(
        {nodeid: read_receipt(file) for nodeid, file in there.items()},
        assets(),
        suffixes={nodeid: f" {shlex.quote(str(file))}" for nodeid, file in there.items()},
        root=str(Path.cwd()),
    )
    page = folder / PAGE
    write_page(str(page), text)
    return page
