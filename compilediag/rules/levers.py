"""Settings of torch that remove what a finding is about without an edit of the program: for those
who run code that they cannot change.

A setting stands here only where it was seen to work for that kind of value
(`tests/end_to_end/test_levers.py` follows each literally). What was tried without effect: dynamic
sources for floats, bools, strings and strides; `dynamic=True` for ints of modules and globals;
overriding `recompile_limit` for single frames.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from compilediag.diagnosis.causes.changed_sizes import changed_dimensions, constant_dimensions
from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.findings import CauseId, Finding
from compilediag.receipt.schema.compiles import CandidateRecord
from compilediag.receipt.schema.evidence import BreakEvidence, GuardEvidence
from compilediag.rules.facts import is_branched_on, is_constant
from compilediag.timeline.timeline import Timeline

_FIRST_WITH_OVERRIDES = Version("2.13")
"""TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS, dynamic dimensions of a source, and unbacked sources. The
versions between 2.7 and 2.13 were not tried."""

_DYNAMIC = "TORCH_COMPILE_DYNAMIC_SOURCES"
_OVERRIDES = "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS"

_INT = re.compile(r"-?\d+")
_FLOAT = re.compile(r"-?(?:\d+\.\d*|\d*\.\d+)(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
# torch removes blanks from the list, and splits it at commas.
_LISTABLE = re.compile(r"[LG]\[[^\s,:$`\\\"!]+")

_BREAKS = "CD2"
_OPTIMIZER = "CD116"
_NUMBERS = frozenset(("CD101", "CD104", "CD107", "CD109", "CD117"))

_HELD = (("CD103", "shape"), ("CD106", "parameter"))
"""What a module gets in another size: a tensor that grows, a parameter that is replaced."""

_STATIC = re.compile(r"\._(?:buffers|parameters)\[")
"""Their sizes are constants of every graph, whether the code needs that or not: torch's options
`force_nn_module_property_static_shapes` and `force_parameter_static_shapes`."""

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
    if finding.rule.startswith(_BREAKS):  # a recompile behind one is part of it, and goes with it
        found = [*_of_break(finding)]
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


def _dynamic_int(group: Group, version: Version) -> str | None:
    """torch takes an int of a listed source for dynamic from the first compile on. A branch on its
    value keeps a guard on it, which recompiles all the same."""
    source = group.first.source
    if group.code not in _NUMBERS or not _LISTABLE.fullmatch(source):
        return None
    if source.startswith("G") and version < _FIRST_WITH_OVERRIDES:
        return None
    if "cell_contents" in source:  # a captured int is reached as a local of the compiled function
        return None
    if group.code == "CD107" and is_constant(group):
        return None
    return source if _all_values(group, _INT) and not is_branched_on(group) else None


def _dynamic_size(group: Group, version: Version) -> str | None:
    """0 and 1 stay constants, and so does a size that the graph made one. A tensor of a module that
    grows where the code asks for its size is another branch while it does."""
    source = group.first.source
    changed = [
        item for cause in group.causes for item in changed_dimensions(cause.expected, cause.actual)
    ]
    dimensions = sorted({item.dimension for item in changed})
    held = (group.code, group.kind) in _HELD and not is_branched_on(group)
    held = held and version >= _FIRST_WITH_OVERRIDES
    passed = group.code == "CD105" and group.kind != "marking"
    if not dimensions or not (passed or held):
        return None
    small = any({item.before, item.after} & {"0", "1"} for item in changed)
    static = _STATIC.search(source) is not None
    if small or (not static and constant_dimensions(group.causes, group.recompiles)):
        return None
    if not _LISTABLE.fullmatch(source):
        return None
    if version < _FIRST_WITH_OVERRIDES:
        return source
    return ",".join(f"{source}:{dimension}" for dimension in dimensions)


def _dynamic_float(group: Group, version: Version) -> str | None:
    """Dynamic from the first compile on instead of from the second."""
    if group.code not in (*_NUMBERS, _OPTIMIZER) or version < _FIRST_WITH_OVERRIDES:
        return None
    works = _all_values(group, _FLOAT) and not is_branched_on(group)
    works = works and not (group.code == "CD107" and is_constant(group))
    return "assume_static_by_default=False" if works else None


def _unspecialised_int(group: Group, version: Version) -> str | None:
    if group.code not in ("CD104", "CD117") or version < _FIRST_WITH_OVERRIDES:
        return None
    works = _all_values(group, _INT) and len(group.values) > 1 and not is_branched_on(group)
    return "allow_unspec_int_on_nn_module=True" if works else None


def _all_values(group: Group, kind: re.Pattern[str]) -> bool:
    shown = [value for cause in group.causes for value in (cause.expected, cause.actual)]
    return all(value is not None and kind.fullmatch(value) for value in shown)


def _of_break(finding: Finding) -> Iterator[CandidateRecord]:
    """Where torch's own report of the break names the setting."""
    broken = BreakEvidence.of(finding.evidence)
    text = f"{broken.reason or ''} {broken.explanation or ''}"
    for mark, variable in _CAPTURES.items():
        if mark in text:
            yield _environment(variable, ["1"], "the code may need torch._check on the value")


_CAPTURES = {
    "capture_scalar_outputs": "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS",
    "Dynamic shape operator": "TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS",
}


def _sources(values: Iterable[str]) -> CandidateRecord:
    return _environment(_DYNAMIC, values, _EVERY_NAMESAKE)


def _override(values: Iterable[str]) -> CandidateRecord:
    return _environment(_OVERRIDES, (f">=0:{value}" for value in values), _EVERY_FRAME)


def _environment(variable: str, values: Iterable[str], risk: str) -> CandidateRecord:
    return CandidateRecord("environment", variable, ",".join(values), risk)


_LEVERS = (
    _Lever(_dynamic_int, _sources),
    _Lever(_dynamic_size, _sources),
    _Lever(_dynamic_float, _override),
    _Lever(_unspecialised_int, _override),
)
"""In the order of preference."""
