"""Ranks compared: what diverges is named, what is missing too, and who is slow."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

from timelines import attempt, frames_of

from compilediag.diagnosis.causes.of_run import causes_in
from compilediag.diagnosis.ranks.divergence import Divergence, compare_ranks
from compilediag.diagnosis.ranks.summary import RankSummary, summaries_of
from compilediag.receipt.schema.ranks import RankRow, RanksSection
from compilediag.runs.offline.sources import read_record
from compilediag.timeline.fold import fold
from compilediag.timeline.timeline import BreakSite, Process, Step, Timeline
from compilediag.views.ranks import headline, ranks_named
from compilediag_harness.wire import WIRE_VERSION, CollectivesPlanned, ProcessStarted

RANKS = Path(__file__).parents[1] / "data" / "traces" / "ranks"


def summarised(run: Timeline) -> tuple[RankSummary, ...]:
    return summaries_of(run, causes_in(run))


def started(rank: int | None) -> ProcessStarted:
    return ProcessStarted(0.0, WIRE_VERSION, 100, 1, rank, None, (), "", "", "", "")


def timeline(*compile_ids: tuple[str, ...], walls: tuple[float, ...] = ()) -> Timeline:
    """One process a rank, each with these compiles, and steps of these seconds."""
    compiles = [
        attempt(each, process=rank, kind="recompile" if each.endswith("/1") else "first")
        for rank, ids in enumerate(compile_ids)
        for each in ids
    ]
    steps = [
        Step(rank, number, float(number), wall, None, None, None, 0.0)
        for rank, wall in enumerate(walls)
        for number in range(10)
    ]
    return Timeline(
        processes=tuple(
            Process(rank, started(rank), None, {}, None) for rank in range(len(compile_ids))
        ),
        compiles=tuple(compiles),
        recompiles=tuple(item.recompile for item in compiles if item.recompile is not None),
        frames=frames_of(compiles),
        steps=tuple(steps),
    )


def divergences(of: Timeline, aspect: str) -> list[Divergence]:
    found = compare_ranks(summarised(of), None).divergences
    return [item for item in found if item.aspect == aspect]


def test_ranks_that_do_the_same_do_not_diverge() -> None:
    """However many there are."""
    same = timeline(("0/0", "0/1"), ("0/0", "0/1"), ("0/0", "0/1"))
    assert compare_ranks(summarised(same), 3).divergences == ()


def test_the_rank_that_differs_from_most_is_named() -> None:
    """With the compile only it has, and the cause of it; most ranks are right, not the lowest."""
    found = timeline(("0/0", "0/1"), ("0/0",), ("0/0",))
    (ids,) = divergences(found, "compile_ids")
    assert (ids.ranks, ids.like_rank) == ((0,), 1)
    assert (ids.only_here, ids.only_there) == (("0/1 forward",), ())
    (causes,) = divergences(found, "recompile_causes")
    assert causes.only_here == ("CD107 n at /home/user/app.py:10, once",)


def test_of_two_ranks_the_lower_one_is_compared_with() -> None:
    """Neither is most; the order must not depend on chance."""
    (found,) = divergences(timeline(("0/0",), ("0/0", "1/0")), "compile_ids")
    assert (found.ranks, found.like_rank, found.only_here) == ((1,), 0, ("1/0 forward",))


def test_breaks_and_caches_are_compared() -> None:
    """By place, and by what the caches answered in each compile."""
    same = timeline(("0/0",), ("0/0",))
    broken = BreakSite("train.py", 30, "step", "Graph break", 1, ("0/0",), 0, (1,))
    cached = tuple(replace(c, cache_hits=c.process, cache_misses=1) for c in same.compiles)
    found = replace(same, breaks=(broken,), compiles=cached)
    assert divergences(found, "graph_breaks")[0].only_here == ("train.py:30",)
    (answers,) = divergences(found, "cache_hits")
    assert answers.only_here == ("0/0 forward: 1 hits, 1 misses",)


def test_the_first_collective_out_of_order_is_named() -> None:
    """What follows it differs too, and adds nothing."""
    orders = [("reduce", "gather", "send"), ("reduce", "send", "gather"), ("reduce", "gather")]
    journals = [
        (started(rank), CollectivesPlanned(0.0, 0, "0/0", 0, order))
        for rank, order in enumerate(orders)
    ]
    found = divergences(fold(journals), "collectives")
    assert [(item.ranks, item.only_here, item.only_there) for item in found] == [
        ((1,), ("collective 2 is 0/0: send",), ("collective 2 is 0/0: gather",)),
        ((2,), (), ("collective 3 is 0/0: send",)),
    ]


def test_missing_ranks_are_told() -> None:
    """Of the world size that was given."""
    assert compare_ranks(summarised(timeline(("0/0",), ("0/0",))), 4).missing == (2, 3)


def test_stragglers_are_ranked_by_their_steps() -> None:
    """Slowest first, beside the median; where no step was seen, by the seconds of compiles."""
    stepped = timeline(("0/0",), ("0/0",), ("0/0",), ("0/0",), walls=(1.0, 3.0, 1.0, 2.0))
    slow = compare_ranks(summarised(stepped), None).stragglers
    assert [(item.rank, item.what, item.ratio) for item in slow] == [
        (1, "step", 2.0),
        (3, "step", 2.0 / 1.5),
    ]
    compiled = compare_ranks(summarised(timeline(("0/0",), ("0/0", "1/0"))), None).stragglers
    assert [(item.rank, item.what, item.seconds) for item in compiled] == [(1, "compile", 2.0)]


def test_processes_without_a_rank_are_no_ranks() -> None:
    """The launcher, and children of a rank that have no rank."""
    assert summarised(Timeline(processes=(Process(0, started(None), None, {}, None),))) == ()


def test_a_summary_travels() -> None:
    """It is made where the trace lies, and compared elsewhere."""
    (summary, _) = summarised(timeline(("0/0",), ("0/0",)))
    assert isinstance(summary, RankSummary)
    assert pickle.loads(pickle.dumps(summary)) == summary


def test_recorded_traces_of_two_ranks() -> None:
    """One of which compiled once more, for a number that only it saw."""
    record = read_record([str(RANKS)])
    found = compare_ranks(summarised(fold([item.events for item in record.journals])), 2)
    assert [(row.rank, row.compiles, row.recompiles) for row in found.ranks] == [
        (0, 1, 0),
        (1, 2, 1),
    ]
    assert [(item.aspect, item.ranks) for item in found.divergences] == [
        ("compile_ids", (1,)),
        ("recompile_causes", (1,)),
    ]


def test_many_ranks_are_named_in_few_words() -> None:
    """Neighbours are drawn together."""
    assert ranks_named((0, 1, 2, 3, 7, 9, 10)) == "0-3, 7, 9-10"
    rows = tuple(
        RankRow(
            rank=rank, processes=1, frames=1, compiles=1, recompiles=0, graph_breaks=0,
            eager_fallbacks=0, compile_s=1.0,
        )
        for rank in (0, 1)
    )  # fmt: skip
    text = headline(RanksSection(expected=4, missing=(2, 3), rows=rows))
    assert text == "2 of 4 ranks, missing: 2-3; all of them do the same"
