"""CUDA graphs of the lead process: recorded, replayed, skipped, and padded."""

from __future__ import annotations

from collections import Counter

from compilediag.diagnosis.figures.memory import has_gpu
from compilediag.receipt.schema.record import record_from
from compilediag.receipt.schema.running import CudagraphSection
from compilediag.timeline.cudagraphs import skip_reason
from compilediag.timeline.timeline import Timeline, lead_process


def cudagraph_section(timeline: Timeline) -> CudagraphSection:
    """Of the lead process. Not applicable without a CUDA device: torch then counts every graph as
    skipped."""
    applicable = has_gpu(timeline)
    lead = timeline.lead
    run = next((item for item in timeline.cudagraphs if item.process == lead), None)
    if applicable is False and (run is None or not run.recordings):
        return CudagraphSection(applicable=False)
    if run is None:
        # The trees were never imported: there was nothing to record.
        ended = (process := lead_process(timeline)) is not None and process.ended is not None
        none = 0 if applicable and ended else None
        return CudagraphSection(applicable=applicable, recordings=none, replays=none)
    if run.lost is not None:
        return CudagraphSection(applicable=applicable, pool_bytes=run.pool_bytes)
    return record_from(
        CudagraphSection,
        run,
        applicable=True,
        recordings_by_reason=run.reasons,
        skips_by_reason=_skips_by_reason(timeline),
        distinct_shapes=run.distinct_sizes,
        threads=len({item.thread for item in run.recorded}),
        padding_waste_fraction=_padding_in_graphs(timeline, lead),
    )


def _padding_in_graphs(timeline: Timeline, process: int) -> float | None:
    """Of one callable: rows of two may cost very different work, and are not added up."""
    own = [item for item in timeline.fixed_shapes if item.process == process]
    padded = [item.graph_padding for item in own if item.graph_calls]
    return padded[0] if len(padded) == 1 else None


def _skips_by_reason(timeline: Timeline) -> dict[str, int]:
    """As torch warned: it warns of most only once, and of some not at all."""
    reasons = (skip_reason(warning.text) for warning in timeline.warnings)
    return dict(Counter(reason for reason in reasons if reason is not None))
