"""The pipeline section of a receipt."""

from __future__ import annotations

from compilediag.diagnosis.figures.pipelines import PipelineFigures, pipelines_of
from compilediag.receipt.schema.pipeline import PipelineRecord, PipelineSection, PoolSizes
from compilediag.timeline.timeline import Timeline


def pipeline_section(timeline: Timeline) -> PipelineSection | None:
    """None when the program measured no loop."""
    found = pipelines_of(timeline)
    return PipelineSection(loops=tuple(_record(figures) for figures in found)) if found else None


def _record(figures: PipelineFigures) -> PipelineRecord:
    pool = figures.pool
    return PipelineRecord(
        name=figures.name,
        trained=figures.trained,
        inferred=figures.inferred,
        train_steps=figures.train_steps,
        throughput=figures.throughput,
        train_capacity=figures.train_capacity,
        infer_capacity=figures.infer_capacity,
        infer_call_s=figures.infer_call_s,
        slots=figures.slots,
        dispatch_wait_s=figures.dispatch_wait_s,
        wait_share=figures.wait_share,
        pool=None
        if pool is None
        else PoolSizes(
            median=pool.median, max=pool.max, last=pool.last, early=pool.early, late=pool.late
        ),
        bottleneck=figures.bottleneck,
    )
