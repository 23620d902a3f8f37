"""Ranks compared: what diverges is named, what is missing too, and who is slow."""

from dataclasses import replace

from built_receipt import started
from timelines import attempt, site

from compilediag.diagnosis.causes.run_causes import find_run_causes
from compilediag.diagnosis.ranks.divergence import RankSummary, compare_ranks, summarize_ranks
from compilediag.receipt.schema.comparisons import RankDivergence, RankRow, RanksSection
from compilediag.timeline.compiles import ProcessCaches
from compilediag.timeline.frames import collect_frames
from compilediag.timeline.timeline import Process, Step, Timeline, fold
from compilediag.views.ranks import describe_ranks, format_ranks
from compilediag_harness.wire import CacheLookedUp, CollectivesPlanned


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


def keyed(*components: tuple[tuple[str, str], ...], of: Timeline | None = None) -> Timeline:
    """One process a rank, whose graph has a key of these components."""
    same = of or timeline(*((("0/0",),) * len(components)))
    caches = tuple(
        ProcessCaches(
            process=rank,
            lookups=(CacheLookedUp(0.0, 0, "fx_graph", "miss", "0/0", 0, components=parts),)
            if parts
            else (),
            settings={},
        )
        for rank, parts in enumerate(components)
    )
    return replace(same, caches=caches)


def test_the_device_of_a_rank_is_no_difference() -> None:
    """Each rank has a device of its own: in inputs, in the graph, in how inductor is called."""

    def on(index: int, dtype: str = "torch.float32") -> tuple[tuple[str, str], ...]:
        device = f"device(type='cuda', index={index})"
        return (
            ("gm", f"{index}1111111 <lambda>()"),
            ("example_inputs[0]", f"{index}2222222 {dtype}, {device}"),
            ("fx_kwargs[boxed_forward_device_index]", f"{index}3333333 {index}"),
        )

    assert divergences(keyed(on(0), on(1), on(2)), "cache_keys") == []
    (found,) = divergences(keyed(on(0), on(1), on(2, "torch.bfloat16")), "cache_keys")
    assert found.ranks == (2,)
    (line,) = found.only_here
    assert line.startswith("0/0 forward: input 0 of the graph = torch.bfloat16, device(type='cuda'")
    assert line.endswith("index=N) (on the device of the rank)")


def test_a_lookup_of_one_rank_only_is_no_difference_of_keys() -> None:
    """A rank that found AOTAutograd's entry looks no graph up, or torch did not describe it."""
    found = keyed((("gm", "11111111 <lambda>()"),), ())
    assert divergences(found, "cache_keys") == []
    assert compare_ranks(summarised(found), None).differing == 0


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


def test_what_keys_of_caches_are_made_of_is_compared() -> None:
    """The component that differs is named as what it is, with its value on either side."""
    same = ("example_inputs[0]", "aaaaaaaa torch.float32, [4]")
    one, other = ("gm", "11111111 <lambda>()"), ("gm", "22222222 <lambda>()")
    (found,) = divergences(keyed((one, same), (other, same), (one, same)), "cache_keys")
    assert (found.ranks, found.like_rank) == ((1,), 0)
    assert found.only_here == ("0/0 forward: the graph = <lambda>() (22222222)",)
    assert found.only_there == ("0/0 forward: the graph = <lambda>() (11111111)",)
