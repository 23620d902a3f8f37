"""Planner of buckets: the few sizes to compile for, so that the sizes a program uses cost least.

The choice is exact. A size runs in the cheapest chosen bucket that holds it, so a cost may also
fall with the size: it is first replaced by its minimum over the sizes that are not smaller. What is
left are groups of neighbouring sizes.

Where the best group up to a size begins never falls from size to size: halves are searched between
the begins of their neighbours, and k groups of n members cost O(k n log n).

Pure, standard library only.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Cost = Callable[[int], float] | Mapping[int, float]
"""What one call at a size costs, in any unit: a function of the size, or measured values, of which
the sizes are the only ones that may become a bucket."""

MIN_SIZE = 2
"""Smallest bucket: torch compiles sizes 0 and 1 on their own."""


class BucketsImpossible(ValueError):
    """The sizes cannot be covered with the buckets that were requested."""


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """Buckets, and what the observed sizes cost in them."""

    buckets: tuple[int, ...]
    """Ascending."""
    calls: tuple[int, ...]
    """Calls that run in each bucket, parallel to `buckets`; a split batch is several."""
    rows: int
    """Rows of all batches."""
    run_rows: int
    """Rows that run, padding included."""
    cost: float
    """Of all calls, in the unit of the cost; the cost per graph is not in it."""

    @property
    def waste(self) -> float:
        """Padding as a share of the rows: 0.5 is three rows run for two that were needed."""
        return self.run_rows / self.rows - 1.0 if self.rows else 0.0


def plan(
    counts: Mapping[int, int],
    k: int,
    *,
    cost: Cost | None = None,
    per_graph_cost: float = 0.0,
    multiple: int = 1,
    cap: int | None = None,
) -> BucketPlan:
    """Choose the at most `k` buckets in which the observed sizes cost least.

    Args:
        counts: how often each size was seen. Batches of no rows cost nothing and are left out.
        k: buckets, at most.
        cost: of one call at a size; without it, the size itself.
        per_graph_cost: what one more bucket must save, in the unit of the cost: seconds of its
            compile, or bytes of its graph. Fewer than `k` buckets may then be cheapest.
        multiple: every bucket is a multiple of it.
        cap: no bucket is larger, after rounding too. A larger batch is split into calls of the
            largest allowed size and a rest.

    Raises:
        BucketsImpossible: no size was seen, a number is out of range, or no size that may become a
            bucket holds the largest batch.
    """
    _check_counts(counts, k, multiple)
    candidates = _list_candidates(counts, cost, multiple, cap)
    seen = _split_batches(counts, candidates[-1])
    cheapest = _compute_least_costs(candidates, cost)
    # Calls of sizes that fit a candidate and no smaller one. Those above the first that holds every
    # size are needed for their cost only.
    weights = [0] * (bisect_left(candidates, max(seen)) + 1)
    for size, count in seen.items():
        weights[bisect_left(candidates, size)] += count
    # Invariant: prices never fall, being the least costs of sizes that are not smaller.
    prices = [price for price, _ in cheapest[: len(weights)]]
    tops = find_largest_of_groups(prices, weights, k, per_graph_cost)
    return _build_plan(seen, sorted({cheapest[index][1] for index in tops}), cost)


def find_fewest_buckets(counts: Mapping[int, int], k: int, max_waste: float) -> BucketPlan:
    """Find the plan with the fewest buckets that pads at most `max_waste` of the rows (0.5: half as
    many again); the one with `k` where none does.

    Raises:
        BucketsImpossible: no size was seen, or a number is out of range.
    """
    best = plan(counts, 1)
    for buckets in range(2, k + 1):
        if best.waste <= max_waste:
            break
        best = plan(counts, buckets)
    return best


def evaluate_buckets(
    counts: Mapping[int, int], buckets: Iterable[int], *, cost: Cost | None = None
) -> BucketPlan:
    """Compute what the observed sizes cost in given buckets; a batch above them is split. Buckets
    in which no call runs are left out.

    Raises:
        BucketsImpossible: there is no bucket, no size was seen, or a bucket has no known cost.
    """
    chosen = sorted(set(buckets))
    if not chosen or chosen[0] < 1:
        raise BucketsImpossible(f"buckets must be sizes of at least 1, not {chosen}")
    _check_counts(counts, 1, 1)
    return _build_plan(_split_batches(counts, chosen[-1]), chosen, cost)


def list_powers_of_two(largest: int) -> tuple[int, ...]:
    """List 2, 4, 8... up to the first that holds `largest`."""
    top = max(MIN_SIZE, largest)
    return tuple(1 << power for power in range(1, (top - 1).bit_length() + 1))


def list_multiples(step: int, largest: int) -> tuple[int, ...]:
    """List step, 2 step, 3 step... up to the first that holds `largest`."""
    return tuple(range(step, _round_up(max(largest, 1), step) + 1, step))


def memory_cap(
    small: int, small_bytes: int, large: int, large_bytes: int, available_bytes: int
) -> int:
    """Compute the largest batch whose peak fits, when the peak grows by the same for every row.

    Args:
        small: one batch size that was run.
        small_bytes: its peak.
        large: a larger one.
        large_bytes: its peak.
        available_bytes: what may be used; leave some room, such as a fifth of what is free.

    Raises:
        BucketsImpossible: the two peaks do not show what a row takes, or not one row fits.
    """
    if not (0 < small < large and 0 <= small_bytes < large_bytes):
        raise BucketsImpossible(
            f"peaks of {small_bytes} bytes at {small} rows and {large_bytes} at {large} do not "
            "tell what a row takes: measure two sizes that are further apart"
        )
    # In whole numbers: rows * step <= (available - small_bytes) * apart, from `small` on.
    apart, step = large - small, large_bytes - small_bytes
    cap = small + (available_bytes - small_bytes) * apart // step
    if cap < 1:
        raise BucketsImpossible(f"not one row fits into {available_bytes} bytes")
    return cap


def batch_size(wanted: int, *, cap: int, multiple: int = 1, power_of_two: bool = False) -> int:
    """Compute the smallest allowed size that holds `wanted` rows, or the largest below the cap.

    Rounding up never passes the cap: where it would, the size is rounded down, and the batch has to
    be split.

    Args:
        wanted: rows of the largest batch.
        cap: rows at most: of memory, or of the knee.
        multiple: sizes that are multiples of it are allowed.
        power_of_two: only powers of two are allowed.

    Raises:
        BucketsImpossible: no allowed size is below the cap, or a number is out of range.
    """
    if wanted < 1 or multiple < 1:
        raise BucketsImpossible(f"{wanted} rows in multiples of {multiple} is no batch size")
    if power_of_two:
        step = 1 << (multiple - 1).bit_length()
        if step % multiple:
            raise BucketsImpossible(f"no power of two is a multiple of {multiple}")
        up, upper = max(step, 1 << (wanted - 1).bit_length()), 1 << cap.bit_length() >> 1
        allowed = upper >= step
    else:
        up, upper = -(-wanted // multiple) * multiple, cap // multiple * multiple
        allowed = upper >= multiple
    if not allowed:
        kind = "power of two and " if power_of_two else ""
        raise BucketsImpossible(f"no {kind}multiple of {multiple} is {cap} or less")
    return min(up, upper)


# --- what may be chosen -----------------------------------------------------------------------


def _check_counts(counts: Mapping[int, int], k: int, multiple: int) -> None:
    if k < 1:
        raise BucketsImpossible(f"at least one bucket is needed, not {k}")
    if multiple < 1:
        raise BucketsImpossible(f"buckets cannot be multiples of {multiple}")
    for size, count in counts.items():
        if size < 0 or count < 0:
            raise BucketsImpossible(f"a size of {size} cannot have been seen {count} times")
    if not any(size and count for size, count in counts.items()):
        raise BucketsImpossible("no size was seen: there is nothing to choose buckets for")


def _list_candidates(
    counts: Mapping[int, int], cost: Cost | None, multiple: int, cap: int | None
) -> list[int]:
    """List the sizes that may become a bucket, ascending; the last one holds the largest batch, or
    is what the cap leaves of it."""
    needed = max(size for size, count in counts.items() if count)
    upper = math.inf if cap is None else cap // multiple * multiple
    if upper < MIN_SIZE:
        raise BucketsImpossible(f"no multiple of {multiple} from {MIN_SIZE} to {cap} exists")
    if cost is None or callable(cost):
        top = int(min(_round_up(max(MIN_SIZE, needed), multiple), upper))
        rounded = (_round_up(max(MIN_SIZE, size), multiple) for size in _split_batches(counts, top))
        return sorted({size for size in rounded if size <= top} | {top})
    known = sorted(size for size in cost if MIN_SIZE <= size <= upper and size % multiple == 0)
    if not known or (cap is None and known[-1] < needed):
        raise BucketsImpossible(
            f"no size with a known cost holds a batch of {needed}: measure one that does, or "
            "give a cap, so that larger batches are split"
        )
    return known


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _split_batches(counts: Mapping[int, int], top: int) -> dict[int, int]:
    """Split batches above the largest bucket into calls of that size, and a rest."""
    seen: dict[int, int] = {}
    for size, count in counts.items():
        whole, rest = divmod(size, top)
        if whole and count:
            seen[top] = seen.get(top, 0) + whole * count
        if rest and count:
            seen[rest] = seen.get(rest, 0) + count
    return seen


def _compute_least_costs(candidates: Sequence[int], cost: Cost | None) -> list[tuple[float, int]]:
    """Compute for each candidate the least cost of one that is not smaller, with that one: the
    smallest of those that cost the same."""
    cheapest: list[tuple[float, int]] = []
    best = (math.inf, 0)
    for size in reversed(candidates):
        if cost is None:
            price: float = size
        else:
            price = cost(size) if callable(cost) else cost.get(size, math.nan)
        if not price >= 0.0 or math.isinf(price):
            raise BucketsImpossible(f"the cost of size {size} is {price}: it must be a number >= 0")
        best = min(best, (price, size))
        cheapest.append(best)
    return cheapest[::-1]


def _build_plan(seen: Mapping[int, int], buckets: Sequence[int], cost: Cost | None) -> BucketPlan:
    """Build the plan that runs each size in the cheapest bucket that holds it."""
    cheapest = _compute_least_costs(buckets, cost)
    calls = dict.fromkeys(buckets, 0)
    total = 0.0
    for size, count in seen.items():
        price, bucket = cheapest[bisect_left(buckets, size)]
        calls[bucket] += count
        total += price * count
    used = [bucket for bucket in buckets if calls[bucket]]
    return BucketPlan(
        buckets=tuple(used),
        calls=tuple(calls[bucket] for bucket in used),
        rows=sum(size * count for size, count in seen.items()),
        run_rows=sum(bucket * calls[bucket] for bucket in used),
        cost=total,
    )


def find_largest_of_groups(
    prices: Sequence[float], weights: Sequence[float], k: int, per_group: float
) -> list[int]:
    """Find the position of the largest member of each group, when neighbours are grouped so that
    the sum of (weight of the group) x (price of its largest member) + per_group is least, with at
    most `k` groups. `prices` never fall; `weights` are parallel to them."""
    before = [0.0]
    for weight in weights:
        before.append(before[-1] + weight)
    least: list[float] = [0.0] + [math.inf] * len(prices)
    best, best_groups = math.inf, 0
    choices: list[list[int]] = []
    for groups in range(1, min(k, len(prices)) + 1):
        least, chosen = _add_group(least, prices, before)
        choices.append(chosen)
        total = least[-1] + per_group * groups
        if total < best:
            best, best_groups = total, groups
    tops: list[int] = []
    end = len(prices)
    for chosen in reversed(choices[:best_groups]):
        tops.append(end - 1)
        end = chosen[end]
    return tops[::-1]


def _add_group(
    least: Sequence[float], prices: Sequence[float], before: Sequence[float]
) -> tuple[list[float], list[int]]:
    """Compute the least cost of the first 1, 2... members with one group more, and where it begins.

    A group from i to j costs prices[j] * (before[j + 1] - before[i]). Prices never fall, so neither
    does the last of the best begins.
    """
    result, chosen = [math.inf] * len(least), [0] * len(least)
    waiting = [(1, len(least) - 1, 0, len(least) - 2)]
    while waiting:
        first, last, low, high = waiting.pop()
        if first > last:
            continue
        end = (first + last) // 2
        for start in range(low, min(high, end - 1) + 1):
            cost = least[start] + prices[end - 1] * (before[end] - before[start])
            if cost <= result[end]:
                result[end], chosen[end] = cost, start
        waiting.append((first, end - 1, low, chosen[end]))
        waiting.append((end + 1, last, chosen[end], high))
    return result, chosen
