"""Points of a certificate on what else a change did: counts, causes, graph breaks, findings, and
whether as much is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence

from compilediag.certify.values import order_functions
from compilediag.compare.changes import find_changes
from compilediag.compare.keys import BreakKey, build_break_key, build_cause_key
from compilediag.diagnosis.codes import get_code_info
from compilediag.fixes.proof_types import (
    FindingIdentity,
    ObservedRun,
    PlaceKey,
    count_finding,
    find_worst,
    get_place,
    make_figure,
    make_finding_key,
)
from compilediag.receipt.finding_keys import normalize_file, normalize_function
from compilediag.receipt.schema.compiles import FrameName, ProofPoint
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import DeclaredEffects
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.frames import is_compile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.padding_report import HARMFUL, HARMLESS, judge_padding
from compilediag_harness.wire import Location, find_resumed_function

_GENERATED = "<eval_with_key>"  #: How the files of captured graphs begin.

COUNTS = {
    "recompiles": "all recompiles",
    "graph_breaks": "all graph breaks",
    "eager_fallbacks": "eager fallbacks",
    "recompile_limit_hits": "recompile limit hits",
}
"""Of the whole run: none may grow."""

NamedVariable = tuple[str | None, str | None, str]  #: A variable by file and function.
_LATE_HOOK = "CD115"  #: The rule for recompiles because of hooks.
_JUDGED = ("CD1", "CD2", "CD3")
"""Findings that are counted, not timed: a new one makes a change worse."""


def check_others(
    identity: FindingIdentity,
    baseline: ObservedRun,
    runs: Sequence[ObservedRun],
    declared: DeclaredEffects,
) -> ProofPoint:
    """Compare counts of the whole run first, then causes, breaks and findings that are new."""
    figures = [
        find_worst(shown, baseline, runs, lambda run, name=name: getattr(run.receipt.compile, name))
        for name, shown in COUNTS.items()
    ]
    recordings = find_worst(
        "CUDA graph recordings",
        baseline,
        runs,
        lambda run: run.receipt.cudagraph and run.receipt.cudagraph.recordings,
    )
    if recordings.before is not None or recordings.after is not None:
        figures.append(recordings)
    splits = max(len(_list_splits(run.receipt, declared.disables)) for run in runs)
    more: dict[str, float] = {COUNTS["graph_breaks"]: splits}
    if declared.unlimits or declared.corrects:
        more[COUNTS["recompiles"]] = math.inf
    if declared.unlimits:  # those of frames at the limit may be more
        figures.append(
            find_worst("compiles", baseline, runs, lambda run: run.receipt.compile.compiles)
        )
        more["compiles"] = math.inf
    shown = tuple(figures)
    for figure in figures:
        if (figure.after or 0) > (figure.before or 0) + more.get(figure.name, 0):
            grown = f"{figure.name} {figure.before or 0:g} → {figure.after:g}"
            return ProofPoint("others", False, f"something else got worse: {grown}", shown)
    for run in runs:
        endless = _find_endless(identity, baseline, run) if declared.unlimits else None
        if worse := endless or _find_new_problem(identity, baseline, run, declared):
            return ProofPoint("others", False, f"something else got worse: {worse}", shown)
    return ProofPoint("others", True, "nothing else got worse", shown)


def _list_splits(receipt: Receipt, disables: Collection[str]) -> list[BreakKey]:
    """List breaks at calls of functions a change leaves to Python by `torch.compiler.disable`."""
    at = {
        finding.id
        for finding in receipt.findings
        if disables
        and (broken := BreakEvidence.parse(finding.evidence)).category == "skipped_or_disabled"
        and "torch.compiler.disable" in (broken.reason or "")
        and (broken.callee.get("name") or "").rpartition(".")[2] in disables
    }
    return [build_break_key(site) for site in receipt.compile.breaks if site.finding in at]


def _find_endless(identity: FindingIdentity, baseline: ObservedRun, run: ObservedRun) -> str | None:
    """Find what speaks against another recompile limit: more compiles of what did not run eager at
    the limit, or variants of what did (or was near it) that are still new in the later half."""
    freed = _list_limited_frames(baseline.receipt) - _list_limited_frames(run.receipt)
    before, after = (
        sum(_get_place(event.frame) not in freed for event in observed.receipt.compile.events)
        for observed in (baseline, run)
    )
    if after > before:
        return f"compiles {before} → {after}, but for frames that ran eager at the limit"
    about = freed | {get_place(identity.key)}
    steps = [event.step for event in run.receipt.compile.events if _get_place(event.frame) in about]
    last = max((step.number for step in run.timeline.steps), default=None)
    if last is None or None in steps:
        return "whether new variants stop appearing cannot be determined: the run has no steps"
    newest = max((step for step in steps if step is not None), default=0)
    if 2 * newest > last:
        return f"a variant was new in step {newest} of {last}: their number may have no end"
    return None


def _get_place(frame: FrameName) -> PlaceKey:
    return normalize_file(frame.file), normalize_function(frame.function)


def _list_limited_frames(receipt: Receipt) -> set[PlaceKey]:
    """List the frames that reached the recompile limit, as causes name their place."""
    return {
        get_place(make_finding_key(finding))
        for finding in receipt.findings
        if finding.rule == "CD152" and finding.location is not None
    }


def _find_new_problem(
    identity: FindingIdentity, baseline: ObservedRun, run: ObservedRun, declared: DeclaredEffects
) -> str | None:
    """Find what is worse in a run with the change, beside the counts of the whole run. What a frame
    recompiles for that ran eager at the limit before is no worse: it is compiled at last."""
    before, after = baseline.receipt.compile, run.receipt.compile
    changes = find_changes(baseline.known.baseline, run.known.baseline)
    excused = _list_limited_frames(baseline.receipt) - _list_limited_frames(run.receipt)
    if declared.unlimits:
        # No other frame has more compiles: guards of what these frames call are theirs.
        freed = (event for event in after.events if _get_place(event.frame) in {*excused})
        keys = [build_cause_key(cause) for event in freed for cause in event.causes]
        excused |= {(key.file, key.function) for key in keys}
    # There are fewer recompiles, by as many as the finding had. Those that had two causes may have
    # another name now, and are no more than before.
    gone = count_finding(identity, baseline.receipt) - count_finding(identity, run.receipt)
    fewer = after.recompiles <= before.recompiles - gone
    known = set[NamedVariable]()
    for key, change in changes.causes.items():
        if fewer and change.count_before:
            known |= _list_variables(key.file, key.function, key.variable)
    # Without a graph break, what stood behind it is part of the frame before it, and guards have
    # other names there: of as many recompiles none is new.
    joined = after.graph_breaks < before.graph_breaks and after.recompiles <= before.recompiles
    for key, change in changes.causes.items():
        met = _list_variables(key.file, key.function, key.variable)
        hidden = joined or (key.file, key.function) in excused or (bool(met) and met <= known)
        hidden |= declared.corrects and key.rule == _LATE_HOOK
        if change.count_after > change.count_before and key not in identity.causes and not hidden:
            times = f"{change.count_before} → {change.count_after}"
            return f"recompiles for {key.variable} ({key.rule}) {times}"
    splits = _list_splits(run.receipt, declared.disables)
    for key, change in changes.breaks.items():
        if change.kind == "new" and key not in splits:
            return f"a new graph break in {key.function}: {key.reason}"
    for key, change in changes.fallbacks.items():
        if change.kind == "new":
            return f"{key.function} runs eager"
    if declared.corrects:
        keys = [make_finding_key(row) for row in run.receipt.findings if row.rule == _LATE_HOOK]
        excused |= {get_place(key) for key in keys}
    return _find_new_finding(baseline.receipt, run.receipt, excused, known, joined=joined)


def _list_variables(file: str | None, function: str | None, text: str | None) -> set[NamedVariable]:
    """List the variables of a cause by their place; of a combination (CD120) each, without what of
    it met. A cause without a name has none."""
    names = (part.partition(" (")[0] for part in (text or "").split(", "))
    return {(file, function, name) for name in names if name}


def _find_new_finding(
    before: Receipt,
    after: Receipt,
    excused: set[PlaceKey],
    known: set[NamedVariable],
    *,
    joined: bool,
) -> str | None:
    had = {make_finding_key(finding) for finding in before.findings}
    causes = {cause.finding for event in after.compile.events for cause in event.causes}
    for finding in after.findings:
        key = make_finding_key(finding)
        met = _list_variables(*get_place(key), finding.variable)
        again = get_code_info(finding.rule).owner == "several" and bool(met) and met <= known
        hidden = key[2:] in excused or again or (joined and finding.id in causes)
        judged = finding.severity != "info" and finding.rule.startswith(_JUDGED)
        if judged and not hidden and key not in had:
            return f"a new finding, {finding.rule}: {finding.title or finding.slug}"
    return None


def check_compiled(
    baseline: ObservedRun, runs: Sequence[ObservedRun], declared: DeclaredEffects
) -> ProofPoint:
    """Check that as much is compiled, and as often called: what compiles nothing recompiles
    nothing. Where a hook is left to Python, half of the operations must be there: how many it takes
    is not known."""
    measures: tuple[tuple[str, float, Callable[[Timeline], float]], ...] = (
        ("graph operations", 0.5 if declared.disables else 1.0, _count_operations),
        ("compiled calls", 1.0, _count_calls),
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


def _count_calls(timeline: Timeline) -> int:
    """Count the calls of compiled functions, but for those under a stance that compiles nothing. A
    batch that a `FixedShape` pads or splits is one; calls of its warm-up are none."""
    eager = sum(stance.calls for stance in timeline.stance_calls)
    called = sum(invocation.calls - invocation.padded for invocation in timeline.invocations)
    fixed = timeline.fixed_shapes
    batches = sum(sum(shape.requested.values()) + shape.other_batches for shape in fixed)
    return called + batches - eager


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
