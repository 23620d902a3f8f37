"""Points of a certificate on what else a change did: counts, causes, graph breaks, findings, and
whether as much is compiled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from compilediag.compare.changes import changes_between
from compilediag.compare.keys import (
    BreakKey,
    CauseKey,
    break_key,
    cause_key,
    function_key,
    portable_file,
)
from compilediag.diagnosis.causes.recompile import COMBINATION
from compilediag.fixes.answers import functions_by_order
from compilediag.fixes.observed import Observed, proof_figure, worst
from compilediag.fixes.subject import Subject, count_in, finding_key
from compilediag.receipt.schema.compiles import FrameName, ProofPoint
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.changes import Declared
from compilediag.timeline.fixed_shapes import FixedShapeRun
from compilediag.timeline.frames import is_compile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.shapes.padding_report import HARMFUL, HARMLESS, judged
from compilediag_harness.wire import Location, PaddingChecked, resumed_function

_GENERATED = "<eval_with_key>"
"""How the files of captured graphs begin."""


COUNTS = {
    "recompiles": "all recompiles",
    "graph_breaks": "all graph breaks",
    "eager_fallbacks": "eager fallbacks",
    "recompile_limit_hits": "recompile limit hits",
}
"""Of the whole run: none may grow."""


Named = tuple[str | None, str | None, str]
"""A variable by file and function."""


_LATE_HOOK = "CD115"
"""The rule for recompiles because of hooks."""


_JUDGED = ("CD1", "CD2", "CD3")
"""Findings that are counted, not timed: a new one makes a change worse."""


def others_point(
    subject: Subject, baseline: Observed, runs: Sequence[Observed], declared: Declared
) -> ProofPoint:
    """Counts of the whole run first, then causes, breaks and findings that are new."""
    figures = [
        worst(shown, baseline, runs, lambda run, name=name: getattr(run.receipt.compile, name))
        for name, shown in COUNTS.items()
    ]
    recordings = worst("CUDA graph recordings", baseline, runs, _recordings)
    if recordings.before is not None or recordings.after is not None:
        figures.append(recordings)
    if declared.unlimits:
        every = worst("compiles", baseline, runs, lambda run: run.receipt.compile.compiles)
        figures.append(every)
    shown = tuple(figures)
    for figure in figures:
        if figure.name == "compiles":  # those of frames at the limit may be more
            continue
        if figure.name == COUNTS["recompiles"] and (declared.unlimits or declared.corrects):
            continue
        splits = max(len(_splits(run.receipt, declared.disables)) for run in runs)
        expected = splits if figure.name == COUNTS["graph_breaks"] else 0
        if (figure.after or 0) > (figure.before or 0) + expected:
            grown = f"{figure.name} {figure.before or 0:g} → {figure.after:g}"
            return ProofPoint("others", False, f"something else got worse: {grown}", shown)
    for run in runs:
        more = _without_end(subject, baseline, run) if declared.unlimits else None
        if worse := more or _new_in(subject, baseline, run, declared):
            return ProofPoint("others", False, f"something else got worse: {worse}", shown)
    return ProofPoint("others", True, "nothing else got worse", shown)


def _splits(receipt: Receipt, disables: Collection[str]) -> list[BreakKey]:
    """The breaks at calls of functions that a change leaves to Python by
    `torch.compiler.disable`."""
    at = {
        finding.id
        for finding in receipt.findings
        if disables
        and (broken := BreakEvidence.of(finding.evidence)).category == "skipped_or_disabled"
        and "torch.compiler.disable" in (broken.reason or "")
        and (broken.callee.get("name") or "").rpartition(".")[2] in disables
    }
    return [break_key(site) for site in receipt.compile.breaks if site.finding in at]


def _without_end(subject: Subject, baseline: Observed, run: Observed) -> str | None:
    """What speaks against another recompile limit: more compiles of what did not run eager at the
    limit, or variants of what did (or was near it) that are still new in the later half."""
    freed = _limited(baseline.receipt) - _limited(run.receipt)
    before, after = (
        sum(_place(event.frame) not in freed for event in each.receipt.compile.events)
        for each in (baseline, run)
    )
    if after > before:
        return f"compiles {before} → {after}, but for frames that ran eager at the limit"
    about = freed | {_place_of_key(subject.key)}
    steps = [event.step for event in run.receipt.compile.events if _place(event.frame) in about]
    last = max((step.number for step in run.timeline.steps), default=None)
    if last is None or None in steps:
        return "whether new variants stop appearing cannot be determined: the run has no steps"
    newest = max((step for step in steps if step is not None), default=0)
    if 2 * newest > last:
        return f"a variant was new in step {newest} of {last}: their number may have no end"
    return None


def _guarded_in(
    frames: set[tuple[str | None, str | None]], receipt: Receipt
) -> set[tuple[str | None, str | None]]:
    """Where the guards stand for which these frames recompiled."""
    return {
        (key.file, key.function)
        for event in receipt.compile.events
        if _place(event.frame) in frames
        for key in map(cause_key, event.causes)
    }


def _place(frame: FrameName) -> tuple[str | None, str | None]:
    return portable_file(frame.file), function_key(frame.function)


def _place_of_key(key: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Of a finding without a cause or break of its own (`finding_key`)."""
    return (key[2], key[3]) if len(key) > 3 else (None, None)


def _recordings(run: Observed) -> float | None:
    section = run.receipt.cudagraph
    return section.recordings if section is not None else None


def _new_in(subject: Subject, baseline: Observed, run: Observed, declared: Declared) -> str | None:
    """What is worse in a run with the change, beside the counts of the whole run. What a frame
    recompiles for that ran eager at the limit before is no worse: it is compiled at last."""
    changes = changes_between(baseline.known.lane, run.known.lane)
    unlimited = _limited(baseline.receipt) - _limited(run.receipt)
    splits = _splits(run.receipt, declared.disables)
    if declared.unlimits:
        # No other frame has more compiles: guards of what these frames call are theirs.
        unlimited |= _guarded_in(unlimited, run.receipt)
    fewer = _is_fewer(subject, baseline, run)
    joined = _are_joined(baseline, run)
    known = set[Named]().union(
        *(_named(key) for key, change in changes.causes.items() if fewer and change.count_before)
    )
    for key, change in changes.causes.items():
        hidden = (key.file, key.function) in unlimited or _is_known(_named(key), known)
        hidden |= joined or (declared.corrects and key.rule == _LATE_HOOK)
        if change.count_after > change.count_before and key not in subject.causes and not hidden:
            times = f"{change.count_before} → {change.count_after}"
            return f"recompiles for {key.variable} ({key.rule}) {times}"
    for key, change in changes.breaks.items():
        if change.kind == "new" and key not in splits:
            return f"a new graph break in {key.function}: {key.reason}"
    for key, change in changes.fallbacks.items():
        if change.kind == "new":
            return f"{key.function} runs eager"
    if declared.corrects:
        unlimited |= _of_late_hooks(run.receipt)
    return _new_finding(baseline.receipt, run.receipt, unlimited, known, joined=joined)


def _is_fewer(subject: Subject, baseline: Observed, run: Observed) -> bool:
    """There are fewer recompiles, by as many as the finding had. Those that had two causes may have
    another name now, and are no more than before."""
    gone = count_in(subject, baseline.receipt) - count_in(subject, run.receipt)
    return run.receipt.compile.recompiles <= baseline.receipt.compile.recompiles - gone


def _are_joined(baseline: Observed, run: Observed) -> bool:
    """Without a graph break, what stood behind it is part of the frame before it, and guards have
    other names there: of as many recompiles none is new."""
    before, after = baseline.receipt.compile, run.receipt.compile
    return after.graph_breaks < before.graph_breaks and after.recompiles <= before.recompiles


def _named(key: CauseKey) -> set[Named]:
    return _variables(key.file, key.function, key.variable)


def _variables(file: str | None, function: str | None, shown: str | None) -> set[Named]:
    """The variables of a cause by their place; of a combination (CD120) each, without what of it
    met. A cause without a name has none."""
    names = (part.partition(" (")[0] for part in (shown or "").split(", "))
    return {(file, function, name) for name in names if name}


def _is_known(variables: set[Named], known: set[Named]) -> bool:
    return bool(variables) and variables <= known


def _new_finding(
    before: Receipt,
    after: Receipt,
    unlimited: set[tuple[str | None, str | None]],
    variables: set[Named],
    *,
    joined: bool,
) -> str | None:
    known = {finding_key(finding) for finding in before.findings}
    causes = {cause.finding for event in after.compile.events for cause in event.causes}
    for finding in after.findings:
        key = finding_key(finding)
        file, function = key[2:] if len(key) > 2 else (None, None)
        met = _variables(file, function, finding.variable)
        again = finding.rule == COMBINATION and _is_known(met, variables)
        hidden = key[2:] in unlimited or again or (joined and finding.id in causes)
        judged = finding.severity != "info" and finding.rule.startswith(_JUDGED)
        if judged and not hidden and key not in known:
            return f"a new finding, {finding.rule}: {finding.title or finding.slug}"
    return None


def _of_late_hooks(receipt: Receipt) -> set[tuple[str | None, str | None]]:
    keys = [finding_key(item) for item in receipt.findings if item.rule == _LATE_HOOK]
    return {(key[2], key[3]) for key in keys if len(key) > 3}


def _limited(receipt: Receipt) -> set[tuple[str | None, str | None]]:
    """Frames that reached the recompile limit, as causes name their place."""
    return {
        (portable_file(item.location.file), function_key(item.location.function))
        for item in receipt.findings
        if item.rule == "CD152" and item.location is not None
    }


def compiled_point(baseline: Observed, runs: Sequence[Observed], declared: Declared) -> ProofPoint:
    """As much is compiled, and as often called: nothing recompiles in a program that
    compiles nothing. Where a hook is left to Python, at least half of the operations must be there:
    the change itself takes some, and how many is not known."""
    operations = 0.5 if declared.disables else 1.0
    measures: tuple[tuple[str, float, Callable[[Observed], float]], ...] = (
        ("graph operations", operations, lambda run: _operations(run.timeline)),
        ("compiled calls", 1.0, lambda run: _calls(run.timeline)),
        ("steps", 1.0, lambda run: len(run.timeline.steps)),
    )
    figures = [
        proof_figure(name, measure(baseline), min(map(measure, runs)))
        for name, _, measure in measures
    ]
    for figure, (_, share, _) in zip(figures, measures, strict=True):
        if (figure.after or 0) < share * (figure.before or 0):
            fewer = f"{figure.name} {figure.before:g} → {figure.after:g}"
            return ProofPoint(
                "compiled", False, f"less is compiled or called: {fewer}", tuple(figures)
            )
    if not figures[0].after:
        return ProofPoint("compiled", False, "nothing is compiled", tuple(figures))
    gone = _not_compiled(baseline, runs)
    if gone:
        return ProofPoint("compiled", False, f"{gone} is no longer compiled", tuple(figures))
    return ProofPoint("compiled", True, "as much is compiled and called", tuple(figures))


def _operations(timeline: Timeline) -> int:
    """In the first graph of each frame; of captured graphs, whose code has another name each time,
    in the first of all. Parts of a function that a graph break divides count on their own: without
    the break its one graph holds them all."""
    chosen: dict[tuple[object, ...], int] = {}
    for item in timeline.compiles:
        if is_compile(item) and item.graph_ops:
            file = _GENERATED if item.frame.file.startswith(_GENERATED) else item.frame.file
            place = (item.process, file, item.frame.line, item.frame.function)
            chosen.setdefault(place, item.graph_ops)
    return sum(chosen.values())


def _calls(timeline: Timeline) -> int:
    """Of compiled functions, but for those under a stance that compiles nothing. A batch that a
    `FixedShape` pads or splits is one; calls of its warm-up are none."""
    eager = sum(item.calls for item in timeline.stance_calls)
    called = sum(item.calls - item.padded for item in timeline.invocations)
    return called + sum(map(batches, timeline.fixed_shapes)) - eager


def _not_compiled(baseline: Observed, runs: Iterable[Observed]) -> str | None:
    """A function that the program calls compiled and that has no graph with the change."""
    for key, name in _with_graphs(baseline.timeline).items():
        if any(key not in _with_graphs(run.timeline) for run in runs):
            return name
    return None


def _with_graphs(timeline: Timeline) -> dict[tuple[str, str, int], str]:
    """The functions that the program calls compiled and that have a graph."""
    compiled = {
        (item.frame.file, item.frame.line)
        for item in timeline.compiles
        if is_compile(item) and item.graph_ops
    }
    # What follows a split is a part of the function too.
    parts = {
        (item.frame.file, resumed_function(item.frame.function))
        for item in timeline.compiles
        if is_compile(item) and item.graph_ops
    }
    called = [item.function for item in timeline.invocations]
    return {
        key: place.function
        for place, key in functions_by_order(called).items()
        if (place.file, place.line) in compiled
        or (place.file, place.function.rpartition(".")[2]) in parts
    }


def padding_points(
    functions: Sequence[Location], baseline: Timeline, runs: Sequence[Timeline]
) -> Iterator[ProofPoint]:
    """The point "padding" of a change that pads the arguments of functions, for each of them. It
    fails where a check in any run found harm, where one could not tell, and where nothing was
    padded or checked."""
    for function in functions:
        before = _shapes_of(function, baseline)
        yield _point(before, [_shapes_of(function, run) for run in runs])


def _shapes_of(function: Location, timeline: Timeline) -> list[FixedShapeRun]:
    """By file and name: it may stand at another line."""
    name, file = function.function.rpartition(".")[2], f"/{function.file.lstrip('/')}"
    return [
        shape
        for shape in timeline.fixed_shapes
        if shape.function.function.rpartition(".")[2] == name
        and f"/{shape.function.file}".endswith(file)
        and shape.elements
    ]


def _point(before: Sequence[FixedShapeRun], runs: Sequence[Sequence[FixedShapeRun]]) -> ProofPoint:
    waste = [_waste(shapes) for shapes in runs if shapes]
    figures = (proof_figure("padding", _waste(before), max(waste, default=None), "%"),)
    if not all(runs):
        return ProofPoint("padding", False, "nothing was padded", figures)
    shapes = [shape for of_run in runs for shape in of_run]
    problem = next((found for shape in shapes for found in _problems(shape)), None)
    if problem is not None:
        return ProofPoint("padding", False, problem, figures)
    contents = min(len(check.probes) for shape in shapes for check in shape.checks)
    sentence = f"padding is harmless: {contents} contents of it gave the same"
    return ProofPoint("padding", True, sentence, figures)


def batches(shape: FixedShapeRun) -> int:
    """Batches that a `FixedShape` was called with."""
    return sum(shape.asked.values()) + shape.other_batches


def _waste(shapes: Sequence[FixedShapeRun]) -> float:
    """Padding in percent of the real elements."""
    real = sum(shape.elements for shape in shapes)
    run = sum(shape.run_elements for shape in shapes)
    return round(100 * (run / real - 1), 1) if real else 0.0


def _problems(shape: FixedShapeRun) -> Iterator[str]:
    name = shape.function.function
    if not shape.checks:
        yield f"whether padding harms {name} was not checked"
    for check in shape.checks:
        verdict = judged(check.kinds, check.unseen, check.probes)
        if verdict == "unsafe":
            yield f"padding is unsafe for {name}: {_why(check, harmful=True)}"
        elif verdict != "safe":
            yield f"whether padding harms {name} is unknown: {_why(check, harmful=False)}"


def _why(check: PaddingChecked, *, harmful: bool) -> str:
    """The first result for which it is so."""
    for path, kind, note in zip(check.outputs, check.kinds, check.notes, strict=True):
        if (kind in HARMFUL) if harmful else (kind not in HARMLESS):
            return f"{path or 'the result'} ({kind}): {note}"
    if check.unseen:
        return f"{check.unseen[0]} cannot be looked into"
    return "no other padding could be tried"
