"""What may be tried to remove a finding, the cheapest first: variables of the environment, options
of torch's configuration, what is done at the call, edits of the program.

A candidate stands here only where it was seen to work for that kind of cause and version of torch;
whether it works in this program is what a trial shows. Options that drop guards are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compilediag.fixes.candidates.buckets import bucket_candidates
from compilediag.fixes.candidates.case import Case, case_of
from compilediag.fixes.candidates.filled import filled_candidates
from compilediag.fixes.candidates.hints import hint_candidates
from compilediag.fixes.candidates.limits import limit_candidates
from compilediag.fixes.candidates.neutral_calls import neutral_call_candidates
from compilediag.fixes.candidates.numbers import number_candidates
from compilediag.fixes.candidates.objects import object_candidates
from compilediag.fixes.candidates.one_flag import one_flag_candidates
from compilediag.fixes.candidates.options import branched_candidates, option_candidates
from compilediag.fixes.candidates.passed import passed_candidates
from compilediag.fixes.candidates.sizes import mark_candidates, size_candidates
from compilediag.fixes.candidates.together import together_candidates
from compilediag.fixes.changes import Change
from compilediag.fixes.environment import export_line
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt

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
