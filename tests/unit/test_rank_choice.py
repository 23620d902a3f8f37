"""More ranks than a receipt has room for: which are listed, and that the others are counted."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from gate_receipts import first, receipt
from rank_folders import folder_of_ranks
from screens import screen

from compilediag.compare.gate.inconclusive import find_inconclusive
from compilediag.diagnosis.ranks import divergence as choice
from compilediag.diagnosis.ranks.divergence import (
    MAX_GROUPS,
    MAX_MISSING,
    compare_fingerprints,
    compare_ranks,
    find_lead,
    select_ranks,
)
from compilediag.diagnosis.ranks.summary import (
    LOSS_LENGTH,
    RankFingerprint,
    RankSummary,
    make_fingerprint,
    select_first_losses,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.offline.receipts import merged_receipt
from compilediag.runs.offline.sources import read_record
from compilediag.views.ranks import show_ranks
from compilediag.views.style import RenderOptions
from compilediag.views.verdict import render


def fingerprint(
    rank: int | None, behaviour: str = "", *, events: int = 10, standing: int = 2
) -> RankFingerprint:
    """A rank that does what is called so."""
    made = RankFingerprint(rank, 1, 1, 1, 0, 0, 0, 1.0, None, None, 0, None)
    return replace(
        made, digests=tuple(behaviour.encode() for _ in range(5)), events=events, standing=standing
    )


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two ranks are listed."""
    monkeypatch.setattr(choice, "MAX_RANKS", 2)
    monkeypatch.setattr(choice, "MIN_RANKS", 0)
    return monkeypatch


def summary(rank: int, *causes: str, step_median_s: float | None = None) -> RankSummary:
    return RankSummary(
        rank, 1, 1, 1, len(causes), 0, 0, 1.0, None, None, 0, step_median_s, (), (), causes, (), ()
    )


def listed(fingerprints: list[RankFingerprint]) -> set[int]:
    """The places of those that are listed where there is no room for all."""
    return set(select_ranks(fingerprints).indexes)


# --- the choice ------------------------------------------------------------------------------


def test_all_are_listed_where_there_is_room() -> None:
    """As many as a receipt can hold."""
    assert select_ranks([fingerprint(rank) for rank in range(choice.MAX_RANKS)]) is None
    assert (
        select_ranks([fingerprint(rank, events=10**7) for rank in range(choice.MIN_RANKS)]) is None
    )


def test_each_behaviour_is_listed_and_then_the_lowest() -> None:
    """As many as there is room for, so that counts of two runs can be compared."""
    fingerprints = [fingerprint(rank, "odd" if rank == 5000 else "usual") for rank in range(6000)]
    found = select_ranks(fingerprints)
    assert found.indexes == {*range(choice.MAX_RANKS - 1), 5000}
    assert found.unlike == 0


def test_events_are_bounded_too() -> None:
    """Ranks with long records are fewer, but never fewer than on one node."""
    half = [fingerprint(rank, events=choice.MAX_EVENTS // 100) for rank in range(1000)]
    assert listed(half) == set(range(100))
    huge = [fingerprint(rank, events=choice.MAX_EVENTS) for rank in range(1000)]
    assert listed(huge) == set(range(choice.MIN_RANKS))


def test_the_lead_is_always_listed(little_room: pytest.MonkeyPatch) -> None:
    """The rank whose steps are shown: the lowest that made any."""
    usual = [fingerprint(rank) for rank in range(3)]
    fingerprints = [*usual, fingerprint(3, standing=3), fingerprint(None, standing=1)]
    assert find_lead(fingerprints) == 3
    assert listed(fingerprints) == {3, 0}
    assert find_lead([fingerprint(0, standing=0)]) is None


# --- fingerprints-------------------------------------------------------------------------------


def test_a_fingerprint_is_small_whatever_the_rank_did() -> None:
    """A summary may hold thousands of names, a fingerprint holds none; what was lost is cut."""
    long = make_fingerprint(
        summary(3, *(f"CD107 n at train.py:{line}, once" for line in range(2000)))
    )
    lost = select_first_losses(("torch_trace", "x" * 10_000 + str(n)) for n in range(100))
    assert [len(reason) for _, reason in lost] == [LOSS_LENGTH]
    assert len(pickle.dumps(long)) < 600
    assert long.behaviour != make_fingerprint(summary(3)).behaviour


def test_summaries_are_asked_for_only_of_named_ranks() -> None:
    """One of those that differ in a way, and one of those that they are compared with."""
    summaries = {rank: summary(rank, *(["CD107 n"] * (rank in {7, 8}))) for rank in range(100)}
    named: list[int] = []

    def summary_of(rank: int) -> RankSummary:
        named.append(rank)
        return summaries[rank]

    found = compare_fingerprints(map(make_fingerprint, summaries.values()), 100, summary_of)
    assert found == compare_ranks(summaries.values(), 100)
    assert [(item.aspect, item.ranks) for item in found.divergences] == [
        ("recompile_causes", (7, 8))
    ]
    assert (set(named), found.differing) == ({0, 7}, 2)


def test_groups_that_differ_are_bounded() -> None:
    """Every rank may do something else: the rest is counted."""
    found = compare_ranks([summary(rank, f"cause {rank}") for rank in range(1000)], None)
    assert len(found.divergences) == MAX_GROUPS
    assert (found.left_out, found.differing) == (999 - MAX_GROUPS, 999)


# --- receipts --------------------------------------------------------------------------------


def merged(folder: Path) -> Receipt:
    return merged_receipt(read_record([str(folder)]), "lane", None, str(folder.parent / "out"))


def test_ranks_that_are_not_listed_are_counted(little_room: pytest.MonkeyPatch, tmp_path) -> None:
    """Of ranks 0, 1, 3 and 4 two are listed: the lead, and the one that differs. All are in the
    section of ranks, and among those that are present."""
    made = merged(folder_of_ranks(tmp_path / "in"))
    section = made.ranks
    assert (section.reported, section.totals.ranks, section.totals.compiles) == (2, 4, 5)
    assert (made.compile.compiles, made.compile.recompiles) == (3, 1)
    assert [row.rank for row in section.rows] == [0, 1, 3, 4]
    assert made.completeness.ranks_present == (0, 1, 3, 4)
    assert (section.missing, section.differing) == ((2,), 1)
    said = "ranks: 2 ranks are in the section of ranks, and in no other"
    assert said in made.completeness.reasons
    records = read_record([str(tmp_path / "in")]).journals
    assert made.completeness.journal_records == sum(len(item.events) for item in records)


def test_the_screen_names_the_ranks_it_shows(little_room: pytest.MonkeyPatch, tmp_path) -> None:
    """Counts of all ranks, and of how many the other screens are."""
    drawn = screen(show_ranks, merged(folder_of_ranks(tmp_path / "in")), RenderOptions(width=100))
    assert "4 of 5 ranks, missing: 2; 1 rank differs from the others" in drawn
    assert "all ranks together: 5 compiles, 1 recompile" in drawn
    assert "show 2 of the 4 ranks" in " ".join(drawn.split())
    assert "of 2 of 4 ranks" in render(merged(tmp_path / "in"))


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


def test_what_no_told_rank_does_makes_the_verdict_blind(little_room, tmp_path) -> None:
    """Nothing is called clean that the receipt does not list."""
    little_room.setattr(choice, "MAX_RANKS", 1)
    folder = folder_of_ranks(tmp_path / "in", every=True)
    made = merged(folder)
    assert (made.compile.recompiles, made.verdict) == (0, "blind")
    said = "ranks: 1 rank does what no rank does that is reported here: see their own receipts"
    assert said in made.completeness.reasons


def test_losses_of_ranks_that_are_not_listed_are_counted(little_room, tmp_path) -> None:
    """A cut trace, a damaged record: by their kinds, and in the receipt's words."""
    little_room.setattr(choice, "MAX_RANKS", 1)
    folder = folder_of_ranks(tmp_path / "in", every=True)
    path = next(folder.glob("*rank_2_*"))
    path.write_bytes(path.read_bytes()[:-400] + b"\nno line of torch's\n")
    made = merged(folder)
    assert made.completeness.records_lost["bad_prefix"] == 1
    assert any(path.name in reason for reason in made.completeness.reasons)
    assert (made.verdict, made.status) == ("blind", "partial")
