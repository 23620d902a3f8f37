"""The point "answers" of a certificate: the program computes the same with a change.

Of what a program prints, its results are compared: lines that begin with RESULT, and losses
wherever they stand. The rest of its output may have times in it, which differ in every run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from compilediag.fixes.answers import randomness
from compilediag.fixes.observed import Certificate, Observed, Without, proof_figure
from compilediag.receipt.schema.compiles import ProofPoint
from compilediag.rules.changes import NOTHING_DECLARED, Declared
from compilediag.rules.make_finding import plural

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
_LOSS = re.compile(rf"\b[\w./]*loss\b\W{{0,3}}({_NUMBER})\b", re.IGNORECASE)
_TOKENS = re.compile(rf"(?<![\w.]){_NUMBER}(?![\w.])")

MAX_RESULTS = 10_000

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""What is printed is rounded, four digits after the point most often."""


def answers_point(without: Without, runs: Sequence[Observed], declared: Declared) -> ProofPoint:
    """Against the program as it is, and against eager; what draws random numbers draws as many."""
    baseline, reference = without.baseline, without.reference
    if without.repeatable is not None and without.repeatable.difference is not None:
        why = f"two runs without the change differ: {without.repeatable.difference}"
        return ProofPoint("answers", False, f"the results cannot be compared: {why}")
    eager = (
        without.compared(baseline, reference, NOTHING_DECLARED) if reference is not None else None
    )
    unlike_eager = eager.difference if eager is not None else None
    compared, largest, notes = 0, 0.0, list[str]()
    for run in runs:
        found = without.compared(baseline, run, declared)
        printed = baseline.printed and run.printed
        if found.difference is None and not found.conclusive and not printed:
            why = "no number that a compiled call returned was recorded"
            return ProofPoint("answers", False, f"the results cannot be compared: {why}")
        against = without.compared(reference, run, declared) if reference is not None else None
        if found.difference is not None:
            equals_eager = against is not None and against.conclusive and not against.difference
            if not unlike_eager or not equals_eager:
                return ProofPoint("answers", False, f"different results: {found.difference}")
            notes.append(f"without the change they differed from eager: {unlike_eager}")
        elif against is not None and against.difference is not None and not unlike_eager:
            return ProofPoint("answers", False, f"results differ from eager: {against.difference}")
        corrected = bool(notes)
        problem = _randomness(without, run) or _printed(without, run, declared, corrected=corrected)
        if problem is not None:
            return ProofPoint("answers", False, problem)
        if missing := len(_expected(without, corrected=corrected).printed) - len(run.printed):
            notes.append(f"{plural(missing, 'printed result')} left out with the message")
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
    if without.unstable:
        count = len(without.unstable)
        notes.append(f"{count} differ between two unchanged runs and are not compared")
    if reference is None:
        notes.append("not compared with eager, which does not run")
    text = f"{compared} values equal (max {largest:.1g})" if largest else f"{compared} values equal"
    sentence = "; ".join([text, *dict.fromkeys(notes)])
    return ProofPoint(
        "answers", True, sentence, (proof_figure("values compared", compared, compared),)
    )


def needs_float64(
    certificate: Certificate,
    without: Without,
    runs: Sequence[Observed],
    declared: Declared = NOTHING_DECLARED,
) -> bool:
    """A change failed by numbers alone that may differ by rounding, which only the same
    calls in float64 can show."""
    failed = [point.name for point in certificate.points if point.passed is False]
    if failed != ["answers"] or without.reference is None or without.precise is not None:
        return False
    unchanged = (without.baseline, without.reference)
    found = [without.compared(each, run, declared) for run in runs for each in unchanged]
    others = [
        _randomness(without, run) or _printed(without, run, declared, corrected=False)
        for run in runs
    ]
    rounded = all(each.by_rounding for each in found if each.difference is not None)
    return rounded and any(each.difference for each in found) and not any(others)


def _randomness(without: Without, run: Observed) -> str | None:
    """It draws as many random numbers as the program does, compiled or eager."""
    drawn = randomness(run.timeline)
    if drawn == randomness(without.baseline.timeline):
        return None
    if without.reference is not None and drawn == randomness(without.reference.timeline):
        return None
    return "different results: it draws different random numbers"


def _expected(without: Without, *, corrected: bool) -> Observed:
    """The run whose results a change has to print; eager, where the change corrects results."""
    return without.reference if corrected and without.reference else without.baseline


def _printed(without: Without, run: Observed, declared: Declared, *, corrected: bool) -> str | None:
    """Results in the output of the program; the whole text may have times in it."""
    expected = _expected(without, corrected=corrected)
    if declared.silences and left_out(expected.printed, run.printed) is not None:
        return None
    if len(run.printed) != len(expected.printed):
        counts = f"{len(expected.printed)} → {len(run.printed)}"
        return f"different results: {counts} results are printed"
    for old, new in zip(expected.printed, run.printed, strict=True):
        if not same_result(old, new):
            return f"different results: it prints {new[:80]!r}, not {old[:80]!r}"
    return None


def results_in(output: str) -> tuple[str, ...]:
    """The results in a program's output, in their order."""
    found: list[str] = []
    for line in output.splitlines():
        if line.lstrip().startswith("RESULT"):
            found.append(line.strip())
        else:
            found += [f"loss {item}" for item in _LOSS.findall(line)]
        if len(found) > MAX_RESULTS:
            break
    return tuple(found[:MAX_RESULTS])


def left_out(before: Sequence[str], after: Sequence[str]) -> int | None:
    """How many results of a run another one does not print; None where it prints others, or in
    another order."""
    rest = iter(before)
    if all(any(same_result(old, new) for old in rest) for new in after):
        return len(before) - len(after)
    return None


def same_result(before: str, after: str) -> bool:
    """Two results are equal but for the rounding of their numbers."""
    if before == after:
        return True
    if _TOKENS.sub("#", before) != _TOKENS.sub("#", after):
        return False
    pairs = zip(_TOKENS.findall(before), _TOKENS.findall(after), strict=True)
    numbers = [(float(old), float(new)) for old, new in pairs]
    return all(
        math.isclose(old, new, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
        or (math.isnan(old) and math.isnan(new))
        for old, new in numbers
    )
