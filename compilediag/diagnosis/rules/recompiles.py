"""Turns the causes of all counted recompiles into findings: one mechanism, families bring words.

Causes with one rule, variable and blamed function are one finding, over all steps and processes.
The seconds of a recompile go to its primary cause: how much of them another cause would have
cost alone nobody measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from compilediag.diagnosis.absorption import Absorption, compile_ids
from compilediag.diagnosis.analysis import Analysis, AnalysisRule
from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Confidence, Finding, Fix
from compilediag.diagnosis.ownership import ownership_of
from compilediag.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Wording:
    """What a family says about a group."""

    title: str
    """What happened, without the variable and its change: views print those beside it."""
    fix: str
    """The preferred fix, in the imperative."""
    caveat: str | None = None
    """What the fix costs, as measured."""


_PLANNED = Wording(
    "tensor argument of another size, in the warm-up of its fixed sizes",
    "nothing: each size is compiled once, before it is used",
)


@dataclass(frozen=True)
class RecompileRule(AnalysisRule):
    """The rule of one code: its groups, in the family's words."""

    code: str
    word: Callable[[Group], Wording]
    enrich: Callable[[Finding, Timeline], Finding] | None = None
    """Adds to a finding what else the run tells of it."""

    def find(self, analysis: Analysis) -> Iterable[Finding]:
        timeline = analysis.timeline
        for group in analysis.causes.groups.get(self.code, ()):
            words = _PLANNED if group.planned else self.word(group)
            found = _finding(group, words, timeline.user_roots)
            yield found if self.enrich is None else self.enrich(found, timeline)


def _finding(group: Group, wording: Wording, user_roots: tuple[str, ...]) -> Finding:
    register = info(group.code)
    exact = any(cause.confidence == "exact" for cause in group.causes)
    confidence: Confidence = "exact" if exact else "text"
    return Finding(
        rule=group.code,
        slug=register.slug,
        severity="info" if group.planned else register.severity,
        confidence=confidence,
        family=register.family,
        variable=group.variable or None,
        title=wording.title,
        location=group.location,
        ownership=ownership_of(group.location.file, user_roots),
        count=len(group.recompiles),
        steps=tuple(sorted({recompile.step for recompile in group.recompiles})),
        cost_s=group.cost_s,
        fix=Fix(wording.fix, register.how, wording.caveat),
        evidence=_evidence(group),
        about=(group.id,),
    )


def _evidence(group: Group) -> dict[str, object]:
    first = group.first
    writers = dict.fromkeys(writer for cause in group.causes for writer in cause.writers)
    return {
        "compile_ids": [recompile.compile_id for recompile in group.recompiles],
        "roles": ["primary" if cause.primary else "also" for cause in group.causes],
        "processes": sorted({recompile.process for recompile in group.recompiles}),
        "kind": first.kind,
        "expected": first.expected,
        "actual": first.actual,
        "values": group.values,
        "guard": first.guard,
        "source": first.source,
        "writers": [
            {"function": writer.function, "file": writer.file, "line": writer.line}
            for writer in writers
        ],
    }


def _explains_autograd(cause: Finding, symptom: Finding) -> bool:
    """The first capture of a backward graph is no recompile: the others are."""
    again = compile_ids(symptom)[1:]
    return bool(again) and set(again) <= set(compile_ids(cause))


def _explains_late_recompile(cause: Finding, symptom: Finding) -> bool:
    return set(compile_ids(symptom)) <= set(compile_ids(cause))


def _is_same_cause(cause: Finding, symptom: Finding) -> bool:
    return (
        cause.rule == symptom.evidence.get("cause")
        and cause.variable == symptom.variable
        and cause.location == symptom.location
    )


ABSORBS = (
    # Recompiles of compiled autograd that a guard explains.
    Absorption("CD153", "CD1", _explains_autograd),
    # A recompile in a steady step.
    Absorption(
        "CD302",
        "CD1",
        _explains_late_recompile,
        is_symptom=lambda finding: finding.severity == "info",
    ),
    # A guard that is armed again, of a cause that has recompiled already. A look that foresaw a
    # recompile is no step of it.
    Absorption("CD150", "CD1", _is_same_cause, keeps_steps=True),
)
