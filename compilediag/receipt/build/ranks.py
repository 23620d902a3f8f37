"""The ranks section of a receipt."""

from __future__ import annotations

from compilediag.timeline.process_ranks import ranks_present
from compilediag.diagnosis.diagnose import Diagnosis
from compilediag.diagnosis.ranks.fingerprint import RankFingerprint
from compilediag.diagnosis.ranks.divergence import Comparison, compare_ranks
from compilediag.diagnosis.ranks.summary import summaries_of
from compilediag.receipt.schema.ranks import (RankDivergence, RankRow, RanksSection, RankStraggler, RankTotals)
from compilediag.receipt.build.relative_paths import PathShortener
from compilediag.timeline.timeline import Timeline

ROWS_KEPT = 4096
DIVERGENCES_KEPT = 200
MISSING_KEPT = 100_000
RANKS_NAMED = 64
"""Most ranks named of one divergence."""


def ranks_section(
    timeline: Timeline,
    diagnosis: Diagnosis,
    expected: int | None,
    places: PathShortener,
    found: Comparison | None = None,
) -> RanksSection | None:
    """The ranks compared, as the Timeline tells them, or as they were compared where it does not
    hold all of them; None where a launcher started fewer than two."""
    if found is None:
        ranks = {process.rank for process in timeline.processes} - {None}
        if len(ranks) < 2 and (expected or 1) < 2:
            return None
        found = compare_ranks(summaries_of(timeline, diagnosis.causes), expected)
    measured = timeline.tells("metrics_rows")
    counted = len(timeline.counted_ranks)
    return RanksSection(
        expected=expected,
        missing=found.missing[:MISSING_KEPT],
        missing_count=len(found.missing),
        rows=tuple(_row(summary, measured=measured) for summary in found.ranks[:ROWS_KEPT]),
        divergences=tuple(
            RankDivergence(
                aspect=item.aspect,
                ranks=item.ranks[:RANKS_NAMED],
                like_rank=item.like_rank,
                only_here=tuple(places.shorten(each) for each in item.only_here),
                only_there=tuple(places.shorten(each) for each in item.only_there),
                more=item.more,
                count=len(item.ranks),
            )
            for item in found.divergences[:DIVERGENCES_KEPT]
        ),
        stragglers=tuple(
            RankStraggler(rank=item.rank, what=item.what, seconds=item.seconds, ratio=item.ratio)
            for item in found.stragglers
        )
        if measured
        else (),
        totals=_totals(found, measured=measured),
        told=len(ranks_present(timeline)) - counted if counted else None,
        differing=found.differing,
        divergences_left_out=found.left_out + max(0, len(found.divergences) - DIVERGENCES_KEPT),
    )


def _totals(found: Comparison, *, measured: bool) -> RankTotals:
    return RankTotals(
        ranks=len(found.ranks),
        frames=sum(item.frames for item in found.ranks),
        compiles=sum(item.compiles for item in found.ranks),
        recompiles=sum(item.recompiles for item in found.ranks),
        eager_fallbacks=sum(item.eager_fallbacks for item in found.ranks),
        compile_s=sum(item.compile_s for item in found.ranks) if measured else None,
    )


def _row(summary: RankFingerprint, *, measured: bool) -> RankRow:
    return RankRow(
        rank=summary.rank or 0,
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
