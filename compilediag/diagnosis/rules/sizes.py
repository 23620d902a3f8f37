"""Sizes of tensor arguments, and dynamic sizes that left their region (CD105, CD118)."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple, cast

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording
from compilediag.timeline.call_sizes import VaryingSizes, varying_sizes
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.buckets import fewest

_MOST_BUCKETS = 8
"""torch's default recompile limit."""

_MOST_WASTE = 0.25
"""Padding that the proposed buckets may cost, as a share of the rows, if so few can keep to it."""

_MOST_SIZES = 16
"""Sizes kept in the evidence: those seen most."""


def _size(group: Group) -> Wording:
    if group.kind == "marking":
        return Wording(
            "dimension marked after the first call",
            f"mark {group.name} before the first compiled call",
        )
    dimension = _dimension(group)
    return Wording(
        "tensor argument of another size",
        f"call torch._dynamo.mark_dynamic({group.variable or 'x'}, {dimension}) before the first "
        "call; or pad to a fixed size (drop_last=True for a last batch)",
        "dynamic graphs may run slower; CUDA graphs need the padding",
    )


def _dimension(group: Group) -> str:
    """The dimension that torch named, else the first one that differs between the two sizes."""
    told = re.search(r"at index (\d+)", group.first.guard)
    if told is not None:
        return told[1]
    before = re.findall(r"[\d*]+", group.first.expected or "")
    after = re.findall(r"[\d*]+", group.first.actual or "")
    if len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            if old not in (new, "*"):
                return str(index)
    return "dim"


def _constraint(group: Group) -> Wording:
    name = group.variable or "x"
    words = {
        "zero_one": Wording(
            "size 0 or 1 reached a dynamic graph",
            f"pad {group.name} to at least 2, or call "
            f"torch._dynamo.decorators.mark_unbacked({name}, dim) before the first call",
            "mark_unbacked may raise where the code branches on the size",
        ),
        "divisibility": Wording(
            "dynamic size is no multiple any more", f"pad {group.name} to the multiple"
        ),
        "duck_equal": Wording(
            "sizes that were equal by accident differ",
            "make the sizes unequal in the first call, or set "
            "torch.fx.experimental._config.use_duck_shape = False",
        ),
        "equal": Wording(
            "sizes that the graph needs equal differ",
            f"pass inputs whose sizes are equal, or expand {group.name} before the compiled call",
        ),
    }
    return words.get(
        group.kind or "",
        Wording(
            "dynamic size left its range",
            f"warm up one size on each side of the bound that {group.function} sets on "
            f"{group.name}, or remove the branch on the size",
            "one graph per range",
        ),
    )


def _with_sizes(finding: Finding, timeline: Timeline) -> Finding:
    """CD105 with the sizes that were called, how often, and buckets for them where one size changes
    and was compiled more than once."""
    sizes = None if finding.severity == "info" else _sizes_of(finding, timeline)
    return finding if sizes is None else _with_buckets(finding, sizes)


dynamic_size = RecompileRule("CD105", _size, _with_sizes)


def _sizes_of(finding: Finding, timeline: Timeline) -> VaryingSizes | None:
    """The changing size of the callable that was compiled again; None where it is not one size, or
    another variable's."""
    listed = finding.evidence["compile_ids"]
    ids = set(cast(list[str], listed)) if isinstance(listed, list) else set[str]()
    frames = {
        (item.process, item.frame.file, item.frame.line)
        for item in timeline.compiles
        if item.compile_id in ids
    }
    found = called_sizes(timeline, frames)
    if found is None:
        return None
    tensors = {place.rpartition(":")[0] for place in found.dims[0]}
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
    told: str
    """The buckets and their padding."""


def padded_to(sizes: VaryingSizes) -> Padded | None:
    """The fewest buckets that pad little; None where nothing has rows."""
    counts, evidence = _called(sizes)
    if not any(counts):
        return None
    found = fewest(counts, _MOST_BUCKETS, _MOST_WASTE)
    evidence |= {"buckets": list(found.buckets), "padding": found.waste}
    listed = ", ".join(map(str, found.buckets))
    return Padded(evidence, f"{listed} ({found.waste:.0%} padding)")


def _called(sizes: VaryingSizes) -> tuple[dict[int, int], dict[str, object]]:
    counts = {size[0]: count for size, count in zip(sizes.sizes, sizes.counts, strict=True)}
    seen = sorted(counts.items(), key=lambda item: -item[1])[:_MOST_SIZES]
    return counts, {
        "sizes": [size for size, _ in seen],
        "calls": [count for _, count in seen],
        "distinct_sizes": len(counts),
    }


def _with_buckets(finding: Finding, sizes: VaryingSizes) -> Finding:
    padded = padded_to(sizes) if finding.count > 1 else None
    if padded is None:
        return replace(finding, evidence={**finding.evidence, **_called(sizes)[1]})
    told = f"; or pad to {padded.told}: compilediag plan"
    summary = finding.fix.summary.partition("; or pad to")[0] + told
    fix = replace(finding.fix, summary=summary)
    return replace(finding, evidence={**finding.evidence, **padded.evidence}, fix=fix)


RULES: tuple[Rule, ...] = (
    dynamic_size,
    RecompileRule("CD118", _constraint),
)
