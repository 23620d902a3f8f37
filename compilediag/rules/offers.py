"""Settings and changes that may remove a finding, the cheapest first.

They are variables of the environment, options of torch's configuration, what is done at the call,
and edits of the program.

A setting or change stands in its family only where it was seen to work for that kind of value and
version of torch (`tests/end_to_end/test_levers.py` follows each setting); whether it works in this
program is what a trial shows. Options that drop guards are none. What was tried without effect:
dynamic sources for floats, bools, strings and strides; `dynamic=True` for ints of modules and
globals; overriding `recompile_limit` for single frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace
from packaging.version import Version

from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.causes.of_run import RunCauses
from compilediag.diagnosis.findings import CauseId, Finding
from compilediag.receipt.schema.compiles import CandidateRecord, FindingRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules import fixed_shapes, limits, modes, objects, tensors, values
from compilediag.rules.breaks import rule as breaks
from compilediag.rules.case import Case, case_of, torch_version
from compilediag.rules.changes import OVERRIDES, SOURCES, Change, variable
from compilediag.rules.sizes import changes as sizes
from compilediag.timeline.timeline import Timeline

# --- settings that need no edit of the program, for those who run code that they cannot change ---

_LEVERS: tuple[tuple[Callable[[Group, Version], str | None], str], ...] = (
    (values.dynamic_int, SOURCES),
    (sizes.dynamic_size, SOURCES),
    (values.dynamic_float, OVERRIDES),
    (values.unspecialised_int, OVERRIDES),
)
"""The value with which a setting removes a group of causes, if it does; in the order of
preference."""

_RISKS = {
    SOURCES: "holds for every compiled function with a variable of this name",
    OVERRIDES: "holds for every compiled function, which may run slower",
}


def with_levers(
    findings: Iterable[Finding], timeline: Timeline, causes: RunCauses
) -> Iterator[Finding]:
    """Add to each finding the settings that remove it in the run's version of torch."""
    seen = {process.torch.torch for process in timeline.processes if process.torch is not None}
    version = torch_version(seen.pop()) if len(seen) == 1 else None  # processes may differ
    groups = {group.id: group for of_code in causes.groups.values() for group in of_code}
    for finding in findings:
        found: list[CandidateRecord] = []
        if finding.rule.startswith(breaks.BREAKS):  # a recompile behind one goes with it
            found = [*breaks.settings_of(finding)]
        elif version is not None:
            about = [each for each in finding.about if isinstance(each, CauseId)]
            own = [groups[each] for each in about if each in groups]
            parts = [part for group in own for part in group.parts]
            for value_of, name in _LEVERS:
                values_of = [value_of(part, version) for part in parts]
                known = [value for value in dict.fromkeys(values_of) if value is not None]
                # Only what removes every cause: the sources of all of them in one variable.
                if known and None not in values_of:
                    frames = ">=0:" if name == OVERRIDES else ""
                    listed = ",".join(f"{frames}{value}" for value in known)
                    found.append(CandidateRecord("environment", name, listed, _RISKS[name]))
        # A line that needs the number of a size needs it under any setting.
        needed = GuardEvidence.of(finding.evidence).size_needed
        if version is None or finding.severity == "info" or needed or not found:
            yield finding
        else:
            fix = replace(finding.fix, candidates=tuple(dict.fromkeys(found)))
            yield replace(finding, fix=fix)


# --- changes ------------------------------------------------------------------------------------

_MAKERS: tuple[Callable[[Case], Iterator[Change]], ...] = (
    sizes.together_changes,
    sizes.size_changes,
    values.setting_changes,
    breaks.logging_changes,
    objects.late_hook_changes,
    breaks.hint_changes,
    values.passed_changes,
    tensors.tensor_changes,
    sizes.mark_changes,
    values.tensor_changes,
    values.filled_changes,
    objects.neutral_changes,
    values.flag_changes,
    modes.hyperparameter_changes,
    objects.hook_changes,
    values.branched_changes,
    limits.limit_changes,
    fixed_shapes.bucket_changes,
)
"""In the order of trying."""


def changes_for(finding: FindingRecord, receipt: Receipt) -> tuple[Change, ...]:
    """List what may remove a finding in the receipt's version of torch, in the order of trying."""
    found = [
        variable(item.setting, item.value, item.risk, left=int("allow_unspec_int" in item.value))
        for item in finding.fix.candidates
    ]
    case = case_of(finding, receipt)
    if case is not None:
        found += [change for make in _MAKERS for change in make(case)]
    return tuple(dict.fromkeys(found))
