"""The lines of a trainer's output: carriage returns, colours, names of ranks, lines without an end.

Any bytes are accepted. What is dropped is counted, and nothing is read twice: the time is linear in
the bytes, also where a megabyte has no newline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from compilediag.readers.torch_logs.counts import ANSI

LINE_LIMIT = 16_384
"""Longest line looked at, in bytes; the rest of a longer one is dropped, and the line counted."""

RANK = re.compile(
    r"[ \t]{0,16}(?:\[(?P<name>[A-Za-z_-]{1,32}\d{1,9})\]:?"  # torchrun: [rank0]: or [default0]:
    r"|\[\d{1,9},(?P<mpi>\d{1,9})\]<std(?:out|err)>:"  # mpirun --tag-output: [1,0]<stdout>:
    r"|(?P<label>\d{1,6}):(?= ))[ \t]?"  # srun --label: 0:
)
"""The name that a launcher puts before each line of a rank."""

_BEGINS = frozenset("[ \t0123456789")


def log_lines(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The lines that are not empty, with whether they were cut. "\\r" ends a line too: progress
    bars are drawn over each other."""
    rest, cut = b"", False
    for chunk in chunks:
        pieces = chunk.replace(b"\r", b"\n").split(b"\n")
        pieces[0] = rest + pieces[0]
        rest = pieces.pop()
        for piece in pieces:
            if piece:
                yield (piece, cut) if len(piece) <= LINE_LIMIT else (piece[:LINE_LIMIT], True)
                cut = False
        if len(rest) > LINE_LIMIT:
            rest, cut = rest[:LINE_LIMIT], True
    if rest:
        yield rest, cut


def plain_text(raw: bytes) -> str:
    """The line as text, without terminal escapes; bytes that are no UTF-8 are replaced."""
    text = raw.decode("utf-8", "replace")
    return ANSI.sub("", text) if "\x1b" in text else text


def named_rank(text: str) -> tuple[str | None, str]:
    """The name of the rank that wrote the line, "rank0" or "7", and the rest of the line."""
    found = RANK.match(text) if text[:1] in _BEGINS else None
    if found is None:
        return None, text
    name = found["name"] or found["mpi"] or found["label"]
    return name, text[found.end() :]
