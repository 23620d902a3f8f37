"""The traces of many ranks of docs/project/scale.md are valid."""

import gzip
from pathlib import Path

import imported_file

from compilediag.runs.offline import read_record

scaled_traces = imported_file.load(Path(__file__).parents[1] / "benchmarks" / "scaled_traces.py")

TRACE = Path(__file__).parents[1] / "data" / "traces" / "breaks_inflated.log.gz"


def test_ranks_have_a_file_each_and_tell_their_rank(tmp_path: Path) -> None:
    """In the records too, which overrule the names."""
    size = scaled_traces.write_ranks(gzip.decompress(TRACE.read_bytes()), tmp_path, 3)
    assert size == sum(path.stat().st_size for path in tmp_path.iterdir())
    for path in tmp_path.iterdir():
        path.rename(tmp_path / path.name[-12:])
    record = read_record([str(tmp_path)])
    assert record.ranks == (0, 1, 2)
    assert all(item.lost == {} for item in record.journals)
