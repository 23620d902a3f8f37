"""What may be tried to remove a finding, the cheapest first: variables of the environment, options
of torch's configuration, what is done at the call, edits of the program.

A candidate stands here only where it was seen to work for that kind of cause and version of torch;
whether it works in this program is what a trial shows. Options that drop guards are none.

Findings that need each other share one variable: torch keeps two sizes that were equal in one
symbol or, where only one of them is dynamic and they must be equal, as a constant, so that the
batch of two arguments is dynamic only if both sources are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.case import FIRST_WITH_UNBACKED, Case, case_of
from compilediag.rules.changes import Change, export_line, joined
from compilediag.rules.fixed_shapes.changes import bucket_candidates
from compilediag.rules.limits.changes import limit_candidates
from compilediag.rules.objects.hooks import object_candidates
from compilediag.rules.objects.neutral_calls import neutral_call_candidates, one_flag_candidates
from compilediag.rules.options import (
    DYNAMO,
    OVERRIDES,
    SOURCES,
    branched_candidates,
    option_candidates,
    setting,
    variable,
)
from compilediag.rules.passed import passed_candidates
from compilediag.rules.sizes.changes import growing_source, mark_candidates, size_candidates
from compilediag.rules.values.filled import filled_candidates
from compilediag.rules.values.numbers import number_candidates

_RISK = "holds for every compiled function; torch supports it only in part"

_UNFAITHFUL = frozenset(
    ("suppress_errors", "enable_faithful_generator_behavior", "use_numpy_random_stream")
)
_UNFAITHFUL_PREFIXES = ("_", "debug_", "skip_", "fail_on_")
"""Options that silence errors, leave something out, or change what is computed."""

_READ_OUTSIDE = frozenset(("compiled_autograd",))
"""Read where no frame is compiled: overriding them for frames has no effect."""


def hint_candidates(case: Case) -> Iterator[Change]:
    """One change with each option that the report of the break wants set."""
    options = BreakEvidence.of(case.finding.evidence).options or {}
    offered = " ".join(item.setting for item in case.finding.fix.candidates)
    for name, value in options.items():
        unfaithful = name in _UNFAITHFUL or name.startswith(_UNFAITHFUL_PREFIXES)
        if value not in ("True", "False") or unfaithful or name.upper() in offered:
            continue
        if case.version < FIRST_WITH_UNBACKED or name in _READ_OUTSIDE:
            yield setting(DYNAMO, name, value == "True", _RISK)
        else:
            yield variable(OVERRIDES, f">=0:{name}={value}", _RISK)


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


_MAKERS: tuple[Callable[[Case], Iterator[Change]], ...] = (
    together_candidates,
    size_candidates,
    option_candidates,
    hint_candidates,
    passed_candidates,
    mark_candidates,
    number_candidates,
    filled_candidates,
    neutral_call_candidates,
    one_flag_candidates,
    object_candidates,
    branched_candidates,
    limit_candidates,
    bucket_candidates,
)
"""In the order of trying."""


def candidates_of(finding: FindingRecord, receipt: Receipt) -> tuple[Change, ...]:
    """What may remove a finding in the receipt's version of torch, in the order of trying."""
    found = [
        Change(
            "environment",
            export_line(item.setting, item.value),
            item.risk,
            variables=((item.setting, item.value),),
            left=1 if "allow_unspec_int" in item.value else 0,
        )
        for item in finding.fix.candidates
    ]
    case = case_of(finding, receipt)
    if case is not None:
        found += [change for make in _MAKERS for change in make(case)]
    return tuple(dict.fromkeys(found))
