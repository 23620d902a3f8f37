"""The ranks section of a receipt."""

from __future__ import annotations

from msgspec.structs import replace

from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.ranks.divergence import RankComparison, compare_ranks
from compilediag.diagnosis.ranks.fingerprint import RankFingerprint
from compilediag.diagnosis.ranks.summary import summaries_of
from compilediag.receipt.schema.ranks import (
    RankRow,
    RanksSection,
    RankTotals,
)
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.timeline import Timeline, ranks_present

MAX_ROWS = 4096
MAX_DIVERGENCES = 200
MAX_MISSING = 100_000
MAX_NAMED_RANKS = 64
"""Most ranks named of one divergence."""


def ranks_section(
    timeline: Timeline,
    causes: RunCauses,
    expected: int | None,
    found: RankComparison | None = None,
) -> RanksSection | None:
    """The comparison of the ranks: `found`, where the Timeline does not hold all of them, else of
    those it holds. None where a launcher started fewer than two."""
    if found is None:
        ranks = {process.rank for process in timeline.processes} - {None}
        if len(ranks) < 2 and (expected or 1) < 2:
            return None
        found = compare_ranks(summaries_of(timeline, causes), expected)
    measured = timeline.observes("metrics_rows")
    counted = len(timeline.counted_ranks)
    return RanksSection(
        expected=expected,
        missing=found.missing[:MAX_MISSING],
        missing_count=len(found.missing),
        rows=tuple(_row(summary, measured=measured) for summary in found.ranks[:MAX_ROWS]),
        divergences=tuple(
            replace(item, ranks=item.ranks[:MAX_NAMED_RANKS])
            for item in found.divergences[:MAX_DIVERGENCES]
        ),
        stragglers=found.stragglers if measured else (),
        totals=_totals(found, measured=measured),
        told=len(ranks_present(timeline)) - counted if counted else None,
        differing=found.differing,
        divergences_left_out=found.left_out + max(0, len(found.divergences) - MAX_DIVERGENCES),
    )


def _totals(found: RankComparison, *, measured: bool) -> RankTotals:
    counts = ("frames", "compiles", "recompiles", "eager_fallbacks")
    return RankTotals(
        ranks=len(found.ranks),
        **{name: sum(getattr(item, name) for item in found.ranks) for name in counts},
        compile_s=sum(item.compile_s for item in found.ranks) if measured else None,
    )


def _row(summary: RankFingerprint, *, measured: bool) -> RankRow:
    return record_from(
        RankRow,
        summary,
        rank=summary.rank or 0,
        compile_s=summary.compile_s if measured else None,
    )
