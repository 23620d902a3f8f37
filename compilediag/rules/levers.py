"""Settings of torch that remove what a finding is about without an edit of the program: for those
who run code that they cannot change.

A setting stands here only where it was seen to work for that kind of value
(`tests/end_to_end/test_levers.py` follows each literally). What was tried without effect: dynamic
sources for floats, bools, strings and strides; `dynamic=True` for ints of modules and globals;
overriding `recompile_limit` for single frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.findings import CauseId, Finding
from compilediag.receipt.schema.compiles import CandidateRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.rules.breaks.changes import BREAKS, settings_of
from compilediag.rules.changes import OVERRIDES, SOURCES
from compilediag.rules.sizes import changes as sizes
from compilediag.rules.values import changes as values
from compilediag.timeline.timeline import Timeline

_EVERY_FRAME = "holds for every compiled function, which may run slower"
_EVERY_NAMESAKE = "holds for every compiled function with a variable of this name"


def with_levers(
    findings: Iterable[Finding], timeline: Timeline, causes: RunCauses
) -> list[Finding]:
    """The findings, each with the settings that remove it in the run's version of torch."""
    version = _torch_version(timeline)
    if version is None:
        return list(findings)
    groups = {group.id: group for of_code in causes.groups.values() for group in of_code}
    return [_with_levers(finding, groups, version) for finding in findings]


def _with_levers(finding: Finding, groups: Mapping[CauseId, Group], version: Version) -> Finding:
    if finding.rule.startswith(BREAKS):  # a recompile behind one is part of it, and goes with it
        found = [*settings_of(finding)]
    else:
        abouts = [about for about in finding.about if isinstance(about, CauseId)]
        own = [groups[about] for about in abouts if about in groups]
        found = [*_of_causes(own, version)]
    if finding.severity == "info" or GuardEvidence.of(finding.evidence).size_needed or not found:
        return finding  # a line that needs the number of a size needs it under any setting
    return replace(finding, fix=replace(finding.fix, candidates=tuple(dict.fromkeys(found))))


def _torch_version(timeline: Timeline) -> Version | None:
    """None where it is not known, or where processes ran different ones."""
    seen = {process.torch.torch for process in timeline.processes if process.torch is not None}
    try:
        return Version(Version(seen.pop()).base_version) if len(seen) == 1 else None
    except InvalidVersion:
        return None


def _of_causes(groups: Iterable[Group], version: Version) -> Iterator[CandidateRecord]:
    """Only what removes every cause of the finding: the sources of all of them in one variable."""
    members = [member for group in groups for member in group.parts]
    for lever in _LEVERS:
        values = [lever.value_of(member, version) for member in members]
        if values and all(value is not None for value in values):
            yield lever.candidate(dict.fromkeys(cast("list[str]", values)))


class _Lever(NamedTuple):
    """One setting, and the value with which it removes a group of causes, if it does."""

    value_of: Callable[[Group, Version], str | None]
    candidate: Callable[[Iterable[str]], CandidateRecord]


def _sources(values: Iterable[str]) -> CandidateRecord:
    return _environment(SOURCES, values, _EVERY_NAMESAKE)


def _override(values: Iterable[str]) -> CandidateRecord:
    return _environment(OVERRIDES, (f">=0:{value}" for value in values), _EVERY_FRAME)


def _environment(variable: str, values: Iterable[str], risk: str) -> CandidateRecord:
    return CandidateRecord("environment", variable, ",".join(values), risk)


_LEVERS = (
    _Lever(values.dynamic_int, _sources),
    _Lever(sizes.dynamic_size, _sources),
    _Lever(values.dynamic_float, _override),
    _Lever(values.unspecialised_int, _override),
)
"""In the order of preference."""
