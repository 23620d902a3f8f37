"""The certificate of a change: six points, each before → after, from runs without and with it.

A change is proved only where the first four points hold in every run with it: the finding is gone,
nothing else is worse, as much is compiled and called, and the program computes the same. Time and
memory are stated, not judged: another machine has others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import cast

from compilediag.compare.changes import changes_between
from compilediag.compare.gate.ab import MIN_ROUNDS
from compilediag.compare.keys import (
    BreakKey,
    CauseKey,
    break_key,
    cause_key,
    function_key,
    portable_file,
)
from compilediag.compare.run_baseline import RunBaseline, run_baseline
from compilediag.diagnosis.causes.recompile import COMBINATION
from compilediag.fixes.answers import (
    Comparison,
    Exact,
    Key,
    compare,
    exact_answers,
    functions_by_order,
    randomness,
)
from compilediag.fixes.changes import NOTHING_DECLARED, Declared
from compilediag.fixes.padding import batches, padding_points
from compilediag.fixes.points import Figure, Point
from compilediag.fixes.printed import same_result
from compilediag.fixes.subject import Subject, count_in, finding_key
from compilediag.receipt.schema.compiles import FindingRecord, FrameName
from compilediag.receipt.schema.receipt import Receipt
from compilediag.timeline.counts import is_compile
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import resumed_function

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


@dataclass(frozen=True)
class Observed:
    """One run of the program, and what is known of it."""

    receipt: Receipt
    timeline: Timeline
    problem: str | None = None
    """Why it is no evidence: it failed, or hung."""
    printed: tuple[str, ...] = ()
    """Results that it printed, in their order."""

    @cached_property
    def known(self) -> RunBaseline:
        """Its causes, breaks and frames by key."""
        return run_baseline(self.receipt)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was seen of a change."""

    points: tuple[Point, ...]
    runs: int
    """With the change."""

    @property
    def holds(self) -> bool:
        """No point has failed."""
        return all(point.passed is not False for point in self.points)

    @property
    def reason(self) -> str:
        """The first point that failed; empty where none has."""
        failed = (point for point in self.points if point.passed is False)
        return next((point.sentence for point in failed), "")

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Those of all points."""
        return tuple(figure for point in self.points for figure in point.figures)


@dataclass(frozen=True)
class Without:
    """What a change is judged by: the program without it, compiled and eager."""

    baseline: Observed
    reference: Observed | None
    """Without compiling anything; None where that does not run."""
    repeatable: Comparison | None = None
    """The baseline against a second one; None where none was needed."""
    precise: Observed | None = None
    """Eager, with each sampled call in float64 beside it; None where none was needed."""

    @cached_property
    def exact(self) -> Mapping[Key, Exact]:
        """What excuses differences by rounding."""
        if self.reference is None or self.precise is None:
            return {}
        return exact_answers(self.reference.timeline, self.precise.timeline)


def judge(
    subject: Subject,
    without: Without,
    runs: Sequence[Observed],
    *,
    labels: Sequence[str] = (),
    declared: Declared = NOTHING_DECLARED,
) -> Certificate:
    """The certificate of a change for a finding.

    Args:
        subject: what the finding is about.
        without: the runs without the change.
        runs: those with it, at least one.
        labels: the parts of the change that a run reports when they are applied.
        declared: what the change itself says that it makes different.
    """
    broken = next((run.problem for run in runs if run.problem), None)
    if broken is not None:
        return Certificate((Point("applied", False, f"does not run: {broken}"),), len(runs))
    points = [
        _applied(without.baseline, runs, labels),
        _finding(subject, without.baseline, runs, declared.left),
        _others(subject, without.baseline, runs, declared),
        _compiled(without.baseline, runs, declared),
        *padding_points(declared.pads, without.baseline.timeline, [run.timeline for run in runs]),
        _answers(without, runs, declared),
        _time(without.baseline, runs),
        _cost(without.baseline, runs),
    ]
    return Certificate(tuple(points), len(runs))


def _applied(baseline: Observed, runs: Sequence[Observed], labels: Sequence[str]) -> Point:
    for run in runs:
        if (changed := _changed_file(baseline.receipt, run.receipt)) is not None:
            return Point("applied", False, f"{changed} was edited while changes were tried")
        outcomes = sorted(run.timeline.trial_applied, key=lambda each: each.problem is not None)
        applied = {each.change: each.problem for each in outcomes}
        for label in labels:
            if label not in applied:
                return Point("applied", False, f"not applied: the run never came to {label}")
            if applied[label] is not None:
                return Point("applied", False, f"not applied: {label}: {applied[label]}")
    return Point("applied", True, "the change was applied")


def _changed_file(before: Receipt, after: Receipt) -> str | None:
    """A source file that was another one in a later run. What is imported may differ, and data that
    the program writes."""
    old, new = (each.header.provenance.source_sha256 for each in (before, after))
    both = (name for name in old if name in new and name.endswith(".py"))
    return next((name for name in both if old[name] != new[name]), None)


def _finding(subject: Subject, baseline: Observed, runs: Sequence[Observed], left: int) -> Point:
    before = count_in(subject, baseline.receipt)
    after = max(count_in(subject, run.receipt) for run in runs)
    figures = (Figure(subject.unit, before, after),)
    if before == 0:
        return Point("finding", False, "the finding did not come again without the change", figures)
    allowed = min(left, before - 1)
    if after > allowed:
        remain = f"{after} of {before} {subject.unit} remain"
        return Point("finding", False, remain, figures)
    return Point("finding", True, f"{subject.unit} {before} → {after}", figures)


def _others(
    subject: Subject, baseline: Observed, runs: Sequence[Observed], declared: Declared
) -> Point:
    figures = [
        _worst(shown, baseline, runs, lambda run, name=name: _count(run, name))
        for name, shown in COUNTS.items()
    ]
    recordings = _worst("CUDA graph recordings", baseline, runs, _recordings)
    if recordings.before is not None or recordings.after is not None:
        figures.append(recordings)
    if declared.unlimits:
        every = _worst("compiles", baseline, runs, lambda run: run.receipt.compile.compiles)
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
            return Point("others", False, f"something else got worse: {grown}", shown)
    for run in runs:
        more = _without_end(subject, baseline, run) if declared.unlimits else None
        if worse := more or _new_in(subject, baseline, run, declared):
            return Point("others", False, f"something else got worse: {worse}", shown)
    return Point("others", True, "nothing else got worse", shown)


def _splits(receipt: Receipt, disables: Collection[str]) -> list[BreakKey]:
    """The breaks at calls of functions that a change leaves to Python by
    `torch.compiler.disable`."""
    at = {
        finding.id
        for finding in receipt.findings
        if disables
        and finding.evidence.get("category") == "skipped_or_disabled"
        and "torch.compiler.disable" in str(finding.evidence.get("reason"))
        and _callee(finding).rpartition(".")[2] in disables
    }
    return [break_key(site) for site in receipt.compile.breaks if site.finding in at]


def _callee(finding: FindingRecord) -> str:
    callee = cast("dict[str, object]", finding.evidence.get("callee") or {})
    return str(callee.get("name") or "")


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
        return "whether new variants come to an end cannot be seen: the run has no steps"
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


def _worst(
    name: str,
    baseline: Observed,
    runs: Sequence[Observed],
    value: Callable[[Observed], float | None],
    unit: str = "",
) -> Figure:
    after = [found for run in runs if (found := value(run)) is not None]
    return Figure(name, value(baseline), max(after, default=None), unit)


def _count(run: Observed, name: str) -> int:
    return int(getattr(run.receipt.compile, name))


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
    known = set[Named]().union(
        *(_named(key) for key, change in changes.causes.items() if fewer and change.count_before)
    )
    for key, change in changes.causes.items():
        hidden = (key.file, key.function) in unlimited or _is_known(_named(key), known)
        hidden |= declared.corrects and key.rule == _LATE_HOOK
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
    return _new_finding(baseline.receipt, run.receipt, unlimited, known)


def _is_fewer(subject: Subject, baseline: Observed, run: Observed) -> bool:
    """There are fewer recompiles, by as many as the finding had. Those that had two causes may have
    another name now, and are no more than before."""
    gone = count_in(subject, baseline.receipt) - count_in(subject, run.receipt)
    return run.receipt.compile.recompiles <= baseline.receipt.compile.recompiles - gone


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
) -> str | None:
    known = {finding_key(finding) for finding in before.findings}
    for finding in after.findings:
        key = finding_key(finding)
        file, function = key[2:] if len(key) > 2 else (None, None)
        met = _variables(file, function, finding.variable)
        again = finding.rule == COMBINATION and _is_known(met, variables)
        hidden = key[2:] in unlimited or again
        judged = finding.severity != "info" and finding.rule.startswith(_JUDGED)
        if judged and not hidden and key not in known:
            return f"a new finding, {finding.rule}: {finding.title or finding.slug}"
    return None


def _of_late_hooks(receipt: Receipt) -> set[tuple[str | None, str | None]]:
    return {finding_key(item)[2:] for item in receipt.findings if item.rule == _LATE_HOOK}


def _limited(receipt: Receipt) -> set[tuple[str | None, str | None]]:
    """Frames that reached the recompile limit, as causes name their place."""
    return {
        (portable_file(item.location.file), function_key(item.location.function))
        for item in receipt.findings
        if item.rule == "CD152" and item.location is not None
    }


def _compiled(baseline: Observed, runs: Sequence[Observed], declared: Declared) -> Point:
    """Whether as much is compiled, and as often called: nothing recompiles in a program that
    compiles nothing. Where a message is left out or a hook left to Python, at least half of the
    operations must be there: the change itself takes some, and how many is not known. Where the
    change makes in `__init__` what the first call made, the last graphs are compared."""
    operations = 0.5 if declared.leaves_out or declared.disables else 1.0
    measures: tuple[tuple[str, float, Callable[[Observed], float]], ...] = (
        (
            "graph operations",
            operations,
            lambda run: _operations(run.timeline, last=bool(declared.grown)),
        ),
        ("compiled calls", 1.0, lambda run: _calls(run.timeline)),
        ("steps", 1.0, lambda run: len(run.timeline.steps)),
    )
    figures = [
        Figure(name, measure(baseline), min(map(measure, runs))) for name, _, measure in measures
    ]
    for figure, (_, share, _) in zip(figures, measures, strict=True):
        if (figure.after or 0) < share * (figure.before or 0):
            fewer = f"{figure.name} {figure.before:g} → {figure.after:g}"
            return Point("compiled", False, f"less is compiled or called: {fewer}", tuple(figures))
    if not figures[0].after:
        return Point("compiled", False, "nothing is compiled", tuple(figures))
    gone = _not_compiled(baseline, runs)
    if gone:
        return Point("compiled", False, f"{gone} is not compiled any more", tuple(figures))
    return Point("compiled", True, "as much is compiled and called", tuple(figures))


def _operations(timeline: Timeline, *, last: bool = False) -> int:
    """In the first graph of each frame, or in the last one. Parts of a function that a graph break
    divides count on their own: without the break its one graph holds them all."""
    chosen: dict[tuple[object, ...], int] = {}
    for item in timeline.compiles:
        if is_compile(item) and item.graph_ops:
            place = (item.process, item.frame.file, item.frame.line, item.frame.function)
            if last:
                chosen.pop(place, None)
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


def _answers(without: Without, runs: Sequence[Observed], declared: Declared) -> Point:
    baseline, reference = without.baseline, without.reference
    if without.repeatable is not None and without.repeatable.difference is not None:
        why = f"two runs without the change differ: {without.repeatable.difference}"
        return Point("answers", False, f"the results cannot be compared: {why}")
    eager = compare(baseline.timeline, reference.timeline) if reference is not None else None
    unlike_eager = eager.difference if eager is not None else None
    compared, largest, notes = 0, 0.0, list[str]()
    for run in runs:
        found = compare(baseline.timeline, run.timeline, declared, without.exact)
        if found.difference is None and not found.conclusive:
            why = "no number that a compiled call returned was recorded"
            return Point("answers", False, f"the results cannot be compared: {why}")
        against = (
            compare(reference.timeline, run.timeline, declared, without.exact)
            if reference is not None
            else None
        )
        if found.difference is not None:
            equals_eager = against is not None and against.conclusive and not against.difference
            if not unlike_eager or not equals_eager:
                return Point("answers", False, f"other results: {found.difference}")
            notes.append(f"without the change they differed from eager: {unlike_eager}")
        elif against is not None and against.difference is not None and not unlike_eager:
            return Point("answers", False, f"other results than eager: {against.difference}")
        problem = _randomness(without, run) or _printed(without, run, corrected=bool(notes))
        if problem is not None:
            return Point("answers", False, problem)
        compared, largest = found.compared, max(largest, found.largest)
        if excused := max(found.excused, against.excused if against is not None else 0):
            notes.append(
                f"{excused} of them differ by more than rounding usually does, and are as near to "
                "float64 as eager is"
            )
        if found.not_compared:
            notes.append(f"{found.not_compared} values have no content that can be compared")
    if unlike_eager and not notes:
        notes.append(f"without the change they differ from eager too: {unlike_eager}")
    if reference is None:
        notes.append("not compared with eager, which does not run")
    text = f"{compared} values equal (max {largest:.1g})" if largest else f"{compared} values equal"
    sentence = "; ".join([text, *dict.fromkeys(notes)])
    return Point("answers", True, sentence, (Figure("values compared", compared, compared),))


def needs_float64(
    certificate: Certificate,
    without: Without,
    runs: Sequence[Observed],
    declared: Declared = NOTHING_DECLARED,
) -> bool:
    """Whether a change failed by numbers alone that may differ by rounding, which only the same
    calls in float64 can show."""
    failed = [point.name for point in certificate.points if point.passed is False]
    if failed != ["answers"] or without.reference is None or without.precise is not None:
        return False
    unchanged = (without.baseline, without.reference)
    found = [compare(each.timeline, run.timeline, declared) for run in runs for each in unchanged]
    others = [_randomness(without, run) or _printed(without, run, corrected=False) for run in runs]
    rounded = all(each.by_rounding for each in found if each.difference is not None)
    return rounded and any(each.difference for each in found) and not any(others)


def _randomness(without: Without, run: Observed) -> str | None:
    """Whether it draws as many random numbers as the program does, compiled or eager."""
    drawn = randomness(run.timeline)
    if drawn == randomness(without.baseline.timeline):
        return None
    if without.reference is not None and drawn == randomness(without.reference.timeline):
        return None
    return "other results: it draws other random numbers"


def _printed(without: Without, run: Observed, *, corrected: bool) -> str | None:
    """Results in the output of the program; the whole text may have times in it."""
    expected = without.reference if corrected and without.reference else without.baseline
    if len(run.printed) != len(expected.printed):
        counts = f"{len(expected.printed)} → {len(run.printed)}"
        return f"other results: {counts} results are printed"
    for old, new in zip(expected.printed, run.printed, strict=True):
        if not same_result(old, new):
            return f"other results: it prints {new[:80]!r}, not {old[:80]!r}"
    return None


def _time(baseline: Observed, runs: Sequence[Observed]) -> Point:
    figures = [
        _worst("compile", baseline, runs, lambda run: run.receipt.compile.time_s.total, "s"),
        _worst("first compiles", baseline, runs, _first_compiles, "s"),
        _worst("step", baseline, runs, _step, "s"),
    ]
    text = _interval(baseline, runs)
    return Point(
        "time", None, text, tuple(figure for figure in figures if figure.after is not None)
    )


def _first_compiles(run: Observed) -> float | None:
    return run.receipt.compile.time_s.first_compile


def _step(run: Observed) -> float | None:
    """Median of the steps in which nothing compiled, past the first."""
    quiet = [step.wall_s for step in run.timeline.steps[1:] if step.compile_s == 0]
    return median(quiet) if quiet else None


def _interval(baseline: Observed, runs: Sequence[Observed]) -> str:
    """The change of the step time between steps of the same number, where there are enough."""
    before = {(s.process, s.number): s.wall_s for s in baseline.timeline.steps if not s.compile_s}
    ratios = [
        math.log(step.wall_s / before[step.process, step.number])
        for run in runs
        for step in run.timeline.steps[1:]
        if not step.compile_s
        and step.wall_s > 0
        and before.get((step.process, step.number), 0.0) > 0
    ]
    if len(ratios) < MIN_ROUNDS:
        return "too few quiet steps to compare their time"
    ordered = sorted(ratios)
    low, high = _median_bounds(len(ordered))
    change, least, most = (math.expm1(x) for x in (median(ordered), ordered[low], ordered[high]))
    return f"step {change:+.0%} [{least:+.0%}, {most:+.0%}], one run each"


def _median_bounds(count: int) -> tuple[int, int]:
    """Indices of the order statistics between which the median lies 98 times in a hundred, by the
    normal approximation of the binomial."""
    half = math.ceil(2.326 * math.sqrt(count) / 2)
    return max(0, count // 2 - half), min(count - 1, (count - 1) // 2 + half)


def _cost(baseline: Observed, runs: Sequence[Observed]) -> Point:
    figures = [
        _worst("guards of a call", baseline, runs, _guard_time, "µs"),
        _worst("synchronisations a step", baseline, runs, _syncs),
        _worst("host memory", baseline, runs, _memory, "bytes"),
    ]
    known = tuple(each for each in figures if each.before is not None and each.after is not None)
    return Point("cost", None, "stated, not judged", known)


def _guard_time(run: Observed) -> float | None:
    found = [item.guard_eval_us for item in run.receipt.compile.frames_detail]
    known = [value for value in found if value is not None]
    return sum(known) if known else None


def _syncs(run: Observed) -> float | None:
    """Of the sampled steps, which are not as many in each run: none with a compile is sampled."""
    section = run.receipt.syncs
    if section is None or not section.sampled_steps:
        return None
    return round(sum(line.count for line in section.lines) / section.sampled_steps, 1)


def _memory(run: Observed) -> float | None:
    section = run.receipt.memory
    return section.host_peak_bytes if section is not None else None
