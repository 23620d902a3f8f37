"""Turns the causes of all counted recompiles into findings: one mechanism for all families.

Causes with one rule, variable and blamed function are one finding, over all steps and processes.
The seconds of a recompile go to its primary cause: nobody measured how much of them another cause
would have cost alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from compilediag.diagnosis.absorption import Absorption, compile_ids
from compilediag.diagnosis.analysis import Analysis, AnalysisRule
from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.rules.make_finding import make_finding, pick
from compilediag.timeline.timeline import Timeline


class Wording(NamedTuple):
    """What a family reports of a group; the fields of `_filled` stand in braces."""

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
    wording_of: Callable[[Group], Wording]
    enrich: Callable[[Finding, Timeline], Finding] | None = None
    """Adds to a finding what else is recorded about it in the run."""

    def find(self, analysis: Analysis) -> Iterable[Finding]:
        timeline = analysis.timeline
        for group in analysis.causes.groups.get(self.code, ()):
            wording = _PLANNED if group.planned else self.wording_of(group)
            found = _finding(timeline, group, wording)
            yield found if self.enrich is None else self.enrich(found, timeline)


def _filled(text: str, group: Group) -> str:
    """The text of a `Wording` with the names of a group in it."""
    variable, kind = group.variable, group.kind or ""
    return text.format(
        name=group.name,
        function=group.function,
        variable=variable,
        **{letter: variable or letter for letter in "dix"},
        inputs=variable or "the inputs",
        kind=kind,
        setting=kind.replace("_", " "),
        guard=group.first.guard,
    )


def _finding(timeline: Timeline, group: Group, wording: Wording) -> Finding:
    first, causes, recompiles = group.first, group.causes, group.recompiles
    return make_finding(
        timeline,
        group.code,
        _filled(wording.title, group),
        _filled(wording.fix, group),
        caveat=wording.caveat,
        location=group.location,
        variable=first.variable or None,
        severity="info" if group.planned else None,
        confidence="exact" if any(item.confidence == "exact" for item in causes) else "text",
        count=len(recompiles),
        steps=(recompile.step for recompile in recompiles),
        cost_s=group.cost_s,
        evidence={
            "compile_ids": [recompile.compile_id for recompile in recompiles],
            "roles": ["primary" if cause.primary else "also" for cause in causes],
            "processes": sorted({recompile.process for recompile in recompiles}),
            **pick(first, "kind", "expected", "actual"),
            "values": group.values,
            **pick(first, "guard", "source"),
            **({"together": list(group.variables[1:])} if group.together else {}),
            "writers": [
                {**pick(writer, "function", "file", "line"), "evidence": evidence}
                for writer, evidence in group.writers
            ],
        },
        changed=group.changed,
        about=(group.id, *(other.id for other in group.together)),
    )


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
        common=compile_ids,
    ),
    # A guard that is armed again, of a cause that has recompiled already. A look that foresaw a
    # recompile is no step of it.
    Absorption(
        "CD150",
        "CD1",
        _is_same_cause,
        keeps_steps=True,
        common=lambda finding: (finding.variable,),
    ),
)
