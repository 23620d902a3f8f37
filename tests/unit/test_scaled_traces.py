"""The traces of the benchmark are valid, and hold as many compiles as they have copies."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import imported_file

from compilediag.readers.torch_trace.read import read_trace
from compilediag.runs.offline.sources import read_record
from compilediag.timeline.fold import fold

scaled_traces = imported_file.load(Path(__file__).parents[1] / "benchmarks" / "scaled_traces.py")

TRACE = Path(__file__).parents[1] / "data" / "traces" / "breaks_inflated.log.gz"
RECORDED = gzip.decompress(TRACE.read_bytes())


def test_the_first_copy_is_what_was_recorded(tmp_path: Path) -> None:
    """Byte for byte."""
    assert scaled_traces.write_large(RECORDED, tmp_path / "one.log", len(RECORDED)) == 1
    assert (tmp_path / "one.log").read_bytes() == RECORDED


def test_copies_compile_frames_of_their_own(tmp_path: Path) -> None:
    """No digest is wrong, no id repeats, and every cause is linked to its own compile."""
    assert scaled_traces.write_large(RECORDED, tmp_path / "large.log", 3 * len(RECORDED)) == 3
    (journal,) = read_trace(str(tmp_path / "large.log"))
    (first,) = read_trace(str(TRACE))
    assert (journal.lost, journal.torn_tail) == ({}, False)
    many, one = fold([journal.events]), fold([first.events])
    ids = [item.compile_id for item in many.compiles]
    assert len(ids) == len(set(ids)) == 3 * len(one.compiles)
    assert len(many.counted_recompiles) == 3 * len(one.counted_recompiles) > 0
    for item in many.counted_recompiles:
        entries = re.findall(r"^(\d+)/\d+: ", "\n".join(item.reasons), re.MULTILINE)
        assert set(entries) == {item.compile_id.partition("/")[0]}


def test_ranks_have_a_file_each_and_tell_their_rank(tmp_path: Path) -> None:
    """In the records too, which overrule the names."""
    size = scaled_traces.write_ranks(RECORDED, tmp_path, 3)
    assert size == sum(path.stat().st_size for path in tmp_path.iterdir())
    for path in tmp_path.iterdir():
        path.rename(tmp_path / path.name[-12:])
    record = read_record([str(tmp_path)])
    assert record.ranks == (0, 1, 2)
    assert all(item.lost == {} for item in record.journals)
