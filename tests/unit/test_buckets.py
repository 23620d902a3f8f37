"""Buckets: the choice is the best there is, its limits hold, it wastes less than rules of thumb."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compilediag_harness.shapes.buckets import (
    BucketsImpossible,
    batch_size,
    evaluate_buckets,
    list_multiples,
    list_powers_of_two,
    memory_cap,
    plan,
)

SIZES = st.dictionaries(st.integers(1, 24), st.integers(1, 9), min_size=1, max_size=7)
COSTS = st.lists(st.integers(0, 30), min_size=25, max_size=25)


def brute_force(
    counts: Mapping[int, int], k: int, cost: Mapping[int, float], per_graph: float
) -> float:
    """The least cost of any choice among the sizes with a cost."""
    least = float("inf")
    for number in range(1, k + 1):
        for buckets in combinations(cost, number):
            if max(buckets) >= max(counts):
                running = sum(
                    count * min(cost[bucket] for bucket in buckets if bucket >= size)
                    for size, count in counts.items()
                )
                least = min(least, running + number * per_graph)
    return least


@settings(max_examples=200, deadline=None)
@given(counts=SIZES, k=st.integers(1, 4), costs=COSTS, per_graph=st.integers(0, 20))
def test_no_choice_is_cheaper(counts, k, costs, per_graph) -> None:
    """For costs that rise and fall, with and without a price per graph, the plan costs as little as
    the best of all choices, and says truly what it costs."""
    table: dict[int, float] = {max(2, size): costs[max(2, size)] for size in counts}
    found = plan(counts, k, cost=lambda size: costs[size], per_graph_cost=per_graph)
    assert found.cost + per_graph * len(found.buckets) == brute_force(counts, k, table, per_graph)
    assert len(found.buckets) <= k
    assert evaluate_buckets(counts, found.buckets, cost=lambda size: costs[size]).cost == found.cost


@settings(max_examples=100, deadline=None)
@given(counts=SIZES, k=st.integers(1, 3), measured=st.sets(st.integers(2, 40), max_size=6))
def test_measured_sizes_are_the_only_buckets(counts, k, measured) -> None:
    """Of costs that were measured at some sizes, the best choice among those sizes is found."""
    cost = {size: float((size * 7919) % 31) for size in {*measured, max(2, *counts)}}
    found = plan(counts, k, cost=cost)
    assert set(found.buckets) <= set(cost)
    assert found.cost == brute_force(counts, k, cost, 0.0)


@settings(max_examples=100, deadline=None)
@given(
    counts=st.dictionaries(st.integers(0, 200), st.integers(1, 9), min_size=1, max_size=12),
    k=st.integers(1, 5),
    multiple=st.integers(1, 9),
    cap=st.one_of(st.none(), st.integers(9, 120)),
)
def test_limits_hold_after_rounding(counts, k, multiple, cap) -> None:
    """No bucket passes the cap, every one is a multiple, and every row has its place."""
    if not any(counts):
        return
    found = plan(counts, k, multiple=multiple, cap=cap)
    assert all(size % multiple == 0 and size >= 2 for size in found.buckets)
    assert cap is None or max(found.buckets) <= cap
    assert list(found.buckets) == sorted(set(found.buckets))
    assert found.rows == sum(size * count for size, count in counts.items()) <= found.run_rows
    assert cap is not None or max(found.buckets) >= max(counts)


def test_a_cheaper_larger_bucket_is_taken() -> None:
    """100 rows cost less at 128 than at 100: one bucket serves both sizes, and it is 128."""
    cost = {100: 9.0, 128: 4.0}
    found = plan({100: 5, 128: 1}, 2, cost=cost)
    assert (found.buckets, found.calls, found.cost) == ((128,), (6,), 24.0)


def test_a_price_per_graph_chooses_k() -> None:
    """Each further bucket must save more than it costs: 3 sizes, and 1, 2 or 3 buckets."""
    counts = {10: 100, 100: 9, 1000: 1}
    prices = (0.0, 10_000.0, 200_000.0)
    chosen = [plan(counts, 8, per_graph_cost=price).buckets for price in prices]
    assert chosen == [(10, 100, 1000), (10, 1000), (1000,)]


def test_a_batch_above_the_cap_is_split() -> None:
    """1,034 rows under a cap of 519 in eights: two calls of 512 and one of 16 with 10 rows."""
    found = plan({1034: 1}, 4, multiple=8, cap=519)
    assert (found.buckets, found.calls) == ((16, 512), (1, 2))
    assert (found.rows, found.run_rows) == (1034, 1040)


def test_small_sizes_share_the_smallest_bucket() -> None:
    """Sizes 0 and 1 have no bucket of their own: torch compiles them apart from all others."""
    found = plan({0: 7, 1: 3, 2: 1}, 4)
    assert (found.buckets, found.calls) == ((2,), (4,))


@pytest.mark.parametrize(
    ("counts", "arguments", "said"),
    [
        ({}, {}, "no size was seen"),
        ({0: 4, 8: 0}, {}, "no size was seen"),
        ({4: 1}, {"k": 0}, "at least one bucket"),
        ({4: 1}, {"multiple": 0}, "multiples of 0"),
        ({-4: 1}, {}, "size of -4"),
        ({4: 1}, {"multiple": 8, "cap": 7}, "no multiple of 8"),
        ({4: 1}, {"cost": {2: 1.0}}, "holds a batch of 4"),
        ({4: 1}, {"cost": {}}, "no size with a known cost"),
        ({4: 1}, {"cost": {4: float("nan")}}, "the cost of size 4 is nan"),
        ({4: 1}, {"cost": {4: -1.0}}, "the cost of size 4 is -1.0"),
    ],
)
def test_what_cannot_be_planned_is_said(counts, arguments, said) -> None:
    """Each impossible question has an error that names what is wrong."""
    with pytest.raises(BucketsImpossible, match=said):
        plan(counts, **({"k": 2} | arguments))  # pyright: ignore[reportArgumentType]


def test_given_buckets_are_judged_alike() -> None:
    """A bucket without a call is left out."""
    found = evaluate_buckets({3: 2, 9: 1}, [4, 8, 16])
    assert (found.buckets, found.calls, found.run_rows) == ((4, 16), (2, 1), 24)
    assert found.waste == pytest.approx(24 / 15 - 1)


def test_rules_of_thumb() -> None:
    """The two usual rules, up to the first bucket that holds the largest size."""
    assert list_powers_of_two(1) == (2,)
    assert list_powers_of_two(33) == (2, 4, 8, 16, 32, 64)
    assert list_powers_of_two(64) == (2, 4, 8, 16, 32, 64)
    assert list_multiples(8, 17) == (8, 16, 24)


def drawn(name: str) -> Counter[int]:
    """20,000 sizes like those of chat, code, short queries, decoding and documents."""
    random_ = random.Random(2026)
    draw = {
        "chat": lambda: min(4096, round(random_.lognormvariate(5.6, 1.0))),
        "code": lambda: min(8192, round(random_.lognormvariate(7.0, 0.9))),
        "queries": lambda: round(random_.gauss(12, 6)),
        "decode": lambda: round(random_.gauss(*random_.choice([(24, 6), (200, 15)]))),
        "documents": lambda: 512 if random_.random() < 0.4 else random_.randint(16, 511),
    }[name]
    return Counter(max(1, draw()) for _ in range(20_000))


@pytest.mark.parametrize("name", ["chat", "code", "queries", "decode", "documents"])
def test_half_the_padding_of_powers_of_two(name: str) -> None:
    """With as many buckets, the plan pads at most half as many rows as powers of two do."""
    counts = drawn(name)
    ladder = list_powers_of_two(max(counts))
    usual, planned = evaluate_buckets(counts, ladder), plan(counts, len(ladder))
    assert len(planned.buckets) <= len(ladder)
    assert planned.run_rows - planned.rows <= (usual.run_rows - usual.rows) / 2


def test_the_cap_from_two_peaks() -> None:
    """100 bytes and 10 a row: of 1,000 bytes 90 rows can be had."""
    assert memory_cap(2, 120, 8, 180, 1000) == 90


@pytest.mark.parametrize(
    ("wanted", "cap", "multiple", "power_of_two", "size"),
    [
        (100, 512, 8, False, 104),
        (100, 103, 8, False, 96),  # 104 would pass the cap
        (10_100, 512, 1, False, 512),
        (100, 512, 1, True, 128),
        (100, 127, 1, True, 64),  # 128 would pass the cap
        (3, 512, 8, True, 8),
        (1, 1, 1, True, 1),
    ],
)
def test_rounded_within_the_cap(wanted, cap, multiple, power_of_two, size) -> None:
    """Up to the next allowed size, and down where that would pass the cap."""
    assert batch_size(wanted, cap=cap, multiple=multiple, power_of_two=power_of_two) == size


@given(
    wanted=st.integers(1, 5000),
    cap=st.integers(1, 5000),
    multiple=st.sampled_from([1, 2, 3, 8, 12]),
    power_of_two=st.booleans(),
)
def test_never_above_the_cap(wanted: int, cap: int, multiple: int, power_of_two: bool) -> None:
    """Whatever is asked for: allowed, at most the cap, and no smaller allowed size would do."""
    try:
        size = batch_size(wanted, cap=cap, multiple=multiple, power_of_two=power_of_two)
    except BucketsImpossible:
        assert cap < multiple or (power_of_two and (multiple & (multiple - 1) or cap < multiple))
        return
    assert 1 <= size <= cap
    assert size % multiple == 0
    assert not power_of_two or size & (size - 1) == 0
    smaller = size // 2 if power_of_two else size - multiple
    assert smaller < max(wanted, multiple)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: batch_size(0, cap=8), "no batch size"),
        (lambda: batch_size(8, cap=64, multiple=12, power_of_two=True), "no power of two"),
        (lambda: batch_size(8, cap=7, multiple=8), "multiple of 8 is 7 or less"),
        (lambda: evaluate_buckets({3: 2}, [4], cost={8: 1.0}), "size 4 is nan"),
        (lambda: evaluate_buckets({3: 2}, []), "at least 1"),
        (lambda: memory_cap(2, 120, 8, 180, 109), "not one row"),
        (lambda: memory_cap(2, 120, 8, 120, 1000), "further apart"),
    ],
)
def test_numbers_out_of_range(make: Callable[[], object], said: str) -> None:
    with pytest.raises(BucketsImpossible, match=said):
        make()
