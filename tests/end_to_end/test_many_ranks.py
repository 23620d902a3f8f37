"""Traces of many ranks, read a few to a task: the receipts of a run that is held as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_folders import folder_of_ranks, told

from compilediag.diagnosis.ranks import selection as choice
from compilediag.readers.parallel import pool_of
from compilediag.receipt.file import read_receipt
from compilediag.runs.offline import many_ranks
from compilediag.runs.offline.many_ranks import options_here, receipt_of_many
from compilediag.runs.offline.receipts import merged_receipt, rank_receipts
from compilediag.runs.offline.sources import find_sources, read_record


def mixed_folder(folder: Path) -> Path:
    """Four ranks, one of them with two files, a process without a rank, and an empty file."""
    folder_of_ranks(folder)
    again = next(folder.glob("*rank_1_*")).read_bytes().replace(b'"rank": 1', b'"rank": 0')
    (folder / "dedicated_log_torch_trace_rank_0_again.log").write_bytes(again)
    alone = next(folder.glob("*rank_3_*")).read_bytes().replace(b'"rank": 3, ', b"")
    (folder / "dedicated_log_torch_trace_alone.log").write_bytes(alone)
    (folder / "empty.log").touch()
    return folder


@pytest.mark.parametrize("room", [1, 2, 256])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_receipts_of_a_record_that_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, workers: int
) -> None:
    """Of all ranks and of each, whether or not all of them are told, in this process or in two."""
    monkeypatch.setattr(choice, "MAX_RANKS", room)
    monkeypatch.setattr(choice, "MIN_RANKS", 0)
    monkeypatch.setattr(many_ranks, "SOURCES_PER_TASK", 2)
    folder, out = mixed_folder(tmp_path / "in"), tmp_path / "out"
    asked = options_here("lane", 7, str(out))
    sources = find_sources([str(folder)])
    if workers:
        with pool_of(workers) as pool:
            made = receipt_of_many(sources, asked, pool)
    else:
        made = receipt_of_many(sources, asked)
    record = read_record([str(folder)])
    assert told(made) == told(merged_receipt(record, "lane", 7, str(out)))
    each = dict(rank_receipts(record, "lane"))
    assert sorted(each) == [0, 1, 3, 4]
    for rank, expected in each.items():
        assert told(read_receipt(out / f"rank-{rank}")) == told(expected)
