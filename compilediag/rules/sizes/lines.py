"""CD105 and CD118: the line that needs the value of a size, and what helps there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from compilediag.diagnosis.causes.changed_sizes import changed_dimensions
from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.findings import Cause, Finding, place_of
from compilediag.diagnosis.guards.size_limits import (
    SizeLimit,
    behind,
    excluding,
    fixing,
    limit_of,
    plain_size,
)
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.rules.make_finding import Advice, pick
from compilediag.timeline.compiles import CompileId, Recompile
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.timeline import Timeline

_PADDING = re.compile(r"pad to [^;]*")
ANY_SIZE = Advice(
    "change this line so that it works for every {size}; or {pad}",
    "a mark does not help: this line needs the number",
)
EACH_SIZE = Advice("warm up each size of {size} before the timed steps", ANY_SIZE.caveat)
TWO_SIDES = Advice(
    "warm up one size for each side of the branch of this line, or decide by the size before the "
    "compiled call",
    "one graph for each side",
)
TWO_SIDES_OF_OTHERS = Advice(
    "warm up one size of {size} for each side of the branch of this line before the timed steps",
    TWO_SIDES.caveat,
)
"""In code that is not the program's no line can be changed."""

NEEDS_NUMBER = ("loop", "number", "reshape", "operation")
"""Kinds of lines that make a size a number."""
_NO_LINE = ("zero_one", "duck_equal", "marking")
"""Kinds that no line of the code made: what torch takes for granted of sizes, and marks."""
_TITLES = {
    "constant": "a branch on the size takes its other side",
    "divisibility": "a dynamic size is no longer a multiple, or has become one",
    "range": "a dynamic size crossed a bound",
    "equal": "two sizes are no longer equal, or have become equal",
}


def with_size_line(finding: Finding, group: Group, timeline: Timeline) -> Finding:
    """The finding at the line that needs the value of its size, if that was recorded: a mark does
    not help there."""
    found = _fixed_line(group, timeline)
    at = _at_line(finding, found, timeline)
    return finding if found is None or at is None else _of_size(at, *found)


def with_side_line(finding: Finding, group: Group, timeline: Timeline) -> Finding:
    """The finding at the line of a condition that no longer holds, if that was recorded."""
    found = _line(group, timeline)
    at = _at_line(finding, found, timeline)
    return finding if found is None or at is None else _of_side(at, found[1])


def _at_line(
    finding: Finding, found: tuple[str, SizeLimit] | None, timeline: Timeline
) -> Finding | None:
    """None where no line made the size a number, or none is known."""
    plain = finding.severity == "info" or GuardEvidence.of(finding.evidence).kind in _NO_LINE
    if found is None or plain:
        return None
    _, limit = found
    finding = replace(finding, evidence={**finding.evidence, **line_needed(limit)})
    if limit.place is None:
        return finding
    owner = ownership_of(limit.place.file, timeline.user_roots)
    return replace(finding, location=place_of(limit.place), ownership=owner)


def line_needed(limit: SizeLimit) -> dict[str, object]:
    """The line as evidence."""
    return {
        "size_needed": {
            "by": limit.how,
            "kind": limit.kind,
            "condition": limit.condition,
            "text": limit.text,
            **(pick(limit.place, "file", "line", "function") if limit.place else {}),
            **({"inside": pick(limit.inside, "file", "line", "function")} if limit.inside else {}),
        }
    }


def _of_size(finding: Finding, size: str, limit: SizeLimit) -> Finding:
    if limit.place is None:
        return finding
    own = finding.ownership == "user"
    if limit.how == "branch":
        advice = TWO_SIDES if own else TWO_SIDES_OF_OTHERS
    elif limit.kind == "constant" and limit.how in NEEDS_NUMBER:
        advice = ANY_SIZE if own else EACH_SIZE
    else:
        return finding
    padding = _PADDING.search(finding.fix.summary)
    summary, caveat = advice.filled(
        size=f"`{size}`", pad=padding[0] if padding else "pad to a fixed size"
    )
    return replace(finding, fix=replace(finding.fix, summary=summary, caveat=caveat))


def _of_side(finding: Finding, limit: SizeLimit) -> Finding:
    if limit.how != "branch" or limit.place is None:
        return finding
    summary, caveat = TWO_SIDES
    fix = replace(finding.fix, summary=summary, caveat=caveat)
    return replace(finding, title=_TITLES[limit.kind], fix=fix)


def _fixed_line(group: Group, timeline: Timeline) -> tuple[str, SizeLimit] | None:
    """The line that made a changed size a number in some graph, or that tells its two sizes
    apart."""
    for cause, recompile in _members(group):
        for size, before in _changed_sizes(cause):
            for key in _compiles_of(recompile):
                guards = timeline.size_guards.get(key, ())
                guard = fixing(guards, size)
                if guard is None and key == recompile.id and before.isdigit():
                    guard = excluding(guards, size, int(before))
                if guard is not None:
                    return size, limit_of(guard, timeline.user_roots)
    return None


def _line(group: Group, timeline: Timeline) -> tuple[str, SizeLimit] | None:
    """The line of a condition that no longer holds."""
    for cause, recompile in _members(group):
        for key in _compiles_of(recompile)[1:]:
            guards = timeline.size_guards.get(key, ())
            guard = behind(guards, cause.guard, cause.location)
            if guard is not None:
                return cause.variable, limit_of(guard, timeline.user_roots)
    return None


def _members(group: Group) -> Iterator[tuple[Cause, Recompile]]:
    for each in (group, *group.together):
        yield from zip(each.causes, each.recompiles, strict=True)


def _changed_sizes(cause: Cause) -> Iterator[tuple[str, str]]:
    """The sizes of a tensor that changed, with what they were."""
    tensor = plain_size(cause.source) if cause.source else cause.variable
    for changed in changed_dimensions(cause.expected, cause.actual):
        yield f"{tensor}.size()[{changed.dimension}]", changed.before
    if cause.guard and not changed_dimensions(cause.expected, cause.actual):
        yield from _printed_size(tensor, cause)


def _printed_size(tensor: str, cause: Cause) -> Iterator[tuple[str, str]]:
    """Of a recorded trace: "tensor 'x' size mismatch at index 0. expected 4, actual 5"."""
    _, found, index = cause.guard.partition(" at index ")
    dimension = index.partition(".")[0]
    if found and dimension.isdigit():
        yield f"{tensor}.size()[{dimension}]", cause.expected or ""


def _compiles_of(recompile: Recompile) -> list[CompileId]:
    """The recompile's own compile, then the cache entries that did not fit."""
    entries = [entry.compile_id for entry in recompile.entries]
    entries += [reason.partition(":")[0].strip() for reason in recompile.reasons]
    others = [
        CompileId(recompile.process, recompile.epoch, name) for name in dict.fromkeys(entries)
    ]
    return [recompile.id, *others]
