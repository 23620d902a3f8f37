"""CD120: values that were each compiled for before, and not with one another; with how many
combinations there may be.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.causes.recompile import COMBINATION
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.analysis import Analysis, AnalysisRule
from compilediag.rules.limits.rule import values_seen
from compilediag.rules.make_finding import Advice
from compilediag.rules.recompiles import RecompileRule, Told

COMBINATIONS = Advice(
    "warm up every combination of them that the timed steps have", "one graph per combination"
)


def _told(_: Group) -> Told:
    return "new combination of known values", COMBINATIONS


class CombinationRule(AnalysisRule):
    """The findings of the code, with the number of combinations of the values that were seen."""

    _rule = RecompileRule(COMBINATION, _told)

    def find(self, analysis: Analysis) -> Iterable[Finding]:
        groups = analysis.causes.groups.get(COMBINATION, ())
        for group, found in zip(groups, self._rule.find(analysis), strict=True):
            yield _with_forecast(found, group, analysis)


def _with_forecast(finding: Finding, group: Group, analysis: Analysis) -> Finding:
    """The values that met, those of each part in the recompiles of the frame, and how many
    combinations these make."""
    parts = group.first.parts
    often = Counter(part.variable for part in parts)
    frame = group.recompiles[0].frame
    again = [item for item in analysis.timeline.counted_recompiles if item.frame == frame]
    values = values_seen(again, analysis.causes)
    # Values of a tensor's size and of its dtype are not kept apart.
    seen = {name: sorted(values[name]) for name in often if often[name] == 1 and name in values}
    found = {
        **finding.evidence,
        "met": list(dict.fromkeys(cause.actual for cause in group.causes)),
        "parts": [f"{part.rule} {part.variable}" for part in parts],
        "values_seen": seen,
    }
    if len(seen) == len(parts):
        found["combinations"] = math.prod(map(len, seen.values()))
    return replace(finding, evidence=found)


RULES: tuple[Rule, ...] = (CombinationRule(),)
