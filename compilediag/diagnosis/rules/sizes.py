"""Sizes that a function was called with, and buckets for them (CD105, CD403)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple, cast

from compilediag.diagnosis.findings import Finding
from compilediag.timeline.call_sizes import VaryingSizes, varying_sizes
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.buckets import fewest

_MAX_BUCKETS = 8
"""torch's default recompile limit."""

_MAX_WASTE = 0.25
"""Padding that the proposed buckets may cost, as a share of the rows, if so few can keep to it."""

_MAX_SIZES = 16
"""Sizes kept in the evidence: those seen most."""


def with_sizes(finding: Finding, timeline: Timeline) -> Finding:
    """CD105 with the sizes that were called, how often, and buckets for them where one size changes
    and was compiled more than once."""
    sizes = None if finding.severity == "info" else _sizes_of(finding, timeline)
    if sizes is None:
        return finding
    padded = padded_to(sizes) if finding.count > 1 else None
    if padded is None:
        return replace(finding, evidence={**finding.evidence, **_called(sizes)[1]})
    base = finding.fix.summary.partition("; or pad to")[0]
    fix = replace(finding.fix, summary=f"{base}; or pad to {padded.buckets}: compilediag plan")
    return replace(finding, evidence={**finding.evidence, **padded.evidence}, fix=fix)


def _sizes_of(finding: Finding, timeline: Timeline) -> VaryingSizes | None:
    """The changing size of the callable that was compiled again; None where it is not one size, or
    another variable's."""
    ids = set(cast(list[str], finding.evidence["compile_ids"]))
    frames = {
        (item.process, item.frame.file, item.frame.line)
        for item in timeline.compiles
        if item.compile_id in ids
    }
    found = called_sizes(timeline, frames)
    if found is None:
        return None
    tensors = {dimension.rpartition(":")[0] for dimension in found.dims[0]}
    return found if finding.variable in tensors else None


def called_sizes(
    timeline: Timeline, frames: Collection[tuple[int, str, int]]
) -> VaryingSizes | None:
    """The changing size of the first callable, as (process, file, line), with one such size."""
    for item in timeline.invocations:
        if (item.process, item.function.file, item.function.line) in frames:
            shapes = ((shape.shapes, shape.count) for shape in item.shapes)
            found = varying_sizes(shapes, item.tensors)
            if found is not None and len(found.dims) == 1:
                return found
    return None


class Padded(NamedTuple):
    """What was called, and buckets for it."""

    evidence: dict[str, object]
    buckets: str
    """The buckets and their padding, for a sentence."""


def padded_to(sizes: VaryingSizes) -> Padded | None:
    """The fewest buckets that pad little; None where nothing has rows."""
    counts, evidence = _called(sizes)
    if not any(counts):
        return None
    found = fewest(counts, _MAX_BUCKETS, _MAX_WASTE)
    evidence |= {"buckets": list(found.buckets), "padding": found.waste}
    return Padded(evidence, f"{', '.join(map(str, found.buckets))} ({found.waste:.0%} padding)")


def _called(sizes: VaryingSizes) -> tuple[dict[int, int], dict[str, object]]:
    counts = {size[0]: count for size, count in zip(sizes.sizes, sizes.counts, strict=True)}
    most_called = sorted(counts.items(), key=lambda item: -item[1])[:_MAX_SIZES]
    return counts, {
        "sizes": [size for size, _ in most_called],
        "calls": [count for _, count in most_called],
        "distinct_sizes": len(counts),
    }
