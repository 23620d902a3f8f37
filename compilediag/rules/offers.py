"""What may be tried to remove a finding, the cheapest first: variables of the environment, options
of torch's configuration, what is done at the call, edits of the program; and why nothing can be.

A change stands in its family only where it was seen to work for that kind of cause and version of
torch; whether it works in this program is what a trial shows. Options that drop guards are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules import modes, tensors
from compilediag.rules.breaks import changes as breaks
from compilediag.rules.case import Case, case_of
from compilediag.rules.changes import Change
from compilediag.rules.fixed_shapes.changes import bucket_changes
from compilediag.rules.limits import changes as limits
from compilediag.rules.objects import changes as objects
from compilediag.rules.sizes import changes as sizes
from compilediag.rules.values import changes as values
from compilediag.rules.variables import export_line

_MAKERS: tuple[Callable[[Case], Iterator[Change]], ...] = (
    sizes.together_changes,
    sizes.size_changes,
    values.setting_changes,
    breaks.logging_changes,
    objects.late_hook_changes,
    breaks.hint_changes,
    objects.distinct_changes,
    values.passed_changes,
    tensors.tensor_changes,
    modes.view_changes,
    breaks.passed_changes,
    sizes.mark_changes,
    values.tensor_changes,
    values.filled_changes,
    objects.neutral_changes,
    values.flag_changes,
    modes.hyperparameter_changes,
    objects.hook_changes,
    values.branched_changes,
    limits.limit_changes,
    bucket_changes,
)
"""In the order of trying."""

_EVIDENCE = "the evidence is incomplete: a change could not be judged by it"
_CACHE = "about the caches between starts: a trial has empty caches"
_WHY: Mapping[str, str] = {
    **values.WHY,
    **objects.WHY,
    **tensors.WHY,
    **sizes.WHY,
    **modes.WHY,
    **limits.WHY,
    **breaks.WHY,
    "CD301": breaks.REWRITE,
    "CD302": "a compile has to happen once; an earlier call would be one more call in the program",
    "CD303": "what is slow in it has its own finding",
    "CD304": "the cause of the slow steps has its own finding",
    "CD306": "whether the batch of an earlier step is still in use nothing shows",
    "CD307": "loading data is not compiled code; workers save time, which no count shows",
    "CD308": "the order in which parts of the program run is the author's decision",
    "CD406": "the function must be told which rows are real",
    "CD408": "which rows are computed again is part of the algorithm",
    "CD409": "a different number of rows per call leaves no calls to compare",
    "CD611": "about what torch caches between starts: a trial has empty caches",
    "CD613": _CACHE,
    "CD614": _CACHE,
    "CD621": "which values are guarded follows from what the code reads",
    "CD641": "about several ranks: trials run the program as it was started",
    "CD901": "nothing was compiled for a reason outside the source, or on purpose",
    "CD902": _EVIDENCE,
    "CD903": _EVIDENCE,
    "CD904": "the stance, or code that torch never compiles, is the author's decision",
}

_NOT_OF_THE_PROGRAM = (_EVIDENCE, _CACHE, _WHY["CD641"], _WHY["CD901"])
"""About compile caches on the machine, other ranks, what was meant to be compiled ahead of time,
and what was recorded."""


def changes_for(finding: FindingRecord, receipt: Receipt) -> tuple[Change, ...]:
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


def is_of_the_environment(rule: str) -> bool:
    """Whether what has no change is about something other than the program's own code."""
    return _WHY.get(rule) in _NOT_OF_THE_PROGRAM


def why_unchangeable(rule: str) -> str | None:
    """Why a finding of a rule can have no change; None for rules whose findings always have
    one where the program's text has the usual form."""
    return _WHY.get(rule)
