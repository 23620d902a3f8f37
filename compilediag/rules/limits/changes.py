"""Frames at the recompile limit, or near it: a limit that is enough, or one for each object.

How many variants a program has is not known at the limit. The first trial allows many; what is
offered is the number that it needed. Variables of the environment have no effect on the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from compilediag.diagnosis.codes import SHARED_CODE
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.case import Case
from compilediag.rules.changes import DYNAMO, Change
from compilediag.rules.limits.rule import DEFAULT_LIMIT
from compilediag_harness.wire import CompileOption, SettingChange

MANY = 256
"""Variants of the first trial: `accumulated_recompile_limit`, which holds in any case."""

_OPTION = "recompile_limit"
_EACH = "each variant is a compile; each new value is one more, up to the limit"
_OWN = "each compiled object has its own graphs: none is shared, and each is compiled"


def limit_changes(case: Case) -> Iterator[Change]:
    """What keeps a frame from running eager at the limit."""
    if case.finding.rule == "CD152":
        yield from _isolated(case)
        yield from _raised(case, MANY, searches=True)
    elif case.finding.rule == "CD151":
        yield from _isolated(case)
        yield from _combined(case)


def _combined(case: Case) -> Iterator[Change]:
    """Near the limit: every combination of the values seen, and room before the next warning."""
    evidence = GuardEvidence.of(case.finding.evidence)
    used, limit, combinations = evidence.variants, evidence.limit, evidence.combinations or 0
    if used is None or limit is None:
        return
    needed = max(combinations, used * 4 // 3 + 1)
    if limit < combinations and needed <= MANY:
        yield from _raised(case, needed, searches=False)


def _isolated(case: Case) -> Iterator[Change]:
    """Only where several compiled objects share the code: in one object nothing is shared."""
    known = GuardEvidence.of(case.finding.evidence).causes
    causes = known or [other.rule for other in case.receipt.findings]
    shared = bool(SHARED_CODE.intersection(causes))
    if case.has_compile_keywords and shared:
        yield Change(
            "call",
            "torch.compile(..., isolate_recompiles=True)",
            _OWN,
            options=(CompileOption("isolate_recompiles", True),),
            unlimits=True,
        )


def _raised(case: Case, number: int, *, searches: bool) -> Iterator[Change]:
    """In the configuration; where the program sets that itself, at `torch.compile`."""
    setting = SettingChange(DYNAMO, _OPTION, number)
    made = Change("configuration", "", _EACH, settings=(setting,), unlimits=True, searches=searches)
    is_set = GuardEvidence.of(case.finding.evidence).limit not in (None, DEFAULT_LIMIT)
    if is_set and case.has_compile_keywords:
        option = CompileOption(_OPTION, number)
        made = replace(made, kind="call", settings=(), options=(option,))
    yield _worded(made, number)


def _worded(change: Change, number: int) -> Change:
    where = f"{DYNAMO}.{_OPTION} = {number}"
    line = where if change.settings else f"torch.compile(..., {_OPTION}={number})"
    return replace(change, line=f"{line}  # as many as are needed" if change.searches else line)


def sufficient(change: Change, receipt: Receipt) -> Change:
    """The change with the number of variants that a run with it needed."""
    number = max((item.headroom.variants for item in receipt.compile.frames_detail), default=1)
    enough = replace(
        change,
        searches=False,
        settings=tuple(replace(item, value=number) for item in change.settings),
        options=tuple(replace(item, value=number) for item in change.options),
    )
    return _worded(enough, number)


WHY: Mapping[str, str] = {
    "CD120": "none of the values that met has a change of its own",
    "CD150": "no call has compiled it again yet: there is no recompile to remove",
    "CD151": "each variant is needed, and no limit is reached",
    "CD152": "new variants appear without end",
}
"""Why no change can be tried, where there is none."""
