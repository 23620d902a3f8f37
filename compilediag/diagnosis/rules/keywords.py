"""CD108 of `**kwargs`: which keyword some calls pass and others do not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from compilediag.diagnosis.absorption import compile_ids
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.rules.recompiles import Wording
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import UserCall

KEYWORD = Wording(
    "keyword argument passed in some calls",
    "warm up calls with and without {keywords}; or pass a value of one type and shape at every "
    "call, a neutral one where it has no effect",
    "one graph per set of keywords",
)
_MEMBER = re.compile(r"'(?P<key>\w+)' (?:absent|present)")
_COUNT = re.compile(r"(?P<count>\d{1,6}) keys?")


def with_keywords(finding: Finding, timeline: Timeline) -> Finding:
    """CD108 in the words of its keywords, where the calls show that the container is `**kwargs` and
    which keywords differ."""
    if finding.parts or finding.variable is None:
        return finding
    found: set[str] = set()
    for before, after in GuardEvidence.of(finding.evidence).values:
        named = set(_named(finding, timeline, before or "", after or ""))
        if not named:
            return finding
        found |= named
    if not found:
        return finding
    shown = ", ".join(f"`{keyword}`" for keyword in sorted(found))
    summary = KEYWORD.fix.format(keywords=shown)
    fix = replace(finding.fix, summary=summary, caveat=KEYWORD.caveat)
    return replace(finding, title=f"{KEYWORD.title}: {shown}", fix=fix)


def _named(finding: Finding, timeline: Timeline, before: str, after: str) -> Iterator[str]:
    """The keywords of one change of the container: its own text names one, or the calls of the two
    compiles differ by as many as were counted."""
    calls = list(_calls(finding, timeline))
    member = _MEMBER.fullmatch(before) or _MEMBER.fullmatch(after)
    if member is not None:
        if any(_keywords(call, finding.variable) for pair in calls for call in pair):
            yield member["key"]
        return
    counts = [_COUNT.fullmatch(text) for text in (before, after)]
    for earlier, later in calls:
        sets = _keywords(earlier, finding.variable), _keywords(later, finding.variable)
        if [str(len(each)) for each in sets] == [found and found["count"] for found in counts]:
            yield from sets[0] ^ sets[1]
            return


def _calls(finding: Finding, timeline: Timeline) -> Iterator[tuple[UserCall, UserCall]]:
    """The calls that compiled an entry that did not fit, and that compiled again."""
    ids = compile_ids(finding)
    compiles = {item.id: item for item in timeline.compiles}
    for recompile in timeline.recompiles:
        if recompile.compile_id in ids and recompile.entered_at is not None:
            for entry in recompile.entries:
                missed = compiles.get(_id_of(recompile, entry.compile_id))
                if missed is not None and missed.entered_at is not None:
                    yield missed.entered_at, recompile.entered_at


def _id_of(recompile: Recompile, compile_id: str) -> CompileId:
    return CompileId(recompile.process, recompile.epoch, compile_id)


def _keywords(call: UserCall, variable: str | None) -> set[str]:
    """What a call passes by name into `**variable`."""
    opening = f"{variable}['"
    return {
        parameter.removeprefix(opening).removesuffix("']")
        for parameter, _ in call.arguments
        if parameter.startswith(opening)
    }
