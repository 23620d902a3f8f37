"""The sources of several findings in one variable, for findings that need each other.

Torch keeps two sizes that were equal in one symbol or, where only one of them is dynamic and they
must be equal, as a constant: the batch of two arguments is dynamic only if both sources are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compilediag.fixes.candidates.case import Case
from compilediag.fixes.candidates.options import SOURCES, variable
from compilediag.fixes.candidates.sizes import growing_source
from compilediag.fixes.changes import Change
from compilediag.fixes.environment import joined
from compilediag.receipt.schema.compiles import FindingRecord

_OF_SEVERAL = ("CD118", "CD120")
"""Rules whose findings name no source of their own: what two sizes have to do with each other, and
known values that met."""

_EVERY_NAMESAKE = "holds for every compiled function with variables of these names"


def together_candidates(case: Case) -> Iterator[Change]:
    """Every dynamic source of the findings of its frames at once."""
    own = _listed(case.finding)
    if not own and growing_source(case) is None and case.finding.rule not in _OF_SEVERAL:
        return
    found = [*_beside(case)]
    grows = [source for each in found if (source := growing_source(replace(case, finding=each)))]
    every = [*grows, *(value for finding in found for value in _listed(finding))]
    value = joined((SOURCES, item) for item in every).get(SOURCES, "")
    if not value or set(value.split(",")) == {item for each in own for item in each.split(",")}:
        return
    yield variable(SOURCES, value, _EVERY_NAMESAKE, left=int(bool(grows)))


def _beside(case: Case) -> Iterator[FindingRecord]:
    """The findings of the frames that this one recompiled, itself among them."""
    frames = {event.frame for event in case.compiles}
    about = {
        cause.finding
        for event in case.receipt.compile.events
        if event.frame in frames
        for cause in event.causes
    }
    for finding in case.receipt.findings:
        if finding.id in about and finding.severity != "info":
            yield finding


def _listed(finding: FindingRecord) -> list[str]:
    return [item.value for item in finding.fix.candidates if item.setting == SOURCES]
