"""Cause and symptom are one finding: which findings another one explains, and what becomes of them.

A rule module declares in `ABSORBS` what its findings explain; the catalogue lists the declarations
in the order in which they apply.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from compilediag.diagnosis.codes import SEVERITIES
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.evidence import AnyEvidence


@dataclass(frozen=True, slots=True)
class Absorption:
    """Findings of one code are symptoms of findings of other codes."""

    symptom: str
    """The code of the symptoms, or how it begins."""
    cause: str
    """The code of what explains them, or how it begins."""
    explains: Callable[[Finding, Finding], bool]
    """Whether a cause (first) explains a symptom (second)."""
    is_symptom: Callable[[Finding], bool] = lambda _: True
    """Which of the findings of `symptom` are symptoms at all."""
    keeps_severity: bool = False
    """The cause's severity already accounts for the symptom; else the worse of the two holds."""
    keeps_steps: bool = False
    """The symptom happened in no step of its own."""
    adds_cost: bool = False
    """The seconds of both are different ones, and all the cause's."""
    silent: bool = False
    """The symptom adds nothing: the cause does not name it."""
    common: Callable[[Finding], Iterable[Hashable]] | None = None
    """What a finding is about: a cause explains only symptoms that share some of it. Where a run
    has thousands of both, no others are compared."""


def absorb(found: list[Finding], absorption: Absorption) -> list[Finding]:
    """The findings without the symptoms that another finding explains; those name them in `also`.
    Symptoms that nothing explains come last, unless they are silent."""
    symptoms = {n for n, each in enumerate(found) if _is_symptom(each, absorption)}
    causes = [
        n
        for n, each in enumerate(found)
        if n not in symptoms and each.rule.startswith(absorption.cause)
    ]
    candidates = _candidates(found, causes, absorption)
    kept = dict(enumerate(found))
    for n in sorted(symptoms):
        cause = next(
            (at for at in candidates(found[n]) if absorption.explains(kept[at], found[n])), None
        )
        if cause is not None:
            kept[cause] = _with_symptom(kept[cause], kept.pop(n), absorption)
    unexplained = set[int]() if absorption.silent else symptoms & kept.keys()
    order = sorted(kept, key=lambda n: (n in unexplained, n))
    return [kept[n] for n in order]


def _candidates(
    found: Sequence[Finding], causes: Sequence[int], absorption: Absorption
) -> Callable[[Finding], Sequence[int]]:
    """The causes that may explain a symptom, in their order."""
    common = absorption.common
    if common is None:
        return lambda symptom: causes
    about: dict[Hashable, list[int]] = {}
    for at in causes:
        for part in common(found[at]):
            about.setdefault(part, []).append(at)
    return lambda symptom: sorted({at for part in common(symptom) for at in about.get(part, ())})


def _is_symptom(finding: Finding, absorption: Absorption) -> bool:
    return finding.rule.startswith(absorption.symptom) and absorption.is_symptom(finding)


def _with_symptom(cause: Finding, symptom: Finding, absorption: Absorption) -> Finding:
    """The cause; it takes over what is worse: severity, and cost where its own is not known."""
    about = (*cause.about, *symptom.about)
    if absorption.silent:
        return replace(cause, about=about)
    worse = min(cause.severity, symptom.severity, key=SEVERITIES.index)
    seconds = [each.cost_s for each in (cause, symptom) if each.cost_s is not None]
    steps = {*cause.steps, *(() if absorption.keeps_steps else symptom.steps)}
    return replace(
        cause,
        severity=cause.severity if absorption.keeps_severity else worse,
        cost_s=(sum(seconds) if absorption.adds_cost else seconds[0]) if seconds else None,
        steps=cause.steps if absorption.keeps_steps else tuple(sorted(steps)),
        also=tuple(dict.fromkeys((*cause.also, symptom.rule))),
        about=about,
    )


def compile_ids(finding: Finding) -> Sequence[str]:
    """The compiles that a finding names as its evidence."""
    return AnyEvidence.of(finding.evidence).compile_ids
