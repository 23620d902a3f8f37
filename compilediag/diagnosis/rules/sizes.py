"""Sizes that a function was called with, and buckets for them (CD105, CD403)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.diagnosis.absorption import compile_ids
from compilediag.diagnosis.causes.changed_sizes import changed_dimensions, constant_dimensions
from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.rules.fix_choice import Break, is_held_by_package
from compilediag.diagnosis.rules.marks import marking, since_first_call
from compilediag.diagnosis.rules.recompiles import CARRIED, TEMPORARY, Wording
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.invocations import VaryingSizesRecord
from compilediag.timeline.invocations import varying_sizes
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.buckets import fewest

MAX_BUCKETS = 8
"""torch's default recompile limit."""

MAX_WASTE = 0.25
"""Padding that the proposed buckets may cost, as a share of the rows, if so few can keep to it."""

_MAX_SIZES = 16
"""Sizes kept in the evidence: those seen most."""


PAD = "pad to a fixed size (drop_last=True for a last batch)"
_SIZE = "tensor argument of another size"
_MARKED = "dynamic graphs may run slower; CUDA graphs need the padding"
_ALL_DYNAMIC = (
    "all sizes and ints become dynamic: graphs may run slower, and 0 and 1 stay constants"
)
_COMPILED_ONCE = "every size it pads to is compiled there"
SIZES = {
    "marking": Wording(
        "dimension marked after the first call", "mark {{name}} before the first call"
    ),
    "resumed": Wording(
        _SIZE,
        "remove the graph break at {broken}; or pad what {carried} is computed from",
        CARRIED,
    ),
    "constant": Wording(
        _SIZE,
        f"{PAD}; or keep {{dimensions}} of {{{{name}}}} dynamic: no loop over it, no number "
        "computed from it, no dynamic=False",
        "a mark does not help: torch compiled a second size of it too",
    ),
    "padded": Wording(
        _SIZE, "call warmup(example) of its FixedShape once, before the first batch", _COMPILED_ONCE
    ),
    "small": Wording(
        _SIZE,
        f"{{marking}}, which needs sizes of 2 or more (torch keeps 0 and 1); or {PAD}",
        _MARKED,
    ),
    "held": Wording(
        _SIZE,
        "set torch._dynamo.config.assume_static_by_default = False before the first call, as a "
        "package passes {{name}}",
        _ALL_DYNAMIC,
    ),
    "container": Wording(
        _SIZE, "compile with torch.compile(dynamic=True); or " + PAD, _ALL_DYNAMIC
    ),
    None: Wording(_SIZE, f"{{marking}}; or {PAD}", _MARKED),
}
"""The wordings of sizes that changed."""


def wording_of_sizes(group: Group, broken: Break | None) -> Wording:
    """What to do about sizes that changed, from what the recompiles show; `broken` is the graph
    break that the tensor is carried over.

    A mark makes a dimension dynamic from the first call on, unless the graph makes the size a
    constant (a loop over it, a number computed from it): torch has then compiled a second size
    although it took the dimension for dynamic, and no mark helps. 0 and 1 are always constants.
    """
    changed = [
        item for cause in group.causes for item in changed_dimensions(cause.expected, cause.actual)
    ]
    fixed = constant_dimensions(group.causes, group.recompiles)
    # As `changed`, but a guard's text also names the dimension where its sizes are not shown.
    dimensions = sorted({item.dimension for item in changed}) or [_named_dimension(group)]
    if group.kind == "marking":
        wording = SIZES["marking"]
    elif broken is not None:
        wording = SIZES["resumed"]
    elif fixed:
        wording = SIZES["constant"]
    elif any(part.code == "CD107" for part in group.follows):
        # A container keeps the size as a number too, which takes no mark.
        wording = SIZES["container"]
    elif is_held_by_package(group):
        wording = SIZES["held"]
    else:
        wording = SIZES[
            "small" if any({item.before, item.after} & {"0", "1"} for item in changed) else None
        ]
    fix = wording.fix.format(
        broken=broken.place if broken else "",
        carried="it" if group.variable.startswith(TEMPORARY) else "{name}",
        dimensions=_dimensions(fixed),
        marking=marking(group, dimensions),
    )
    title = wording.title.replace("argument", "arguments") if group.together else wording.title
    return wording._replace(title=title, fix=fix)


def _dimensions(dimensions: Sequence[int]) -> str:
    named = " and ".join(map(str, sorted(dimensions)))
    return f"dimension{'s' if len(dimensions) > 1 else ''} {named}"


def _named_dimension(group: Group) -> str | int:
    named = re.search(r"at index (\d+)", group.first.guard)
    return named[1] if named is not None else "dim"


def with_sizes(finding: Finding, timeline: Timeline) -> Finding:
    """CD105 with the sizes that were called, how often, and buckets for them where one size changes
    and was compiled more than once, and with the line of the first call where it is another one."""
    finding = _from_first_call(finding, timeline)
    if finding.severity != "info" and _is_padded(finding, timeline):
        summary, caveat = SIZES["padded"].fix, SIZES["padded"].caveat
        return replace(finding, fix=replace(finding.fix, summary=summary, caveat=caveat))
    sizes = None if finding.severity == "info" else _sizes_of(finding, timeline)
    if sizes is None:
        return finding
    padded = padded_to(sizes) if finding.count > 1 else None
    if padded is None:
        return replace(finding, evidence={**finding.evidence, **_called(sizes)[1]})
    evidence = {**finding.evidence, **padded.evidence}
    # Buckets of exactly the sizes that were called spare no compile.
    finding = replace(finding, evidence=evidence)
    if set(GuardEvidence.of(finding.evidence).buckets) == set(_called(sizes)[0]):
        return finding
    summary = finding.fix.summary.replace(PAD, f"pad to {padded.buckets}: compilediag plan")
    return replace(finding, fix=replace(finding.fix, summary=summary))


def _from_first_call(finding: Finding, timeline: Timeline) -> Finding:
    """A mark holds from the first compile on: its line is named too where another one made it."""
    frames = _frames_of(finding, timeline)
    calls = [
        item.entered_at
        for item in timeline.compiles
        if (item.process, item.frame.file, item.frame.line) in frames
    ]
    summary = since_first_call(finding.fix.summary, calls[0] if calls else None)
    return replace(finding, fix=replace(finding.fix, summary=summary))


def _frames_of(finding: Finding, timeline: Timeline) -> set[tuple[int, str, int]]:
    """The code that was compiled again, as (process, file, line)."""
    ids = set(compile_ids(finding))
    return {
        (item.process, item.frame.file, item.frame.line)
        for item in timeline.compiles
        if item.compile_id in ids
    }


def _is_padded(finding: Finding, timeline: Timeline) -> bool:
    """A `FixedShape` wraps what was compiled again: its sizes are few and known."""
    padded = {
        (item.process, item.function.file, item.function.line) for item in timeline.fixed_shapes
    }
    frames = _frames_of(finding, timeline)
    return bool(frames) and frames <= padded


def _sizes_of(finding: Finding, timeline: Timeline) -> VaryingSizesRecord | None:
    """The changing size of the callable that was compiled again; None where it is not one size, or
    that of another variable or dimension."""
    found = called_sizes(timeline, _frames_of(finding, timeline))
    if found is None:
        return None
    guard = GuardEvidence.of(finding.evidence)
    changed = changed_dimensions(guard.expected, guard.actual)
    places = {f"{finding.variable}:{item.dimension}" for item in changed}
    tensors = {dimension.rpartition(":")[0] for dimension in found.dims[0]}
    return found if finding.variable in tensors and places <= set(found.dims[0]) else None


def called_sizes(
    timeline: Timeline, frames: Collection[tuple[int, str, int]]
) -> VaryingSizesRecord | None:
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


def padded_to(sizes: VaryingSizesRecord) -> Padded | None:
    """The fewest buckets that pad little; None where nothing has rows."""
    counts, evidence = _called(sizes)
    if not any(counts):
        return None
    found = fewest(counts, MAX_BUCKETS, MAX_WASTE)
    evidence |= {"buckets": list(found.buckets), "padding": found.waste}
    return Padded(evidence, f"{', '.join(map(str, found.buckets))} ({found.waste:.0%} padding)")


def _called(sizes: VaryingSizesRecord) -> tuple[dict[int, int], dict[str, object]]:
    counts = {size[0]: count for size, count in zip(sizes.sizes, sizes.counts, strict=True)}
    most_called = sorted(counts.items(), key=lambda item: -item[1])[:_MAX_SIZES]
    return counts, {
        "sizes": [size for size, _ in most_called],
        "calls": [count for _, count in most_called],
        "distinct_sizes": len(counts),
    }
