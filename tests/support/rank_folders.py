"""A folder of the traces of four ranks."""

import gzip
from pathlib import Path

TRACES = Path(__file__).parents[1] / "data" / "traces"


def folder_of_ranks(folder: Path, *, every: bool = False) -> Path:
    """Four ranks, of which three do the same and one recompiles; rank 2 is missing, unless `every`
    rank is asked for."""
    folder.mkdir(exist_ok=True)
    recorded = sorted((TRACES / "ranks").glob("*.gz"))
    for rank in (0, 1, 2, 3, 4) if every else (0, 1, 3, 4):
        raw = gzip.decompress(recorded[rank == 1].read_bytes())
        raw = raw.replace(b'"rank": %d' % (rank == 1), b'"rank": %d' % rank)
        name = f"dedicated_log_torch_trace_rank_{rank}_x.log"
        (folder / name).write_bytes(raw)
    return folder
