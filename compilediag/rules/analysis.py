"""What has been concluded of a run before its rules: the causes, and whether the sources agree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from compilediag.diagnosis.causes.of_run import RunCauses, causes_in
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.reconcile import Agreement, reconcile
from compilediag.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Analysis:
    """A Timeline with the results of the stages that all rules share."""

    timeline: Timeline
    causes: RunCauses
    agreement: Agreement


def analysis_of(timeline: Timeline) -> Analysis:
    """Runs those stages."""
    return Analysis(timeline, causes_in(timeline), reconcile(timeline))


class AnalysisRule(ABC):
    """A rule that reads more than the Timeline. Called with a Timeline alone, as other rules are,
    it runs the stages for itself."""

    @abstractmethod
    def find(self, analysis: Analysis) -> Iterable[Finding]:
        """The findings of the rule."""

    def __call__(self, timeline: Timeline) -> Iterable[Finding]:
        return self.find(analysis_of(timeline))


class _FunctionRule(AnalysisRule):
    def __init__(self, find: Callable[[Analysis], Iterable[Finding]]) -> None:
        self._find = find

    def find(self, analysis: Analysis) -> Iterable[Finding]:
        return self._find(analysis)


def analysis_rule(find: Callable[[Analysis], Iterable[Finding]]) -> AnalysisRule:
    """Decorator: makes a rule of a function that reads an Analysis."""
    return _FunctionRule(find)
