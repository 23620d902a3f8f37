"""Ranks compared: what diverges is named, what is missing too, and who is slow."""

from dataclasses import replace

from built_receipt import started
from timelines import attempt, site

from compilediag.diagnosis.causes.run_causes import find_run_causes
from compilediag.diagnosis.divergence import RankSummary, compare_ranks, summarize_ranks
from compilediag.receipt.schema.comparisons import RankDivergence, RankRow, RanksSection
from compilediag.timeline.frames import collect_frames
from compilediag.timeline.timeline import Process, Step, Timeline, fold
from compilediag.views.ranks import describe_ranks, format_ranks
from compilediag_harness.wire import CollectivesPlanned


def summarised(run: Timeline) -> tuple[RankSummary, ...]:
    return summarize_ranks(run, find_run_causes(run))


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
        frames=tuple(collect_frames(compiles)),
        steps=tuple(steps),
    )


def divergences(of: Timeline, aspect: str) -> list[RankDivergence]:
    found = compare_ranks(summarised(of), None).divergences
    return [item for item in found if item.aspect == aspect]


def test_ranks_that_do_the_same_do_not_diverge() -> None:
    """However many there are; of the world size that was given some are missing."""
    same = timeline(("0/0", "0/1"), ("0/0", "0/1"), ("0/0", "0/1"))
    found = compare_ranks(summarised(same), 5)
    assert (found.divergences, found.missing) == ((), (3, 4))


def test_the_rank_that_differs_from_most_is_named() -> None:
    """With the compile only it has, and the cause of it; most ranks are right, not the lowest."""
    found = timeline(("0/0", "0/1"), ("0/0",), ("0/0",))
    (ids,) = divergences(found, "compile_ids")
    assert (ids.ranks, ids.like_rank) == ((0,), 1)
    assert (ids.only_here, ids.only_there) == (("0/1 forward",), ())
    (causes,) = divergences(found, "recompile_causes")
    assert causes.only_here == ("CD107 n at /home/user/app.py:10, once",)


def test_breaks_and_caches_are_compared() -> None:
    """By place, and by what the caches answered in each compile."""
    same = timeline(("0/0",), ("0/0",))
    broken = replace(site("Graph break", file="train.py", line=30, function="step"), processes=(1,))
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


def test_many_ranks_are_named_in_few_words() -> None:
    """Neighbours are drawn together."""
    assert format_ranks((0, 1, 2, 3, 7, 9, 10)) == "0-3, 7, 9-10"
    rows = tuple(
        RankRow(
            rank=rank, processes=1, frames=1, compiles=1, recompiles=0, graph_breaks=0,
            eager_fallbacks=0, compile_s=1.0,
        )
        for rank in (0, 1)
    )  # fmt: skip
    text = describe_ranks(RanksSection(expected=4, missing=(2, 3), rows=rows))
    assert text == "2 of 4 ranks, missing: 2-3; all of them do the same"
