"""Runs the rules, merges cause and symptom, orders by cost, gives the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.diagnosis.reconcile import Agreement, reconcile
from compilediag.diagnosis.rules.catalogue import ALL_RULES
from compilediag.diagnosis.rules.evidence import disagreements, find_disagreement
from compilediag.diagnosis.rules.recompiles import Groups, RecompileRule, groups_of
from compilediag.timeline.timeline import Timeline

Verdict = Literal["clean", "findings", "blind"]

_Explains = Callable[[Finding, Finding], bool]
"""Called with a symptom and a possible cause."""

_BLINDING = frozenset({"CD901", "CD902", "CD903"})
"""Without that evidence nothing may be called clean, and no count is sure."""

_SEVERITIES = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a run, the most expensive first."""

    findings: tuple[Finding, ...]
    """With ids F1, F2..."""
    verdict: Verdict
    agreement: Agreement


def diagnose(timeline: Timeline, rules: Sequence[Rule] = ALL_RULES) -> Diagnosis:
    """Findings of all rules over a run, and what may be concluded from it."""
    groups, agreement = groups_of(timeline), reconcile(timeline)
    found = [finding for rule in rules for finding in _told(rule, timeline, groups, agreement)]
    found = _merge_steady(_merge_autograd(found))
    merged = _merge_violations(_merge_eager(_merge_armed(found)))
    # Of steps and seconds that the record of the run cannot tell, zero would be a claim.
    stepped, measured = timeline.tells("steps"), timeline.tells("metrics_rows")
    ordered = sorted(merged, key=lambda each: _importance(each, each.cost_s if measured else None))
    findings = tuple(
        replace(
            each,
            id=f"F{n}",
            steps=each.steps if stepped else (),
            cost_s=each.cost_s if measured else None,
        )
        for n, each in enumerate(ordered, start=1)
    )
    return Diagnosis(findings, _verdict(findings), agreement)


def _told(
    rule: Rule, timeline: Timeline, groups: Groups, agreement: Agreement
) -> Iterable[Finding]:
    """What a rule finds; what others need too has been worked out before."""
    if isinstance(rule, RecompileRule):
        return rule.findings(timeline, groups) if rule.code in groups else ()
    return disagreements(timeline, agreement) if rule is find_disagreement else rule(timeline)


def _importance(finding: Finding, cost_s: float | None) -> tuple[bool, float, int]:
    """Doubt about the evidence first, then seconds, then severity; else the rules' own order."""
    return (
        finding.rule not in _BLINDING,
        -(cost_s or 0.0),
        _SEVERITIES[finding.severity],
    )


def _verdict(findings: Iterable[Finding]) -> Verdict:
    """Blind overrules findings: part of what happened was not seen. Information alone is clean."""
    rules = {finding.rule for finding in findings}
    if rules & _BLINDING:
        return "blind"
    if any(finding.severity != "info" for finding in findings):
        return "findings"
    return "clean"


def _merge_eager(found: list[Finding]) -> list[Finding]:
    """A frame that ran eager because of a break is one finding: the break, which is the cause.

    Where torch names only the consequence (a break in a loop), the break adds nothing.
    """
    found = _absorb(found, "CD904", _is_cause_of_eager, _sends)
    eager = [each for each in found if each.rule == "CD904"]
    if not eager:
        return found
    return [
        each
        for each in found
        if not (_is_consequence(each) and any(_sent(frame, each) for frame in eager))
    ]


def _is_cause_of_eager(eager: Finding, cause: Finding) -> bool:
    return not _is_consequence(cause) and _sent(eager, cause)


def _sends(cause: Finding) -> bool:
    """Whether it tells of frames that it sent to eager."""
    return isinstance(cause.evidence.get("eager_frames"), list)


def _is_consequence(finding: Finding) -> bool:
    """A break report that names no cause of its own."""
    return finding.evidence.get("consequence_only") is True


def _sent(eager: Finding, cause: Finding) -> bool:
    """The break is what sent that frame to eager."""
    frames = cause.evidence.get("eager_frames")
    place = eager.location
    if place is None or not isinstance(frames, list):
        return False
    return [place.file, place.line] in cast(list[object], frames)


def _merge_armed(found: list[Finding]) -> list[Finding]:
    """A guard that is armed again belongs to the finding of the recompiles it already caused."""
    return _absorb(found, "CD150", _same_cause)


def _same_cause(symptom: Finding, cause: Finding) -> bool:
    return (
        cause.rule == symptom.evidence.get("cause")
        and cause.variable == symptom.variable
        and cause.location == symptom.location
    )


def _merge_autograd(found: list[Finding]) -> list[Finding]:
    """Recompiles of compiled autograd that a guard explains are that guard's finding."""
    return _absorb(found, "CD153", _explains_autograd)


def _explains_autograd(symptom: Finding, cause: Finding) -> bool:
    again = _ids(symptom)[1:]
    return bool(again) and cause.rule.startswith("CD1") and set(again) <= set(_ids(cause))


def _merge_steady(found: list[Finding]) -> list[Finding]:
    """A recompile in a steady step is the finding of the guard that caused it."""
    steady = [each for each in found if each.rule == "CD302" and each.severity == "info"]
    if not steady:
        return found
    others = [each for each in found if each not in steady]
    return _merged(others, steady, _caused)


def _caused(symptom: Finding, cause: Finding) -> bool:
    return cause.rule.startswith("CD1") and set(_ids(symptom)) <= set(_ids(cause))


def _merge_violations(found: list[Finding]) -> list[Finding]:
    """A frame that failed for a violated constraint did not run at all."""
    return _absorb(
        found,
        "CD904",
        lambda eager, cause: cause.rule == "CD154" and cause.location == eager.location,
    )


def _absorb(
    found: list[Finding],
    code: str,
    explains: _Explains,
    may: Callable[[Finding], bool] | None = None,
) -> list[Finding]:
    """Removes findings of `code` that another finding explains, and names them there."""
    symptoms = [each for each in found if each.rule == code]
    if not symptoms:
        return found
    return _merged([each for each in found if each.rule != code], symptoms, explains, may)


def _merged(
    kept: list[Finding],
    symptoms: Iterable[Finding],
    explains: _Explains,
    may: Callable[[Finding], bool] | None = None,
) -> list[Finding]:
    """`kept`, each naming the symptoms it explains, and after them the symptoms nothing does.

    All symptoms have one rule, and explain no other: a run may have thousands of them. Only
    findings that `may` be a cause are asked.
    """
    causes = [n for n, each in enumerate(kept) if may is None or may(each)]
    for symptom in symptoms:
        index = next(
            (n for n in causes if kept[n].rule != symptom.rule and explains(symptom, kept[n])),
            None,
        )
        if index is None:
            kept.append(symptom)
        else:
            kept[index] = _with_symptom(kept[index], symptom)
    return kept


def _ids(finding: Finding) -> list[str]:
    ids = finding.evidence.get("compile_ids")
    return [str(each) for each in cast(list[object], ids)] if isinstance(ids, list) else []


def _steps_of(*findings: Finding) -> tuple[int, ...]:
    """The steps of all; a look that foresaw a recompile (CD150) is no step of it."""
    return tuple(sorted({step for finding in findings for step in finding.steps}))


def _with_symptom(cause: Finding, symptom: Finding) -> Finding:
    """The cause, naming the symptom; it takes over what is worse: severity, and cost if unknown."""
    worse = min(cause.severity, symptom.severity, key=lambda level: _SEVERITIES[level])
    # A break knows what became of its frame, and whether the user asked for it.
    severity = cause.severity if cause.rule.startswith("CD2") else worse
    return replace(
        cause,
        severity=severity,
        cost_s=cause.cost_s if cause.cost_s is not None else symptom.cost_s,
        steps=cause.steps if symptom.rule == "CD150" else _steps_of(cause, symptom),
        also=tuple(dict.fromkeys((*cause.also, symptom.rule))),
    )
