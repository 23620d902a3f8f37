"""Points of a certificate on what else a change did: counts of the whole run and their places, and
whether as much is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from compilediag.certify.cost import find_worst, make_figure
from compilediag.certify.totals import count_calls, count_totals, find_growth
from compilediag.certify.values import order_functions
from compilediag.fixes.proof_types import ObservedRun
from compilediag.receipt.schema.compiles import GraphBreak, ProofPoint
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import DeclaredEffects
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.frames import is_compile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.padding_report import HARMFUL, HARMLESS, judge_padding
from compilediag_harness.wire import Location, find_resumed_function

_GENERATED = "<eval_with_key>"  #: How the files of captured graphs begin.
_SHOWN = {"recompiles": "all recompiles", "graph breaks": "all graph breaks"}
"""Names of figures beside those of the finding itself."""

_LATE_HOOK = "CD115"  #: The rule for recompiles because of hooks.


def check_others(
    baseline: ObservedRun, runs: Sequence[ObservedRun], declared: DeclaredEffects
) -> ProofPoint:
    """Check that no count of the whole run grew, nor at a place, beside what a change declares."""
    figures = tuple(
        find_worst(
            _SHOWN.get(name, name),
            baseline,
            runs,
            lambda run, name=name: count_totals(run.receipt)[name],
        )
        for name in count_totals(baseline.receipt)
    )
    for run in runs:
        growth = find_growth(baseline.receipt, _leave_out_declared(run.receipt, declared))
        if growth is not None:
            return ProofPoint("others", False, f"something else got worse: {growth}", figures)
    return ProofPoint("others", True, "nothing else got worse", figures)


def _leave_out_declared(receipt: Receipt, declared: DeclaredEffects) -> Receipt:
    """Leave out what a change declares: the splits at functions that it leaves to Python, and the
    recompiles for a hook that was ignored before."""
    compiled = receipt.compile
    breaks = tuple(
        site for site in compiled.breaks if not _is_split(site, receipt, declared.disables)
    )
    events = tuple(
        event
        for event in compiled.events
        if not declared.corrects or {cause.rule for cause in event.causes} != {_LATE_HOOK}
    )
    left = replace(
        compiled,
        breaks=breaks,
        graph_breaks=compiled.graph_breaks - len(compiled.breaks) + len(breaks),
        events=events,
        recompiles=compiled.recompiles - len(compiled.events) + len(events),
    )
    return replace(receipt, compile=left)


def _is_split(site: GraphBreak, receipt: Receipt, disables: frozenset[str]) -> bool:
    """True for a break at a call of a function that a change leaves to Python."""
    found = next((finding for finding in receipt.findings if finding.id == site.finding), None)
    if found is None or not disables:
        return False
    broken = BreakEvidence.parse(found.evidence)
    callee = (broken.callee.get("name") or "").rpartition(".")[2]
    disabled = "torch.compiler.disable" in (broken.reason or "")
    return broken.category == "skipped_or_disabled" and disabled and callee in disables


def check_compiled(
    baseline: ObservedRun, runs: Sequence[ObservedRun], declared: DeclaredEffects
) -> ProofPoint:
    """Check that as much is compiled, and as often called: what compiles nothing recompiles
    nothing. Where a hook is left to Python, half of the operations must be there: how many it takes
    is not known."""
    measures: tuple[tuple[str, float, Callable[[Timeline], float]], ...] = (
        ("graph operations", 0.5 if declared.disables else 1.0, _count_operations),
        ("compiled calls", 1.0, count_calls),
        ("steps", 1.0, lambda timeline: len(timeline.steps)),
    )
    figures = tuple(
        make_figure(name, measure(baseline.timeline), min(measure(run.timeline) for run in runs))
        for name, _, measure in measures
    )
    for figure, (_, share, _) in zip(figures, measures, strict=True):
        if (figure.after or 0) < share * (figure.before or 0):
            fewer = f"{figure.name} {figure.before:g} → {figure.after:g}"
            return ProofPoint("compiled", False, f"less is compiled or called: {fewer}", figures)
    if not figures[0].after:
        return ProofPoint("compiled", False, "nothing is compiled", figures)
    with_change = [_list_compiled_functions(run.timeline) for run in runs]
    for key, name in _list_compiled_functions(baseline.timeline).items():
        if any(key not in compiled for compiled in with_change):
            return ProofPoint("compiled", False, f"{name} is no longer compiled", figures)
    return ProofPoint("compiled", True, "as much is compiled and called", figures)


def _count_operations(timeline: Timeline) -> int:
    """Count the operations in the first graph of each frame; of captured graphs, whose code has
    another name each time, in the first of all. Parts of a function that a graph break divides
    count on their own: without the break its one graph holds them all."""
    chosen: dict[tuple[object, ...], int] = {}
    for event in timeline.compiles:
        if is_compile(event) and event.graph_ops:
            file = _GENERATED if event.frame.file.startswith(_GENERATED) else event.frame.file
            place = (event.process, file, event.frame.line, event.frame.function)
            chosen.setdefault(place, event.graph_ops)
    return sum(chosen.values())


def _list_compiled_functions(timeline: Timeline) -> dict[tuple[str, str, int], str]:
    """List the functions that the program calls compiled and that have a graph."""
    frames = [event.frame for event in timeline.compiles if is_compile(event) and event.graph_ops]
    compiled = {(frame.file, frame.line) for frame in frames}
    # What follows a split is a part of the function too.
    parts = {(frame.file, find_resumed_function(frame.function)) for frame in frames}
    called = [invocation.function for invocation in timeline.invocations]
    return {
        key: place.function
        for place, key in order_functions(called).items()
        if (place.file, place.line) in compiled
        or (place.file, place.function.rpartition(".")[2]) in parts
    }


def check_padding(
    functions: Sequence[Location], baseline: Timeline, runs: Sequence[Timeline]
) -> Iterator[ProofPoint]:
    """Check padding, a point for each function whose arguments a change pads. It fails where a
    check in any run found harm or was undetermined, and where nothing was padded or checked."""
    for function in functions:
        by_run = [_find_shapes(function, run) for run in runs]
        waste = [_compute_waste(shapes) for shapes in by_run if shapes]
        before = _compute_waste(_find_shapes(function, baseline))
        figures = (make_figure("padding", before, max(waste, default=None), "%"),)
        shapes = [shape for of_run in by_run for shape in of_run]
        problem = next((text for shape in shapes for text in _find_problems(shape)), None)
        if not all(by_run):
            problem = "nothing was padded"
        if problem is not None:
            yield ProofPoint("padding", False, problem, figures)
            continue
        contents = min(len(check.probes) for shape in shapes for check in shape.checks)
        sentence = f"padding is harmless: {contents} contents of it gave the same"
        yield ProofPoint("padding", True, sentence, figures)


def _find_shapes(function: Location, timeline: Timeline) -> list[FixedShapeRun]:
    """Find the `FixedShape`s of a function by file and name: it may stand at another line."""
    name, file = function.function.rpartition(".")[2], f"/{function.file.lstrip('/')}"
    return [
        shape
        for shape in timeline.fixed_shapes
        if shape.function.function.rpartition(".")[2] == name
        and f"/{shape.function.file}".endswith(file)
        and shape.elements
    ]


def _compute_waste(shapes: Sequence[FixedShapeRun]) -> float:
    """Compute padding in percent of the real elements."""
    real = sum(shape.elements for shape in shapes)
    run = sum(shape.run_elements for shape in shapes)
    return round(100 * (run / real - 1), 1) if real else 0.0


def _find_problems(shape: FixedShapeRun) -> Iterator[str]:
    name = shape.function.function
    if not shape.checks:
        yield f"whether padding harms {name} was not checked"
    for check in shape.checks:
        verdict = judge_padding(check.kinds, check.unseen, check.probes)
        if verdict == "safe":
            continue
        unsafe = verdict == "unsafe"
        known = f"whether padding harms {name} is unknown"
        if unsafe:
            known = f"padding is unsafe for {name}"
        why = "no other padding could be tried"
        if check.unseen:
            why = f"{check.unseen[0]} cannot be looked into"
        for path, kind, note in zip(check.outputs, check.kinds, check.notes, strict=True):
            if (kind in HARMFUL) if unsafe else (kind not in HARMLESS):
                why = f"{path or 'the result'} ({kind}): {note}"
                break
        yield f"{known}: {why}"
