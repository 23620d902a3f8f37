"""Sizes that changed, and conditions between them that no longer hold (CD105, CD118); sizes that a
function was called with, and buckets for them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.diagnosis.causes.cause_group import Group, find_changed_sizes
from compilediag.diagnosis.codes import TEMPORARY
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.invocations import VaryingSizesRecord
from compilediag.rules.changes import is_listable
from compilediag.rules.facts import INT_USES, Facts, find_break_before, list_uses
from compilediag.rules.make_finding import Advice, replace_advice
from compilediag.rules.recompiles import CARRIED, RecompileRule, TitleAndAdvice
from compilediag.rules.rule import list_compile_ids
from compilediag.rules.sizes.lines import add_branch_line, add_size_line, needs_backend
from compilediag.timeline.invocations import find_varying_sizes
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.buckets import find_fewest_buckets

MAX_BUCKETS = 8
"""torch's default recompile limit."""

MAX_WASTE = 0.25
"""Padding that the proposed buckets may cost, as a share of the rows, if so few can keep to it."""

_MAX_SIZES = 16
"""Sizes stored in the evidence: those seen most."""


PAD = "pad to a fixed size (drop_last=True for a last batch)"
_COUNTED = "what is padded counts in means, sums and norms unless it is masked"
_MARKED = "dynamic graphs may run slower; CUDA graphs need padding instead"
PLANNED = Advice("nothing: each size is compiled once, before it is used")
MARKED_LATE = Advice("mark {name} alike at every call, from the first on")
CARRIED_SIZE = Advice(
    "torch guards on the size of {carried} behind the graph break at {broken}: remove the break, "
    "or pad what {carried} is computed from",
    CARRIED,
)
NEEDED = Advice(
    f"torch makes a graph for each size of dimension {{dimensions}} of {{name}}, which {{by}} "
    f"makes a constant: {PAD}, or leave it where the sizes are few",
    _COUNTED,
)
PADDED = Advice(
    "call warmup(example) of its FixedShape once, before the first batch",
    "every size it pads to is compiled there",
    "fixed_shape_warmup",
)
EACH_SIZE = Advice(
    f"torch guards on the size of {{name}}: {PAD}, or mark it dynamic where the program makes it, "
    "from the first call on",
    f"{_COUNTED}; {_MARKED}",
)
ALSO_MARKED = Advice(
    f"torch makes {{graphs}} {{name}}, also where it is marked dynamic: {PAD}, or leave it",
    _COUNTED,
)
SIDES = ALSO_MARKED.fill(graphs="a graph for each side of the code's conditions on the size of")
SMALL = ALSO_MARKED.fill(graphs="graphs of their own for sizes 0 and 1 of")
DYNAMIC = Advice(
    "compile with torch.compile(..., dynamic=True)",
    "each size and number that compiled code is called with is dynamic then: kernels may be "
    "slower, and each CUDA graph is of one size",
    "dynamic_true",
)
MARKED = Advice("call {marking} before {places}, from the first call on", _MARKED, "mark_dynamic")
NOT_MARKED = (
    "a mark does not reach what {function} computes and passes on to the frame after it: pad, or "
    "remove the graph break between them"
)

EACH_SIDE = Advice(
    "torch makes a graph for each side of `{guard}`: leave it where both are wanted; else keep to "
    "one side of it"
)
_CONDITIONS = {
    "zero_one": "size 0 or 1 reached a dynamic graph",
    "divisibility": "dynamic size is no longer a multiple",
    "duck_equal": "sizes that were equal by accident differ",
    "constant": "graph for one size, or for all but one",
    "unequal": "sizes or strides that were unequal are equal",
    "equal": "sizes or strides that are equal in the graph differ",
}


def _describe_size(known: Facts) -> TitleAndAdvice:
    """Describe what to do about sizes that changed: a mark makes a dimension dynamic from the first
    call on, unless the graph makes the size a constant. Under `dynamic=False` a second compile does
    not show that."""
    group = known.group
    several, small = "s" * bool(group.together), group.sizes_changed[1]
    title = f"tensor argument{several} of {'size 0 or 1' if small else 'another size'}"
    if group.planned:
        return "tensor argument of another size, in the warm-up of its fixed sizes", PLANNED
    if group.kind == "marking":
        return "dimensions are not marked alike in all calls", MARKED_LATE
    fixed = [] if known.is_static else group.constant_dimensions
    broken = find_break_before(group)
    if fixed:
        by = "the backend" if needs_backend(group, known.timeline) else "the code"
        advice = NEEDED.fill(dimensions=" and ".join(map(str, fixed)), by=by)
    elif small:
        advice = SMALL
    elif known.is_split:
        advice = SIDES
    else:
        # A container keeps the size as a number too, which takes no mark; or a setting makes each
        # size a constant, and the code may need it as one.
        kept, uses = any(part.changed == "scalar" for part in group.follows), list_uses(group)
        needed = known.is_static and (uses is None or not {use.kind for use in uses} <= INT_USES)
        unmarked = kept or needed or known.begins_within
        marking = None if unmarked or broken else _format_marking(known)
        listed = all(is_listable(part.first.source) for part in group.parts)
        held = unmarked or listed or known.is_static or known.has_read_numbers
        dynamic = not held and known.has_own_symbols
        advice = DYNAMIC if dynamic else EACH_SIZE
        advice = advice if marking is None else MARKED.fill(marking=marking)
    if broken is not None and advice.recipe is None:
        carried = "it" if group.variable.startswith(TEMPORARY) else "{name}"
        advice = CARRIED_SIZE.fill(broken=broken[1], carried=carried)
    return title, _add_frame_caveat(group, advice)


def _add_frame_caveat(group: Group, advice: Advice) -> Advice:
    """Add a caveat where the size goes on into another frame, which only a mark does not reach."""
    beyond = any(part.changed == "size" for part in group.follows)
    reaches = not beyond or advice.recipe == DYNAMIC.recipe
    return advice if reaches else advice._replace(caveat=NOT_MARKED)


def _describe_condition(known: Facts) -> TitleAndAdvice:
    """Describe a condition between sizes, strides or numbers that no longer holds."""
    group = known.group
    guard = group.first.guard
    if "size()" not in guard:
        layout = "stride()" in guard
        title = "graph for one layout, or for all but one"
        return title if layout else "number left the range of its graph", EACH_SIDE
    title = _CONDITIONS.get(group.kind or "", "dynamic size left its range")
    return title, _add_frame_caveat(group, SMALL if group.kind == "zero_one" else EACH_SIDE)


# --- marks, in words that can be followed literally ---------------------------------------------

_MAX_MARKS = 4
"""Calls printed in a fix."""

SAME_TENSOR = re.compile(
    r"""[^\W\d]\w*(?:\.(?!(?:T|H|mT|mH|data|real|imag)\b)\w+|\[(?:'[^']*'|"[^"]*")\])*"""
)
"""An expression that is the same tensor each time: an item by a number or by a variable may be a
view or a copy, one by a text is that of a dict."""


def _format_marking(known: Facts) -> str | None:
    """Format the calls that mark what each call of the program's own passes, each variable in the
    dimensions that it changes in. None where these have no names there: a mark is an attribute of
    one tensor object."""
    marks: list[str] = []
    for part in (known.group, *known.group.together):
        passed = known.find_passed(part.variable)
        if passed is None or not SAME_TENSOR.fullmatch(passed):
            return None
        # A guard's text also names the dimension where its sizes are not shown.
        shown = re.findall(r"at index (\d+)", part.first.guard)
        dimensions = part.sizes_changed[0] or shown
        marks += (f"torch._dynamo.maybe_mark_dynamic({passed}, {dim})" for dim in dimensions)
    unique = [*dict.fromkeys(marks)]
    return ", ".join(unique) if 0 < len(unique) <= _MAX_MARKS else None


# --- what was called ----------------------------------------------------------------------------


def _add_called_sizes(finding: Finding, _: Group, timeline: Timeline) -> Finding:
    """Add to CD105 the sizes that were called, how often, and buckets for them where one size
    changes and was compiled more than once."""
    ids = set(list_compile_ids(finding))
    compiles = [((row.process, row.frame.file, row.frame.line), row) for row in timeline.compiles]
    frames = {frame for frame, row in compiles if row.compile_id in ids}
    if finding.severity == "info":
        return finding
    padding = {(row.process, row.function.file, row.function.line) for row in timeline.fixed_shapes}
    if frames and frames <= padding:  # a `FixedShape` wraps it: its sizes are few and known
        return replace_advice(finding, PADDED)
    sizes = find_called_sizes(timeline, frames)
    guard = GuardEvidence.parse(finding.evidence)
    changed = find_changed_sizes([(guard.expected, guard.actual)])[0]
    places = {f"{finding.variable}:{dimension}" for dimension in changed}
    if sizes is None or not places <= {*sizes.dims[0]}:
        return finding
    if finding.variable not in {dimension.rpartition(":")[0] for dimension in sizes.dims[0]}:
        return finding  # of another variable
    padded = choose_buckets(sizes) if finding.count > 1 else None
    evidence = _build_call_evidence(sizes) if padded is None else padded.evidence
    finding = replace(finding, evidence={**finding.evidence, **evidence})
    if padded is None or {*padded.buckets} == {size for size, *_ in sizes.sizes}:
        return finding  # buckets of exactly the sizes that were called spare no compile
    summary = finding.fix.summary.replace(PAD, f"pad to {padded.named}: compilediag plan")
    return replace(finding, fix=replace(finding.fix, summary=summary))


def find_called_sizes(
    timeline: Timeline, frames: Collection[tuple[int, str, int]]
) -> VaryingSizesRecord | None:
    """Find the changing size of the first callable (process, file, line) with one such size."""
    for invocation in timeline.invocations:
        if (invocation.process, invocation.function.file, invocation.function.line) in frames:
            shapes = ((shape.shapes, shape.count) for shape in invocation.shapes)
            sizes = find_varying_sizes(shapes, invocation.tensors)
            if sizes is not None and len(sizes.dims) == 1:
                return sizes
    return None


class PaddedSizes(NamedTuple):
    """The sizes that were called, and buckets for them."""

    evidence: dict[str, object]
    buckets: tuple[int, ...]
    named: str
    """The buckets and their padding, for a sentence."""


def choose_buckets(sizes: VaryingSizesRecord) -> PaddedSizes | None:
    """Choose the fewest buckets that pad little; None where nothing has rows."""
    counts = _count_calls(sizes)
    if not any(counts):
        return None
    plan = find_fewest_buckets(counts, MAX_BUCKETS, MAX_WASTE)
    evidence = {**_build_call_evidence(sizes), "buckets": list(plan.buckets), "padding": plan.waste}
    named = f"{', '.join(map(str, plan.buckets))} ({plan.waste:.0%} padding)"
    return PaddedSizes(evidence, plan.buckets, named)


def _count_calls(sizes: VaryingSizesRecord) -> dict[int, int]:
    return {size[0]: count for size, count in zip(sizes.sizes, sizes.counts, strict=True)}


def _build_call_evidence(sizes: VaryingSizesRecord) -> dict[str, object]:
    counts = _count_calls(sizes)
    most_called = sorted(counts.items(), key=lambda pair: -pair[1])[:_MAX_SIZES]
    return {
        "sizes": [size for size, _ in most_called],
        "calls": [count for _, count in most_called],
        "distinct_sizes": len(counts),
    }


RULES = (
    RecompileRule(
        "CD105", _describe_size, (_add_called_sizes, add_size_line), describes_breaks=True
    ),
    RecompileRule("CD118", _describe_condition, (add_branch_line,)),
)
