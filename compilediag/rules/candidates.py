"""Settings and changes that may remove a finding, the cheapest first: variables of the environment,
options of torch, what is done at the call, and edits of the program.

Each was seen to work for its kind of value and version of torch (by `test_levers.py`); whether it
does here, a trial shows. Options that drop guards are none. Without effect: dynamic sources for
floats, bools, strings and strides; `dynamic=True` for ints of modules and globals;
`recompile_limit` for single frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace
from packaging.version import Version

from compilediag.diagnosis.causes.run_causes import RunCauses
from compilediag.diagnosis.findings import CauseId, Finding
from compilediag.receipt.schema.compiles import SETTING, CandidateRecord, FindingRecord, FixRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules import fixed_shapes, limits, tensors, values
from compilediag.rules.breaks import rule as breaks
from compilediag.rules.changes import SOURCES, ProgramChange, make_variable_change
from compilediag.rules.environment_variables import format_export
from compilediag.rules.facts import Facts
from compilediag.rules.fix_context import FixContext, make_context, parse_torch_version
from compilediag.rules.make_finding import replace_advice
from compilediag.rules.objects import FIRST_CALL
from compilediag.rules.sizes import changes as sizes
from compilediag.rules.sizes.growth import describe_growth
from compilediag.timeline.timeline import Timeline

# --- settings that need no edit of the program, for those who run code that they cannot change ---

_SOURCES: tuple[Callable[[Facts, Version], str | None], ...] = (
    values.find_dynamic_int,
    sizes.find_dynamic_size,
)
"""The sources that torch takes for dynamic, with which a setting removes a group of causes."""

_RISK = "holds for every compiled function with a variable of this name"


def add_candidates(
    findings: Iterable[Finding], timeline: Timeline, causes: RunCauses
) -> Iterator[Finding]:
    """Add to each finding the settings that remove it in the run's version of torch."""
    seen = {process.torch.torch for process in timeline.processes if process.torch is not None}
    version = parse_torch_version(seen.pop()) if len(seen) == 1 else None  # processes may differ
    groups = {group.id: group for of_code in causes.groups.values() for group in of_code}
    for finding in findings:
        if version is None or finding.severity == "info":
            yield finding
            continue
        if finding.rule.startswith(breaks.BREAKS):  # a recompile behind one goes with it
            yield breaks.add_capture_recipe(finding)
            continue
        about = [cause_id for cause_id in finding.about if isinstance(cause_id, CauseId)]
        own = [groups[cause_id] for cause_id in about if cause_id in groups]
        parts = [part for group in own for part in group.parts]
        listed: dict[str, None] = {}
        for find_sources in _SOURCES:
            found = [find_sources(Facts(part, timeline), version) for part in parts]
            known = [sources for sources in dict.fromkeys(found) if sources is not None]
            # Only what removes every cause: the sources of all of them in one variable.
            if known and None not in found:
                listed[",".join(known)] = None
        growth = describe_growth(Facts(own[0], timeline), version) if own else None
        # A line that needs the number of a size needs it under any setting.
        needed = GuardEvidence.parse(finding.evidence).size_needed
        if growth is not None and finding.fix.recipe is None:
            yield replace_advice(finding, growth)
        elif needed or not listed:
            yield finding
        else:
            yield replace(finding, fix=_add_sources(finding.fix, [*listed]))


def _add_sources(fix: FixRecord, listed: Sequence[str]) -> FixRecord:
    """Add values of the setting, and make the first the recipe where there is no other; one for
    what changes after the first call stands beside what that call is to do."""
    candidates = (CandidateRecord("environment", SOURCES, value, _RISK) for value in listed)
    fix = replace(fix, candidates=tuple(candidates))
    line = f"start it with: {format_export(SOURCES, listed[0])}"
    if fix.recipe == FIRST_CALL.recipe:
        return replace(fix, summary=f"{line}, and {fix.summary}", caveat=f"{fix.caveat}; {_RISK}")
    return fix if fix.recipe else replace(fix, summary=line, caveat=_RISK, recipe=SETTING)


# --- changes ------------------------------------------------------------------------------------

_MAKERS: tuple[Callable[[FixContext], Iterator[ProgramChange]], ...] = (
    sizes.propose_joint_sources,
    sizes.propose_size_changes,
    breaks.propose_logging_changes,
    breaks.propose_hinted_options,
    values.propose_tensor_arguments,
    tensors.propose_tensor_copies,
    sizes.propose_mark_edits,
    limits.propose_limit_changes,
    fixed_shapes.propose_bucket_changes,
)
"""In the order of trying."""


def list_changes(finding: FindingRecord, receipt: Receipt) -> tuple[ProgramChange, ...]:
    """List what may remove a finding in the receipt's version of torch, in the order of trying."""
    changes = [
        make_variable_change(candidate.setting, candidate.value, candidate.risk)
        for candidate in finding.fix.candidates
    ]
    context = make_context(finding, receipt)
    if context is not None:
        changes += [change for make in _MAKERS for change in make(context)]
    return tuple(dict.fromkeys(changes))
