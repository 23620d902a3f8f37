"""The names that launchers put before the lines of each rank."""

from __future__ import annotations

import re

RANK = re.compile(
    r"[ \t]{0,16}(?:\[(?P<name>[A-Za-z_-]{1,32}\d{1,9})\]:?"  # torchrun: [rank0]: or [default0]:
    r"|\[\d{1,9},(?P<mpi>\d{1,9})\]<std(?:out|err)>:"  # mpirun --tag-output: [1,0]<stdout>:
    r"|(?P<label>\d{1,6}):(?= ))[ \t]?"  # srun --label: 0:
)
"""The name that a launcher puts before each line of a rank."""

_BEGINS = frozenset("[ \t0123456789")


def named_rank(text: str) -> tuple[str | None, str]:
    """The name of the rank that wrote the line, "rank0" or "7", and the rest of the line."""
    found = RANK.match(text) if text[:1] in _BEGINS else None
    if found is None:
        return None, text
    name = found["name"] or found["mpi"] or found["label"]
    return name, text[found.end() :]
