"""The ranks section of a receipt."""

from __future__ import annotations

from compilediag.ranks.divergence import compare_ranks
from compilediag.ranks.summary import RankSummary, summaries_of
from compilediag.receipt.parts.ranks import (
    RankDivergence,
    RankRow,
    RanksSection,
    RankStraggler,
)
from compilediag.receipt.places import Places
from compilediag.timeline import Timeline

ROWS_KEPT = 4096
DIVERGENCES_KEPT = 200
RANKS_NAMED = 64
"""Most ranks named of one divergence."""


def ranks_section(timeline: Timeline, expected: int | None, places: Places) -> RanksSection | None:
    """The ranks compared; None where a launcher started fewer than two."""
    summaries = summaries_of(timeline)
    if len(summaries) < 2 and (expected or 1) < 2:
        return None
    found = compare_ranks(summaries, expected)
    measured = timeline.tells("metrics_rows")
    return RanksSection(
        expected=expected,
        missing=found.missing,
        rows=tuple(_row(summary, measured=measured) for summary in found.ranks[:ROWS_KEPT]),
        divergences=tuple(
            RankDivergence(
                aspect=item.aspect,
                ranks=item.ranks[:RANKS_NAMED],
                like_rank=item.like_rank,
                only_here=tuple(places.shorten(each) for each in item.only_here),
                only_there=tuple(places.shorten(each) for each in item.only_there),
                more=item.more,
            )
            for item in found.divergences[:DIVERGENCES_KEPT]
        ),
        stragglers=tuple(
            RankStraggler(rank=item.rank, what=item.what, seconds=item.seconds, ratio=item.ratio)
            for item in found.stragglers
        )
        if measured
        else (),
    )


def _row(summary: RankSummary, *, measured: bool) -> RankRow:
    return RankRow(
        rank=summary.rank,
        processes=summary.processes,
        frames=summary.frames,
        compiles=summary.compiles,
        recompiles=summary.recompiles,
        graph_breaks=summary.graph_breaks,
        eager_fallbacks=summary.eager_fallbacks,
        compile_s=summary.compile_s if measured else None,
        cache_hits=summary.cache_hits,
        cache_misses=summary.cache_misses,
        steps=summary.steps,
        step_median_s=summary.step_median_s,
    )
