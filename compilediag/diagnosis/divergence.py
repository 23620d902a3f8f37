"""Compares the ranks of a run, each by a summary of it: where they diverge, and which are slow.

All ranks of a data-parallel run compile the same graphs; one that does not makes all others wait
in the next collective, or hangs. A new aspect goes into `RankSummary` and `list_values`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.diagnosis.causes.run_causes import RunCauses
from compilediag.diagnosis.figures.steps import sum_measured
from compilediag.receipt.schema.comparisons import (
    RankDivergence,
    RankRow,
    RanksSection,
    RankStraggler,
    RankTotals,
)
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.frames import compute_counts, is_compile
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Timeline

MAX_IDS = 2000
"""Most compiles, causes, sites and graphs stored of a rank."""

MAX_OPERATIONS = 4096
"""Most collectives stored of a rank."""

WARMUP_STEPS = 2
"""First steps, which compile, are left out of the median where there are more."""


class RankSummary(NamedTuple):
    """One rank: its row in a receipt, and what it is compared with other ranks by."""

    row: RankRow
    values: Mapping[str, tuple[str, ...]]
    """By aspect, sorted, but for the collectives of every graph, which are in order ("0/0:
    all_reduce"): "0/1 forward" (compiles that ended with guarded code, with the epoch where it is
    not 0), "CD101 capture at train.py:22, 3 times" (primary causes of recompiles), "train.py:30"
    (places of graph breaks), "0/0 forward: 1 hit, 0 misses" (outcome of lookups in each)."""


@dataclass(frozen=True, slots=True)
class _RankRecord:
    """The part of a Timeline that the processes of one rank made."""

    compiles: list[Compile] = field(default_factory=list[Compile])
    walls: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """By process; those without a step too."""
    frames: list[Frame] = field(default_factory=list[Frame])
    breaks: list[BreakSite] = field(default_factory=list[BreakSite])
    collectives: list[str] = field(default_factory=list[str])


def summarize_ranks(timeline: Timeline, causes: RunCauses) -> tuple[RankSummary, ...]:
    """Summarize each rank, ascending; empty where the processes have no ranks."""
    by_rank: dict[int, _RankRecord] = defaultdict(_RankRecord)
    records: dict[int, _RankRecord] = defaultdict(_RankRecord)  # by process
    for process in timeline.processes:
        if process.rank is not None:
            records[process.index] = by_rank[process.rank]
            records[process.index].walls[process.index] = []
    for attempt in timeline.compiles:
        records[attempt.process].compiles.append(attempt)
    for step in timeline.steps:
        records[step.process].walls.setdefault(step.process, []).append(step.wall_s)
    for frame in timeline.frames:
        records[frame.key.process].frames.append(frame)
    for site in timeline.breaks:
        for index in site.processes:
            records[index].breaks.append(site)
    for schedule in timeline.collectives:
        named = (f"{schedule.compile_id}: {name}" for name in schedule.operations)
        records[schedule.process].collectives.extend(named)
    return tuple(_summarize_rank(rank, by_rank[rank], causes) for rank in sorted(by_rank))


def _summarize_rank(rank: int, record: _RankRecord, causes: RunCauses) -> RankSummary:
    compiles, sites = record.compiles, record.breaks
    guarded = [event for event in compiles if is_compile(event)]
    walls = max(record.walls.values(), key=len)
    steady = walls[WARMUP_STEPS:] if len(walls) > 2 * WARMUP_STEPS else walls
    outcomes = (
        f"{_name_compile(event)}: {event.cache_hits or 0} hits, {event.cache_misses or 0} misses"
        for event in guarded
        if event.cache_hits or event.cache_misses  # backends without a cache count zeros
    )
    primary: Counter[str] = Counter()
    for event in guarded:
        for cause in causes.get_causes(event.recompile)[:1] if event.recompile is not None else ():
            at = cause.location
            line = "" if at is None else f" at {at.file}:{at.line}"
            primary[f"{cause.rule} {cause.variable or cause.guard[:80]}{line}"] += 1
    named = (f"{cause}, {'once' if n == 1 else f'{n} times'}" for cause, n in primary.items())
    row = make_record(
        RankRow,
        compute_counts(record.frames, compiles, sites),
        rank=rank,
        processes=len(record.walls),
        compile_s=sum(event.seconds for event in compiles),
        cache_hits=sum_measured(event.cache_hits for event in compiles),
        cache_misses=sum_measured(event.cache_misses for event in compiles),
        steps=len(walls),
        step_median_s=median(steady) if steady else None,
    )
    values = {
        "compile_ids": sorted(map(_name_compile, guarded))[:MAX_IDS],
        "recompile_causes": sorted(named)[:MAX_IDS],
        "graph_breaks": sorted({f"{site.file}:{site.line}" for site in sites})[:MAX_IDS],
        "collectives": record.collectives[:MAX_OPERATIONS],
        "cache_hits": sorted(outcomes)[:MAX_IDS],
    }
    return RankSummary(row, {aspect: tuple(listed) for aspect, listed in values.items()})


def _name_compile(attempt: Compile) -> str:
    epoch = f" after reset {attempt.epoch}" if attempt.epoch else ""
    return f"{attempt.compile_id} {attempt.frame.function}{epoch}"


SHOWN = 5
"""Most differences named of one group of ranks."""

MAX_DIVERGENCES = 200
"""Most groups of ranks listed."""

MAX_STRAGGLERS = 16
MAX_ROWS = 4096
MAX_MISSING = 100_000
MAX_NAMED_RANKS = 64
"""Most ranks named of one divergence."""


def compare_ranks(
    summaries: Iterable[RankSummary], expected: int | None, *, timed: bool = True
) -> RanksSection:
    """Compare every rank with what most ranks do; `expected` is the world size, where known;
    `timed`: the record of the run has seconds."""
    by_rank = {summary.row.rank: summary for summary in summaries}
    by_rank = {rank: by_rank[rank] for rank in sorted(by_rank)}
    rows = {rank: summary.row for rank, summary in by_rank.items()}
    divergences: list[RankDivergence] = []
    differing: set[int] = set()
    left_out = 0
    for aspect in next(iter(by_rank.values())).values if by_rank else ():
        groups: dict[tuple[str, ...], list[int]] = {}
        for rank, summary in by_rank.items():
            groups.setdefault(summary.values[aspect], []).append(rank)
        # The largest group is right, the lowest of equals.
        usual, *others = sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[1][0]))
        others.sort(key=lambda pair: pair[1])
        differing.update(*(ranks for _, ranks in others))
        room = MAX_DIVERGENCES - len(divergences)
        left_out += max(0, len(others) - room)
        for own, ranks in others[:room]:
            differ = _find_first_diff if aspect == "collectives" else _list_diffs
            here, there = differ(own, usual[0])
            divergence = RankDivergence(
                aspect=aspect,
                ranks=tuple(ranks[:MAX_NAMED_RANKS]),
                like_rank=usual[1][0],
                only_here=tuple(here[:SHOWN]),
                only_there=tuple(there[:SHOWN]),
                more=sum(max(0, len(differences) - SHOWN) for differences in (here, there)),
                count=len(ranks),
            )
            divergences.append(divergence)
    counts = ("frames", "compiles", "recompiles", "eager_fallbacks")
    totals = RankTotals(
        ranks=len(rows),
        **{name: sum(getattr(row, name) for row in rows.values()) for name in counts},
        compile_s=sum(row.compile_s or 0.0 for row in rows.values()) if timed else None,
    )
    listed = (row if timed else replace(row, compile_s=None) for row in rows.values())
    missing = sorted(set(range(expected or 0)).difference(rows))
    return RanksSection(
        expected=expected,
        missing=tuple(missing[:MAX_MISSING]),
        missing_count=len(missing),
        rows=tuple(listed)[:MAX_ROWS],
        divergences=tuple(divergences),
        stragglers=_find_stragglers(rows) if timed else (),
        totals=totals,
        differing=len(differing),
        divergences_left_out=left_out,
    )


def _list_diffs(value: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    here, there = Counter(value), Counter(usual)
    return list((here - there).elements()), list((there - here).elements())


def _find_first_diff(value: tuple[str, ...], usual: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Find where the order differs first: what follows is a consequence."""
    for number, names in enumerate(zip_longest(value, usual), start=1):
        if names[0] != names[1]:
            here, there = ([f"collective {number} is {name}"] if name else [] for name in names)
            return here, there
    return [], []


def _find_stragglers(rows: Mapping[int, RankRow]) -> tuple[RankStraggler, ...]:
    """Find slow ranks by the time of a step where it was measured, else by all compile seconds."""
    what = "step"
    times = {r: row.step_median_s for r, row in rows.items() if row.step_median_s is not None}
    if len(times) < 2:
        what, times = "compile", {rank: row.compile_s or 0.0 for rank, row in rows.items()}
    usual = median(times.values()) if len(times) > 1 else 0.0
    if usual <= 0:
        return ()
    slow = [
        RankStraggler(rank=rank, what=what, seconds=seconds, ratio=seconds / usual)
        for rank, seconds in times.items()
        if seconds > usual
    ]
    return tuple(sorted(slow, key=lambda row: (-row.seconds, row.rank))[:MAX_STRAGGLERS])


def build_ranks_section(
    timeline: Timeline, causes: RunCauses, expected: int | None
) -> RanksSection | None:
    """Build the section of ranks. None where a launcher started fewer than two."""
    ranks = {process.rank for process in timeline.processes} - {None}
    if len(ranks) < 2 and (expected or 1) < 2:
        return None
    timed = timeline.can_observe("metrics_rows")
    return compare_ranks(summarize_ranks(timeline, causes), expected, timed=timed)
