"""The certificate of a change: six points, each before → after, from runs without and with it.

A change is proved only where the first four points hold in every run with it: the finding is gone,
nothing else is worse, as much is compiled and called, and the program computes the same. Time and
memory are reported, not judged: another machine has others.

Of what a program prints, its results are compared: lines that begin with RESULT, and losses
wherever they stand. The rest of its output may have times in it, which differ in every run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from compilediag.certify.cost import make_figure, measure_costs, measure_time
from compilediag.fixes.nothing_worse import check_compiled, check_others, check_padding
from compilediag.fixes.outputs import collect_random_states
from compilediag.fixes.proof_types import (
    FindingIdentity,
    ObservedRun,
    TrialCertificate,
    UnchangedRuns,
    count_finding,
)
from compilediag.receipt.schema.compiles import ProofPoint
from compilediag.rules.changes import NOTHING_DECLARED, DeclaredEffects
from compilediag.rules.make_finding import format_count


def judge(
    identity: FindingIdentity,
    unchanged: UnchangedRuns,
    runs: Sequence[ObservedRun],
    *,
    labels: Sequence[str] = (),
    declared: DeclaredEffects = NOTHING_DECLARED,
) -> TrialCertificate:
    """Judge a change by one run with it or more. `labels`: the parts of the change that a run
    reports when they are applied.

    Returns:
        The certificate; with the one point "applied" where a run failed.
    """
    broken = next((run.problem for run in runs if run.problem), None)
    if broken is not None:
        return TrialCertificate(
            (ProofPoint("applied", False, f"does not run: {broken}"),), len(runs)
        )
    points = [
        _check_applied(unchanged.baseline, runs, labels),
        _check_finding_gone(identity, unchanged.baseline, runs, declared),
        check_others(unchanged.baseline, runs, declared),
        check_compiled(unchanged.baseline, runs, declared),
        *check_padding(declared.pads, unchanged.baseline.timeline, [run.timeline for run in runs]),
        check_outputs(unchanged, runs, declared),
        ProofPoint("time", None, *measure_time(unchanged.baseline, runs)),
        ProofPoint("cost", None, "reported, not judged", measure_costs(unchanged.baseline, runs)),
    ]
    return TrialCertificate(tuple(points), len(runs))


def _check_applied(
    baseline: ObservedRun, runs: Sequence[ObservedRun], labels: Sequence[str]
) -> ProofPoint:
    # What is imported may differ from run to run, and data that the program writes.
    before = baseline.receipt.header.provenance.source_sha256
    for run in runs:
        for name, digest in run.receipt.header.provenance.source_sha256.items():
            if name.endswith(".py") and before.get(name, digest) != digest:
                return ProofPoint("applied", False, f"{name} was edited while changes were tried")
        trials = sorted(run.timeline.trial_applied, key=lambda trial: trial.problem is not None)
        applied = {trial.change: trial.problem for trial in trials}
        for label in labels:
            if label not in applied:
                return ProofPoint("applied", False, f"not applied: the run never reached {label}")
            if applied[label] is not None:
                return ProofPoint("applied", False, f"not applied: {label}: {applied[label]}")
    return ProofPoint("applied", True, "the change was applied")


def _check_finding_gone(
    identity: FindingIdentity,
    baseline: ObservedRun,
    runs: Sequence[ObservedRun],
    declared: DeclaredEffects,
) -> ProofPoint:
    """Check that the finding is gone. A call that recompiles for two causes does so until the last
    one is gone: where the program has as many recompiles as before, a change that removed its cause
    is worth a run with others, and proves nothing alone."""
    before = count_finding(identity, baseline.receipt)
    after = max(count_finding(identity, run.receipt) for run in runs)
    total = baseline.receipt.compile.recompiles
    now = max(run.receipt.compile.recompiles for run in runs)
    why = ""
    if before == 0:
        why = "the finding did not reappear without the change"
    elif after > min(declared.left, before - 1):
        why = f"{after} of {before} {identity.unit} remain"
    elif identity.causes and now >= total and not declared.corrects:
        own = f"{identity.unit} for it {before} → {after}"
        why = f"{own}, but as many in all ({total} → {now}): the same calls have other causes"
    figures = (make_figure(identity.unit, before, after),)
    return ProofPoint("finding", not why, why or f"{identity.unit} {before} → {after}", figures)


_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
_LOSS = re.compile(rf"\b[\w./]*loss\b\W{{0,3}}({_NUMBER})\b", re.IGNORECASE)
_TOKENS = re.compile(rf"(?<![\w.]){_NUMBER}(?![\w.])")

MAX_RESULTS = 10_000

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""What is printed is rounded, four digits after the point most often."""


def check_outputs(
    unchanged: UnchangedRuns, runs: Sequence[ObservedRun], declared: DeclaredEffects
) -> ProofPoint:
    """Compare with the program as it is and with eager; as many random numbers must be drawn."""
    baseline, ref = unchanged.baseline, unchanged.reference
    if unchanged.repeatable is not None and unchanged.repeatable.difference is not None:
        why = f"two runs without the change differ: {unchanged.repeatable.difference}"
        return ProofPoint("answers", False, f"the results cannot be compared: {why}")
    eager = unchanged.compare(baseline, ref, NOTHING_DECLARED) if ref is not None else None
    unlike_eager = eager.difference if eager is not None else None
    equal, largest, notes = 0, 0.0, list[str]()
    for run in runs:
        comparison = unchanged.compare(baseline, run, declared)
        printed = baseline.printed and run.printed
        if comparison.difference is None and not comparison.conclusive and not printed:
            why = "no number that a compiled call returned was recorded"
            return ProofPoint("answers", False, f"the results cannot be compared: {why}")
        against = unchanged.compare(ref, run, declared) if ref is not None else None
        if comparison.difference is not None:
            equals_eager = against is not None and against.conclusive and not against.difference
            if not unlike_eager or not equals_eager:
                return ProofPoint("answers", False, f"different results: {comparison.difference}")
            notes.append(f"without the change they differed from eager: {unlike_eager}")
        elif against is not None and against.difference is not None and not unlike_eager:
            return ProofPoint("answers", False, f"results differ from eager: {against.difference}")
        corrected = bool(notes)
        problem = _check_randomness(unchanged, run) or _compare_printed(
            unchanged, run, declared, corrected=corrected
        )
        if problem is not None:
            return ProofPoint("answers", False, problem)
        if missing := len(_get_expected(unchanged, corrected=corrected).printed) - len(run.printed):
            notes.append(f"{format_count(missing, 'printed result')} left out with the message")
        equal, largest = comparison.compared, max(largest, comparison.largest)
        if excused := max(comparison.excused, against.excused if against is not None else 0):
            notes.append(
                f"{excused} of them differ by more than rounding usually does, and are as near to "
                "float64 as eager is"
            )
        if comparison.not_compared:
            notes.append(f"{comparison.not_compared} values have no content that can be compared")
    if unlike_eager and not notes:
        notes.append(f"without the change they differ from eager too: {unlike_eager}")
    if unchanged.unstable:
        count = len(unchanged.unstable)
        notes.append(f"{count} differ between two unchanged runs and are not compared")
    if ref is None:
        notes.append("not compared with eager, which does not run")
    text = f"{equal} values equal (max {largest:.1g})" if largest else f"{equal} values equal"
    line = "; ".join([text, *dict.fromkeys(notes)])
    return ProofPoint("answers", True, line, (make_figure("values compared", equal, equal),))


def needs_float64(
    certificate: TrialCertificate,
    unchanged: UnchangedRuns,
    runs: Sequence[ObservedRun],
    declared: DeclaredEffects = NOTHING_DECLARED,
) -> bool:
    """True where a change failed by numbers alone that may differ by rounding, which only the same
    calls in float64 can show."""
    failed = [point.name for point in certificate.points if point.passed is False]
    if failed != ["answers"] or unchanged.reference is None or unchanged.precise is not None:
        return False
    refs = (unchanged.baseline, unchanged.reference)
    results = [unchanged.compare(ref, run, declared) for run in runs for ref in refs]
    others = [
        _check_randomness(unchanged, run)
        or _compare_printed(unchanged, run, declared, corrected=False)
        for run in runs
    ]
    rounded = all(result.by_rounding for result in results if result.difference is not None)
    return rounded and any(result.difference for result in results) and not any(others)


def _check_randomness(unchanged: UnchangedRuns, run: ObservedRun) -> str | None:
    """Check that it draws as many random numbers as the program does, compiled or eager."""
    drawn = collect_random_states(run.timeline)
    if drawn == collect_random_states(unchanged.baseline.timeline):
        return None
    if unchanged.reference is not None and drawn == collect_random_states(
        unchanged.reference.timeline
    ):
        return None
    return "different results: it draws different random numbers"


def _get_expected(unchanged: UnchangedRuns, *, corrected: bool) -> ObservedRun:
    """Get the run whose results a change has to print; eager, where the change corrects results."""
    return unchanged.reference if corrected and unchanged.reference else unchanged.baseline


def _compare_printed(
    unchanged: UnchangedRuns, run: ObservedRun, declared: DeclaredEffects, *, corrected: bool
) -> str | None:
    """Compare the results in the output of the program; the whole text may have times in it."""
    expected = _get_expected(unchanged, corrected=corrected)
    if declared.silences and count_left_out(expected.printed, run.printed) is not None:
        return None
    if len(run.printed) != len(expected.printed):
        counts = f"{len(expected.printed)} → {len(run.printed)}"
        return f"different results: {counts} results are printed"
    for old, new in zip(expected.printed, run.printed, strict=True):
        if not is_same_result(old, new):
            return f"different results: it prints {new[:80]!r}, not {old[:80]!r}"
    return None


def find_results(output: str) -> tuple[str, ...]:
    """Find the results in a program's output, in their order: at most `MAX_RESULTS`."""
    results: list[str] = []
    for line in output.splitlines():
        if line.lstrip().startswith("RESULT"):
            results.append(line.strip())
        else:
            results += [f"loss {number}" for number in _LOSS.findall(line)]
        if len(results) > MAX_RESULTS:
            break
    return tuple(results[:MAX_RESULTS])


def count_left_out(before: Sequence[str], after: Sequence[str]) -> int | None:
    """Count the results of a run that another one does not print; None where it prints others, or
    in another order."""
    rest = iter(before)
    if all(any(is_same_result(old, new) for old in rest) for new in after):
        return len(before) - len(after)
    return None


def is_same_result(before: str, after: str) -> bool:
    """True where two results are equal but for the rounding of their numbers."""
    if _TOKENS.sub("#", before) != _TOKENS.sub("#", after):
        return False
    pairs = zip(_TOKENS.findall(before), _TOKENS.findall(after), strict=True)
    numbers = [(float(old), float(new)) for old, new in pairs]
    return all(
        math.isclose(old, new, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
        or (math.isnan(old) and math.isnan(new))
        for old, new in numbers
    )
