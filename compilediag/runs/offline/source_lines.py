"""Lines of the program's own around those that findings are about, for a page that is shared."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING

from compilediag.readers.storage import open_regular
from compilediag.runs.digests import sha256_of
from compilediag.views.html.cards import Excerpt, SourceLine, place_of
from compilediag_harness.redaction.known_values import secret_values
from compilediag_harness.redaction.redactor import Redactor

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt

AROUND = 2
MAX_BYTES = 4 << 20
MAX_CHARS = 200
"""Of a line."""


def excerpts(receipt: Receipt) -> dict[str, Excerpt]:
    """By the id of a finding: its line with the two before and behind it.

    A receipt comes from anywhere, and a page is shared: only source below the working directory
    is read, and only as the run had it.
    """
    redactor = Redactor(secret_values((), os.environ))
    texts: dict[str, list[str] | str] = {}
    found: dict[str, Excerpt] = {}
    for finding in receipt.findings:
        place = place_of(finding)
        if place is None or place[1] < 1:
            continue
        file, line = place
        if file not in texts:
            texts[file] = _text(file, receipt)
        text = texts[file]
        if isinstance(text, str):
            found[finding.id] = Excerpt(note=text)
        elif line <= len(text):
            found[finding.id] = Excerpt(_around(text, line, redactor))
    return found


def _around(text: list[str], line: int, redactor: Redactor) -> tuple[SourceLine, ...]:
    first, last = max(1, line - AROUND), min(len(text), line + AROUND)
    return tuple(
        SourceLine(number, redactor.text(text[number - 1][:MAX_CHARS]), number == line)
        for number in range(first, last + 1)
    )


def _text(file: str, receipt: Receipt) -> list[str] | str:
    """The lines of a file, or why they are not shown."""
    root = os.path.realpath(os.curdir) + os.sep
    path = os.path.realpath(file)
    if not path.endswith(".py") or not path.startswith(root):
        return f"The lines of {file} are not shown: it is not source below the working directory."
    stream = open_regular(path)
    if stream is None:
        return f"The lines of {file} are not shown: it is not here."
    with stream:
        if os.fstat(stream.fileno()).st_size > MAX_BYTES:
            return f"The lines of {file} are not shown: it is too large."
        digest = receipt.header.provenance.source_sha256.get(file)
        if digest is not None:
            same = sha256_of(stream) == digest
            stream.seek(0)
        else:
            same = os.fstat(stream.fileno()).st_mtime <= _created_s(receipt)
        if not same:
            return f"The lines of {file} are not shown: it has changed since the run."
        return stream.read().decode("utf-8", "replace").splitlines()


def _created_s(receipt: Receipt) -> float:
    """Seconds since the epoch at which the receipt was made; 0 where it does not have that."""
    try:
        moment = datetime.fromisoformat(receipt.header.created_at_utc.replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    return moment.timestamp()
