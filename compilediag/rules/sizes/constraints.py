"""CD154: a size that was declared dynamic became a constant, or left the range it was given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.guards.size_limits import (
    SizeLimit,
    about,
    behind,
    fixing,
    limit_of,
    plain_size,
)
from compilediag.receipt.schema.evidence import AnyEvidence, BreakEvidence
from compilediag.rules.absorption import Absorption
from compilediag.rules.make_finding import make_finding
from compilediag.rules.sizes.lines import line_needed
from compilediag.timeline.ownership import ownership_of
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import Location, SizeGuard

_VIOLATED = re.compile(
    r"ConstraintViolationError|Constraints violated|Not all values of .{0,400}are valid because"
    r"|You marked .{0,400}as dynamic but"
    r"|in the specified range .{0,400}satisfy the generated guard",
    re.DOTALL,
)
_SOURCE = r"L\[[^\]\n]{1,200}\][^\s()=]{0,200}(?:\(\)\[\d{1,4}\])?"
_SIZE = re.compile(rf"(?:^|[\s(=]){_SOURCE}", re.MULTILINE)
_BULLET = re.compile(r"^ {2}- ", re.MULTILINE)
_CONSTANT = re.compile(r"constant \((-?\d{1,20})\)")
_GENERATED = re.compile(r"satisfy the generated guard\s+(.{1,1000}?)\.?$", re.MULTILINE)
_STACK_LINE = re.compile(r'^ {2}File "(.{1,1024}?)", line (\d{1,9}), in (\S{1,256})$', re.MULTILINE)
_SUGGESTED = re.compile(r"^Suggested fixes:\n((?: {2}\S.*\n?){1,8})", re.MULTILINE)
_GENERIC = "change this line so that it works for every size, or {unmark}"
_UNKNOWN = "{unmark}, or remove the line that makes the size a constant"


def find_violated_constraints(timeline: Timeline) -> Iterable[Finding]:
    """CD154: a size declared dynamic became a constant; torch raises and the run stops."""
    failed = [
        item
        for item in timeline.compiles
        if _VIOLATED.search(f"{item.fail_type or ''}: {item.fail_reason or ''}")
    ]
    alone = all(item in failed for item in timeline.compiles)
    for item in failed:
        guards = timeline.size_guards.get(item.id, ())
        yield from _violations(timeline, item, item.fail_reason or "", guards, alone=alone)
    for process in timeline.processes if not failed else ():
        text = process.ended.failure if process.ended else None
        if text and _VIOLATED.search(text):
            guards = _exported(timeline, process.index)
            yield from _violations(timeline, None, text, guards, alone=not timeline.compiles)


def _exported(timeline: Timeline, process: int) -> tuple[SizeGuard, ...]:
    """The conditions of the last export of a process: it is what raised."""
    found = [
        item.guards
        for item in timeline.guarded_sizes
        if item.process == process and not item.compile_id
    ]
    return found[-1] if found else ()


def _violations(
    timeline: Timeline,
    failed: Compile | None,
    text: str,
    guards: Sequence[SizeGuard],
    *,
    alone: bool,
) -> Iterator[Finding]:
    """One finding for each line that violates what was declared, in torch's order."""
    seen: set[object] = set()
    for part in _BULLET.split(text)[1:] or [text]:
        sizes = [plain_size(size.strip(" (=\n")) for size in _SIZE.findall(part)]
        guard = _guard_of(part, sizes, guards)
        known = [*sizes, *(map(plain_size, guard.fixed) if guard is not None else ())]
        size = next(iter(known), None)
        limit = limit_of(guard, timeline.user_roots) if guard is not None else None
        place = limit.place if limit is not None else _printed_place(part, timeline.user_roots)
        key = place if place is not None else size
        if key not in seen:
            seen.add(key)
            yield _violation(timeline, failed, text, part, size, limit, place, alone=alone)


def _guard_of(part: str, sizes: Sequence[str], guards: Sequence[SizeGuard]) -> SizeGuard | None:
    """The condition that one line of torch's message is about; None where several would do."""
    generated = _GENERATED.search(part)
    if generated is not None:
        return behind(guards, generated[1], None)
    found = [guard for size in sizes for guard in [fixing(guards, size)] if guard is not None]
    if found:
        return found[0]
    constants = [guard for guard in guards if guard.fixed]
    if not sizes and len(constants) == 1:  # an export names its Dim, not the size
        return constants[0]
    both = [guard for guard in guards if all(guard in about(guards, size) for size in sizes)]
    return both[0] if len(sizes) > 1 and len(both) == 1 else None


def _printed_place(part: str, user_roots: Sequence[str]) -> Location | None:
    """The user's line of the stack that torch 2.13 prints."""
    stack = [Location(file, int(line), name) for file, line, name in _STACK_LINE.findall(part)]
    own = [at for at in stack if ownership_of(at.file, user_roots) == "user"]
    return (own or stack or [None])[-1]


def _violation(
    timeline: Timeline,
    failed: Compile | None,
    text: str,
    part: str,
    size: str | None,
    limit: SizeLimit | None,
    place: Location | None,
    *,
    alone: bool,
) -> Finding:
    frame = failed.frame if failed else None
    constant = _CONSTANT.search(part)
    title = "a size declared dynamic became a constant"
    if constant is not None:
        title += f", {constant[1]}"
    elif limit is not None and limit.kind != "constant":
        title = "a size declared dynamic has to be " + _REQUIRED[limit.kind]
    return make_finding(
        timeline,
        "CD154",
        title,
        _fix(text, place),
        caveat=None
        if limit is not None
        else "with maybe_mark_dynamic the graph is valid for that one size",
        variable=size,
        location=place or frame,
        steps=(failed.step,) if failed else (),
        evidence={
            "message": text[:4096],
            **({"compile_ids": [failed.compile_id]} if failed else {}),
            **({"eager_frames": [[frame.file, frame.line]]} if frame else {}),
            **(line_needed(limit) if limit is not None else {}),
            "nothing_else": alone,
        },
        entered=failed,
    )


_REQUIRED = {
    "constant": "a constant",
    "divisibility": "a multiple",
    "range": "within a smaller range",
    "equal": "equal to another one",
}


def _fix(text: str, place: Location | None) -> str:
    suggested = _SUGGESTED.search(text)
    unmark = "use torch._dynamo.maybe_mark_dynamic"
    if suggested is not None:
        lines = "; ".join(line.strip() for line in suggested[1].splitlines())
        unmark = f"declare it as torch suggests ({lines})"
    return (_UNKNOWN if place is None else _GENERIC).format(unmark=unmark)


def _is_same_frame(cause: Finding, symptom: Finding) -> bool:
    frames = BreakEvidence.of(cause.evidence).eager_frames
    place = symptom.location
    return place is not None and frames == ((place.file, place.line),)


def _explains_all(cause: Finding, symptom: Finding) -> bool:
    """Nothing else was compiled, and what failed, failed for it."""
    alone = BreakEvidence.of(cause.evidence).nothing_else
    why = AnyEvidence.of(symptom.evidence).why
    return alone and why in ("failed", "eager", "ahead_of_time")


ABSORBS = (
    # A frame that failed for a violated constraint did not run at all.
    Absorption("CD904", "CD154", _is_same_frame),
    # It is why nothing was compiled.
    Absorption("CD901", "CD154", _explains_all),
)
