"""Many ranks, frames and missing ranks: what a receipt lists is bounded; the rest is counted."""

from pathlib import Path

import pytest
from gate_receipts import first, receipt
from rank_folders import folder_of_ranks

from compilediag.compare.gate.inconclusive import find_inconclusive
from compilediag.diagnosis.divergence import (
    MAX_DIVERGENCES,
    MAX_MISSING,
    RankSummary,
    compare_ranks,
)
from compilediag.receipt.schema.comparisons import RankRow
from compilediag.runs.offline import merged_receipt, read_record


def summary(rank: int, *causes: str) -> RankSummary:
    ones = dict.fromkeys(("processes", "frames", "compiles", "recompiles", "graph_breaks"), 1)
    row = RankRow(rank=rank, eager_fallbacks=0, compile_s=1.0, **ones)
    return RankSummary(row, {"recompile_causes": causes})


def test_groups_that_differ_are_bounded() -> None:
    """Every rank may do something else: the rest is counted."""
    found = compare_ranks([summary(rank, f"cause {rank}") for rank in range(1000)], None)
    assert len(found.divergences) == MAX_DIVERGENCES
    assert (found.divergences_left_out, found.differing) == (999 - MAX_DIVERGENCES, 999)


def test_missing_ranks_are_bounded(tmp_path: Path) -> None:
    """Any world size may be given; the receipt can be read back all the same."""
    record = read_record([str(folder_of_ranks(tmp_path / "in"))])
    section = merged_receipt(record, "lane", MAX_MISSING + 10).ranks
    assert (len(section.missing), section.missing_count) == (MAX_MISSING, MAX_MISSING + 6)


def test_frames_without_room_are_counted_and_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receipt states it, and the gate does not take a part of the frames for all."""
    many = [first(f"f{number}", number) for number in range(5)]
    assert [*find_inconclusive(receipt(*many))] == []
    monkeypatch.setattr("compilediag.receipt.compiles.MAX_FRAMES", 3)
    monkeypatch.setattr("compilediag.receipt.assemble.MAX_FRAMES", 3)
    cut = receipt(*many)
    assert (cut.compile.frames, len(cut.compile.frames_detail)) == (5, 3)
    said = "compile.frames_detail: 2 more frames are counted and not listed"
    assert said in cut.completeness.reasons
    assert "only 3 of 5 frames are listed in the receipt" in find_inconclusive(cut)
