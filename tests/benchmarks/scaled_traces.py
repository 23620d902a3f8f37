"""A recorded trace as that of each rank of many: every record tells its rank, as torch's own do."""

import re
from pathlib import Path

_RECORD = re.compile(rb'^(\S.*)("frame_id": .*)$', re.MULTILINE)
"""The last of them: the envelope's own, behind which torch writes the rank."""


def write_ranks(recorded: bytes, folder: Path, ranks: int) -> int:
    """A folder with the trace of each rank; their bytes."""
    size = 0
    for rank in range(ranks):
        text = _RECORD.sub(rb'\1"rank": %d, \2' % rank, recorded)
        size += len(text)
        (folder / f"dedicated_log_torch_trace_rank_{rank}_{rank:08x}.log").write_bytes(text)
    return size
