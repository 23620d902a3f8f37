"""Sizes that changed, and conditions between them that no longer hold (CD105, CD118); sizes that a
function was called with, and buckets for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.diagnosis.causes.changed_sizes import (
    Changed,
    changed_dimensions,
    constant_dimensions,
)
from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.findings import Cause, Finding
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.invocations import VaryingSizesRecord
from compilediag.rules.absorption import compile_ids
from compilediag.rules.facts import break_before, is_held_by_package
from compilediag.rules.make_finding import Advice
from compilediag.rules.recompiles import CARRIED, TEMPORARY, RecompileRule, Told
from compilediag.rules.sizes.lines import with_side_line, with_size_line
from compilediag.rules.sizes.marks import marking, since_first_call
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
_MARKED = "dynamic graphs may run slower; CUDA graphs need the padding"
_ALL_DYNAMIC = (
    "all sizes and ints become dynamic: graphs may run slower, and 0 and 1 stay constants"
)
PLANNED = Advice("nothing: each size is compiled once, before it is used")
MARKED_LATE = Advice("mark {name} before the first call")
CARRIED_SIZE = Advice(
    "remove the graph break at {broken}; or pad what {carried} is computed from", CARRIED
)
NEEDED = Advice(
    f"{PAD}; or keep {{dimensions}} of {{name}} dynamic: no loop over it, no number computed from "
    "it, no dynamic=False"
)
PADDED = Advice(
    "call warmup(example) of its FixedShape once, before the first batch",
    "every size it pads to is compiled there",
)
SMALL = Advice(
    f"{{marking}}, which needs sizes of 2 or more (torch keeps 0 and 1); or {PAD}", _MARKED
)
OF_PACKAGE = Advice(
    "set torch._dynamo.config.assume_static_by_default = False before the first call, as a package "
    "passes {name}",
    _ALL_DYNAMIC,
)
IN_CONTAINER = Advice(f"compile with torch.compile(dynamic=True); or {PAD}", _ALL_DYNAMIC)
MARKED = Advice(f"{{marking}}; or {PAD}", _MARKED)
NOT_MARKED = (
    "a mark does not reach what {function} computes and passes on to the frame after it: pad, or "
    "remove the graph break between them"
)

AT_LEAST_TWO = Advice(
    "pad {name} to at least 2; or call torch._dynamo.decorators.mark_unbacked({x}, dim) before the "
    "first call",
    "mark_unbacked may raise where the code branches on the size",
)
EACH_SIDE = Advice(
    "warm up one case for each side of `{guard}` before the timed steps; or decide before the "
    "compiled call",
    "one graph for each side",
)
_CONDITIONS = {
    "zero_one": "size 0 or 1 reached a dynamic graph",
    "divisibility": "dynamic size is no longer a multiple",
    "duck_equal": "sizes that were equal by accident differ",
    "constant": "size that the graph needs, or excludes",
    "unequal": "sizes that were unequal are equal",
    "equal": "sizes that the graph needs equal differ",
}


_SIZE = "CD105"


def _size(group: Group) -> Told:
    """What to do about sizes that changed, from what the recompiles show.

    A mark makes a dimension dynamic from the first call on, unless the graph makes the size a
    constant (a loop over it, a number computed from it): torch has then compiled a second size
    although it took the dimension for dynamic. 0 and 1 are always constants.
    """
    title = f"tensor argument{'s' if group.together else ''} of another size"
    if group.planned:
        return "tensor argument of another size, in the warm-up of its fixed sizes", PLANNED
    if group.kind == "marking":
        return "dimension marked after the first call", MARKED_LATE
    changed = [each for cause in group.causes for each in _changed(cause)]
    fixed = constant_dimensions(group.causes, group.recompiles)
    broken = break_before(group)
    if broken is not None:
        carried = "it" if group.variable.startswith(TEMPORARY) else "{name}"
        advice = CARRIED_SIZE.filled(broken=broken.place, carried=carried)
    elif fixed:
        advice = NEEDED.filled(dimensions=_dimensions(fixed))
    elif any(part.code == "CD107" for part in group.follows):
        # A container keeps the size as a number too, which takes no mark.
        advice = IN_CONTAINER
    elif is_held_by_package(group):
        advice = OF_PACKAGE
    else:
        small = any({item.before, item.after} & {"0", "1"} for item in changed)
        advice = (SMALL if small else MARKED).filled(marking=_marking(group))
    return title, _beyond(group, advice)


def _beyond(group: Group, advice: Advice) -> Advice:
    """With a caveat where the size goes on into another frame."""
    beyond = any(part.code == _SIZE for part in group.follows)
    return advice._replace(caveat=NOT_MARKED) if beyond else advice


def _condition(group: Group) -> Told:
    """A condition between sizes, strides or numbers that no longer holds."""
    guard = group.first.guard
    if "size()" not in guard:
        layout = "stride()" in guard
        title = "layout that the graph needs, or excludes"
        return title if layout else "number left the range of its graph", EACH_SIDE
    title = _CONDITIONS.get(group.kind or "", "dynamic size left its range")
    return title, _beyond(group, AT_LEAST_TWO if group.kind == "zero_one" else EACH_SIDE)


def _changed(cause: Cause) -> tuple[Changed, ...]:
    return changed_dimensions(cause.expected, cause.actual)


def _marking(group: Group) -> str:
    """The marks of each variable: those that change together may do so in other dimensions."""
    dimensions: dict[str, set[int]] = {}
    for part in (group, *group.together):
        found = {item.dimension for cause in part.causes for item in _changed(cause)}
        dimensions.setdefault(part.variable, set()).update(found)
    # A guard's text also names the dimension where its sizes are not shown.
    named = [_named_dimension(group)]
    return marking(group, {name: sorted(found) or named for name, found in dimensions.items()})


def _dimensions(dimensions: Sequence[int]) -> str:
    named = " and ".join(map(str, sorted(dimensions)))
    return f"dimension{'s' if len(dimensions) > 1 else ''} {named}"


def _named_dimension(group: Group) -> str | int:
    named = re.search(r"at index (\d+)", group.first.guard)
    return named[1] if named is not None else "dim"


def _with_sizes(finding: Finding, group: Group, timeline: Timeline) -> Finding:
    """The finding at the line that needs the size, if that is known; and with what was called."""
    return with_size_line(_with_calls(finding, timeline), group, timeline)


def _with_calls(finding: Finding, timeline: Timeline) -> Finding:
    """CD105 with the sizes that were called, how often, and buckets for them where one size changes
    and was compiled more than once, and with the line of the first call where it is another one."""
    finding = _from_first_call(finding, timeline)
    if finding.severity != "info" and _is_padded(finding, timeline):
        summary, caveat = PADDED
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


RULES = (
    RecompileRule(_SIZE, _size, _with_sizes, tells_of_breaks=True),
    RecompileRule("CD118", _condition, with_side_line),
)
