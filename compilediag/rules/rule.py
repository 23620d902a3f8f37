"""The input of rules (`Analysis`), and the findings that another one explains (`Absorption`): cause
and symptom are one finding. A rule module declares in `ABSORBS` what its findings explain."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from compilediag.diagnosis.causes.cause_group import Group
from compilediag.diagnosis.causes.run_causes import RunCauses, find_run_causes
from compilediag.diagnosis.causes.variants import JudgedRecompiles, judge_recompiles
from compilediag.diagnosis.codes import SEVERITIES
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.reconcile import Agreement, reconcile
from compilediag.receipt.schema.compiles import Need
from compilediag.receipt.schema.evidence import AnyEvidence
from compilediag.rules.breaks.break_report import find_removable_breaks
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.frames import BreakLine
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import Location


@dataclass(frozen=True, slots=True)
class Analysis:
    """A Timeline with what the stages before the rules concluded from it."""

    timeline: Timeline
    causes: RunCauses
    agreement: Agreement
    judged: JudgedRecompiles
    """Of each recompile that counts, as the run shows it with the graph breaks that it has."""
    behind: Mapping[CompileId, Location]
    """Compiles of frames that only a break made which the program is to do without, and its line
    to change."""

    @property
    def final_needs(self) -> Mapping[CompileId, Need]:
        """The needs that are reported: nothing is known to be wanted behind such a break."""
        return {
            again: "undecided" if need == "wanted" and again in self.behind else need
            for again, need in self.judged.needs.items()
        }

    def are_wanted(self, recompiles: Iterable[Recompile]) -> bool:
        """True where each makes a variant that the program wants, if it keeps its breaks."""
        return {self.judged.needs.get(again.id) for again in recompiles} == {"wanted"}

    def is_wanted(self, group: Group) -> bool:
        """True where each of a group's recompiles makes a wanted variant, or would if it had no
        other cause."""
        needs, apart = self.judged
        return all(
            needs.get(event.id) == "wanted" or part.id in apart.get(event.id, ())
            for part in group.parts
            for event in part.recompiles
        )

    def find_break(self, recompiles: Sequence[Recompile]) -> Location | None:
        """Find the break, the first of several, behind which all of them are."""
        lines = [self.behind.get(again.id) for again in recompiles]
        return None if None in lines else next(iter(lines), None)


def analyze_timeline(timeline: Timeline) -> Analysis:
    """Run the stages that all rules share: the causes of recompiles, which of these are wanted, and
    the sources' agreement."""
    causes = find_run_causes(timeline)
    made_by = causes.behind.breaks
    removable = find_removable_breaks(timeline) if made_by else dict[BreakLine, Location]()
    behind = {compiled: removable[at] for compiled, at in made_by.items() if at in removable}
    judged = judge_recompiles(timeline, causes)
    return Analysis(timeline, causes, reconcile(timeline), judged, behind)


class AnalysisRule:
    """A rule that reads more than the Timeline: a decorator of the function that does. Called with
    a Timeline alone, as other rules are, it runs the stages for itself."""

    def __init__(self, find: Callable[[Analysis], Iterable[Finding]]) -> None:
        self._find = find

    def find(self, analysis: Analysis) -> Iterable[Finding]:
        """Find what the rule is about in an analysed run."""
        return self._find(analysis)

    def __call__(self, timeline: Timeline) -> Iterable[Finding]:
        return self.find(analyze_timeline(timeline))


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
    common: Callable[[Finding], Iterable[Hashable]] = lambda _: ("",)
    """What a finding is about: a cause explains only symptoms that share some of it. Where a run
    has thousands of both, no others are compared."""


def merge_symptoms(findings: list[Finding], absorption: Absorption) -> list[Finding]:
    """Merge each symptom into the finding that explains it; those name them in `also`. Symptoms
    that nothing explains come last, unless they are silent or have a cost of their own."""
    # Invariant: a symptom explains no other one, and a cause stays at its index: which rule found
    # what first makes no difference, and the rules' own order stays.
    symptoms = [
        n
        for n, finding in enumerate(findings)
        if finding.rule.startswith(absorption.symptom) and absorption.is_symptom(finding)
    ]
    apart = {*symptoms}
    causes: dict[Hashable, list[int]] = {}
    for n, finding in enumerate(findings):
        if n not in apart and finding.rule.startswith(absorption.cause):
            for part in absorption.common(finding):
                causes.setdefault(part, []).append(n)
    rest = dict(enumerate(findings))
    for n in symptoms:
        sharing = {at for part in absorption.common(findings[n]) for at in causes.get(part, ())}
        explaining = (at for at in sorted(sharing) if absorption.explains(rest[at], findings[n]))
        if (cause := next(explaining, None)) is not None:
            rest[cause] = _add_symptom(rest[cause], rest.pop(n), absorption)
    stays = absorption.silent or absorption.adds_cost
    unexplained = set[int]() if stays else apart & rest.keys()
    return [rest[n] for n in sorted(rest, key=lambda n: (n in unexplained, n))]


def _add_symptom(cause: Finding, symptom: Finding, absorption: Absorption) -> Finding:
    """Add a symptom to its cause, which takes over what is worse: severity, and cost where its own
    is not known."""
    about = (*cause.about, *symptom.about)
    if absorption.silent:
        return replace(cause, about=about)
    worse = min(cause.severity, symptom.severity, key=SEVERITIES.index)
    seconds = [finding.cost_s for finding in (cause, symptom) if finding.cost_s is not None]
    steps = tuple(sorted({*cause.steps, *symptom.steps}))
    return replace(
        cause,
        severity=cause.severity if absorption.keeps_severity else worse,
        cost_s=(sum(seconds) if absorption.adds_cost else seconds[0]) if seconds else None,
        steps=cause.steps if absorption.keeps_steps else steps,
        also=tuple(dict.fromkeys((*cause.also, symptom.rule))),
        about=about,
    )


def list_compile_ids(finding: Finding) -> Sequence[str]:
    """List the ids of the compiles that a finding names as its evidence."""
    return AnyEvidence.parse(finding.evidence).compile_ids
