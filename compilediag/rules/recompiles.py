"""Turns the causes of all counted recompiles into findings: one mechanism for all families.

Causes with one rule, variable and blamed function are one finding; causes that one line of the
program set off are parts of one. The seconds of a recompile go to its primary cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from compilediag.diagnosis.causes.cause_group import Group
from compilediag.diagnosis.codes import TEMPORARY
from compilediag.diagnosis.figures.steps import count_warmup_steps
from compilediag.diagnosis.findings import CauseId, CommonCause, Finding, make_changed_at
from compilediag.receipt.schema.compiles import PartRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.record import make_record
from compilediag.rules.facts import Facts, find_break_before
from compilediag.rules.make_finding import Advice, format_count, format_place, make_finding, pick
from compilediag.rules.rule import Absorption, Analysis, AnalysisRule, list_compile_ids
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Timeline
from compilediag_harness.base.resumed_frames import find_resumed_function

TitleAndAdvice = tuple[str, Advice]
"""A title, without the variable and its change, which views print beside it, and the advice. The
names of `_build_words` stand in braces."""


CARRIED = "what is carried over a graph break is an argument of the code behind it, and guarded"

_KEYWORD = re.compile(r"`fn\.keywords\['(\w+)'\]`")
"""An argument that a functools.partial holds."""

ONE_GRAPH_EACH = Advice("leave it, or warm up each before the timed steps: each is compiled once")
"""Advice on variants that the program wants, where no recipe makes one graph of them."""

AFTER_BREAK = Advice("remove the graph break at {place} first")
"""Advice on what is compiled behind a break: what it needs then is not known before."""

_BEHIND_BREAK = Advice(
    "torch guards on {name} behind the graph break at {place}: remove the break, or keep {name} as "
    "it is",
    CARRIED,
)


@dataclass(frozen=True)
class RecompileRule(AnalysisRule):
    """The rule of one code: describes its groups in the words of its family."""

    code: str
    describe: Callable[[Facts], TitleAndAdvice]
    enrich: tuple[Callable[[Finding, Group, Timeline], Finding], ...] = ()
    """Each adds to a finding what else is recorded about it in the run."""
    describes_breaks: bool = False
    """Its words are also for what is carried over a graph break."""

    def find(self, analysis: Analysis) -> Iterable[Finding]:
        timeline = analysis.timeline
        for group in analysis.causes.groups.get(self.code, ()):
            wanted = analysis.is_wanted(group)
            title, advice = self._describe_group(Facts(group, timeline, analysis.causes.behind))
            if wanted and advice.recipe is None:
                advice = ONE_GRAPH_EACH
                if broken := analysis.find_break(group.all_recompiles):
                    advice = AFTER_BREAK.fill(place=format_place(broken.file, broken.line))
            finding = _make_group_finding(timeline, group, title, advice)
            if wanted and _is_in_warmup(timeline, group):
                finding = replace(finding, severity="info")
            for enrich in self.enrich:
                finding = enrich(finding, group, timeline)
            yield finding

    def _describe_group(self, known: Facts) -> TitleAndAdvice:
        group = known.group
        if group.common_cause is not None:
            return _describe_common_cause(group, group.common_cause)
        title, advice = self.describe(known)
        broken = None if self.describes_breaks else find_break_before(group)
        if broken is not None:
            advice = _BEHIND_BREAK.fill(place=broken[1])
        words = _build_words(known)
        return title.format(**words), advice.fill(**words)


def _is_in_warmup(timeline: Timeline, group: Group) -> bool:
    """True if every recompile is in the leading steps, in which frames are compiled first."""
    for process in {again.process for again in group.all_recompiles}:
        steps = [step for step in timeline.steps if step.process == process]
        numbers = [step.number for step in steps[: count_warmup_steps(timeline, steps, process)]]
        own = (again.step for again in group.all_recompiles if again.process == process)
        if not {*own} <= {*numbers}:
            return False
    return True


def _build_words(known: Facts) -> dict[str, str]:
    """Build the words that stand in a text for the names in braces."""
    group = known.group
    variable, blamed = group.variable, group.location.function
    calls = known.calls or known.first_call or ()
    places = dict.fromkeys(format_place(call.file, call.line) for call in calls)
    function = find_resumed_function(blamed) or blamed
    function = f"`{function}`" if function else "the function"
    if classify_ownership(group.location.file) == "torch":
        # What torch wraps around a module has no name in the program.
        function = "the compiled code"
    return {
        "name": _KEYWORD.sub(r"`\1`", group.name),
        "function": function,
        "inputs": variable or "the inputs",
        "guard": group.first.guard,
        "places": " and ".join(places),
    }


def _describe_common_cause(group: Group, common_cause: CommonCause) -> TitleAndAdvice:
    """Describe what to do about values that one line changed together."""
    likely = "probably " if common_cause.evidence == "probable" else ""
    values = len({(part.code, part.variable) for part in group.parts})
    at = f"{common_cause.file}:{common_cause.line}"
    what = f"{common_cause.text} ({at})" if common_cause.text else f"the line {at}"
    what = "what sets them" if common_cause.lines > 1 else what
    # What is set again and again is not set before the first call.
    once = "; else run it before the first compiled call" * (len({*group.recompiles}) == 1)
    return f"one line {likely}changed {format_count(values, 'guarded value')}", Advice(
        f"torch makes a graph for each state that {what} leaves: leave it where they are few{once}"
    )


def _make_group_finding(timeline: Timeline, group: Group, title: str, advice: Advice) -> Finding:
    first, recompiles = group.first, group.all_recompiles
    primary = {recompile.id for cause, recompile in group.members if cause.primary}
    finding = make_finding(
        timeline,
        group.code,
        title,
        advice.fix,
        caveat=advice.caveat,
        recipe=advice.recipe,
        location=group.location,
        variable=None if first.variable.startswith(TEMPORARY) else first.variable or None,
        severity="info" if group.planned else None,
        confidence="exact" if any(i.confidence == "exact" for i, _ in group.members) else "text",
        count=len(recompiles),
        steps=(recompile.step for recompile in recompiles),
        cost_s=group.cost_s,
        evidence={
            "compile_ids": [recompile.compile_id for recompile in recompiles],
            "roles": ["primary" if recompile.id in primary else "also" for recompile in recompiles],
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
        about=tuple(part.id for part in group.parts),
    )
    common = group.common_cause
    known = common if common is not None and common.lines == 1 else None
    parts = tuple(
        make_record(
            PartRecord,
            part.first,
            rule=part.code,
            location=part.location,
            recompiles=len(part.recompiles),
        )
        for part in group.parts[1:]
    )
    changed_at = make_changed_at(first.changed)  # of the recompile whose values are shown
    return replace(finding, parts=parts, common_cause=known, changed_at=changed_at)


def _is_same_cause(cause: Finding, symptom: Finding) -> bool:
    where = symptom.location
    armed = GuardEvidence.parse(symptom.evidence).cause
    if cause.rule == armed and cause.variable == symptom.variable:
        return cause.location == where
    return where is not None and any(
        isinstance(part, CauseId)
        and part.rule == armed
        and part.variable == symptom.variable
        and (part.file, part.function) == (where.file, where.function)
        for part in cause.about[1:]
    )


ABSORBS = (
    # Recompiles of compiled autograd that a guard explains: the first capture is none.
    Absorption(
        "CD153",
        "CD1",
        lambda cause, symptom: (
            len(list_compile_ids(symptom)) > 1
            and {*list_compile_ids(symptom)[1:]} <= {*list_compile_ids(cause)}
        ),
    ),
    # A recompile in a steady step.
    Absorption(
        "CD302",
        "CD1",
        lambda cause, symptom: {*list_compile_ids(symptom)} <= {*list_compile_ids(cause)},
        is_symptom=lambda finding: finding.severity == "info",
        common=list_compile_ids,
    ),
    # A guard that is armed again, of a cause that has recompiled already. A look that foresaw a
    # recompile is no step of it.
    Absorption(
        "CD150",
        "CD1",
        _is_same_cause,
        keeps_steps=True,
        common=lambda finding: [
            finding.variable,
            *(part.variable for part in finding.about if isinstance(part, CauseId)),
        ],
    ),
)
