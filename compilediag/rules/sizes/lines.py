"""The line that needs the value of a size, and what helps there (CD105, CD118); a size that was
declared dynamic became a constant, or left the range it was given (CD154)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from compilediag.diagnosis.causes.cause_group import Group, find_changed_dims, find_changed_sizes
from compilediag.diagnosis.findings import Cause, Finding, make_place
from compilediag.diagnosis.guards.size_limits import (
    SIZE,
    SizeLimit,
    find_excluding_guard,
    find_fixing_guard,
    find_guard_behind,
    list_guards_on,
    locate_size_limit,
    simplify_source,
)
from compilediag.receipt.schema.evidence import AnyEvidence, BreakEvidence, GuardEvidence
from compilediag.rules.evidence import make_eager_absorption
from compilediag.rules.make_finding import Advice, format_place, make_finding, pick, replace_advice
from compilediag.rules.rule import Absorption
from compilediag.timeline.compiles import CompileId, Recompile
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import Location, SizeGuard

ANY_SIZE = Advice(
    "torch makes a graph for each size of {size}, because {line} {needs}, which no mark changes: "
    "{pad}, leave it where the sizes are few, or change the line"
)
TWO_SIDES = Advice(
    "torch makes a graph for each side of the branch of {line} on {size}: leave it where both are "
    "wanted; else decide by the size before the compiled call"
)

EACH_LINE = Advice(
    "torch guards on {size} for {line}: pad to a fixed size, leave it where the sizes are few, "
    "or change the line"
)

_NEEDS = {
    "loop": "loops over it",
    "number": "takes it as a number",
    "reshape": "reshapes by it",
    "operation": "calls an operator that needs the number",
}
"""Kinds of lines that make a size a number."""
_NO_LINE = ("zero_one", "duck_equal", "marking")
"""Kinds that no line of the code made: what torch takes for granted of sizes, and marks."""
_TITLES = {
    "constant": "a branch on the size takes its other side",
    "divisibility": "a dynamic size is no longer a multiple, or has become one",
    "range": "a dynamic size crossed a bound",
    "equal": "two sizes are no longer equal, or have become equal",
}


def add_size_line(finding: Finding, group: Group, timeline: Timeline) -> Finding:
    """Move a finding to the line that needs the value of its size, if that was recorded: a mark
    does not help there."""
    size, limit = next(_find_fixed_sizes(group, timeline), ("", None))
    if limit is None or not _has_line(finding):
        return finding
    finding = _move_to_line(finding, limit, timeline)
    if limit.place is None:
        return finding
    named = {"size": f"`{size}`", "line": _name_line(limit)}
    if limit.how != "branch" and (limit.kind != "constant" or limit.how not in _NEEDS):
        return replace_advice(finding, EACH_LINE.fill(**named))
    pad = re.search(r"pad to (?:.*: compilediag plan|[^;,]*)", finding.fix.summary)
    advice = TWO_SIDES if limit.how == "branch" else ANY_SIZE.fill(needs=_NEEDS[limit.how])
    pad_text = pad[0] if pad else "pad to a fixed size"
    return replace_advice(finding, advice.fill(pad=pad_text, **named))


def add_branch_line(finding: Finding, group: Group, timeline: Timeline) -> Finding:
    """Move a finding to the line of a condition that no longer holds, if that was recorded."""
    guards = (
        find_guard_behind(timeline.size_guards.get(key, ()), cause.guard, cause.location)
        for cause, recompile in group.members
        for key in _list_compiles(recompile)[1:]
    )
    guard = next((guard for guard in guards if guard is not None), None)
    if guard is None or not _has_line(finding):
        return finding
    limit = locate_size_limit(guard, timeline.user_roots)
    finding = _move_to_line(finding, limit, timeline)
    size, equals, _ = simplify_source(group.first.guard).rpartition(" == ")
    if limit.place is not None and limit.how in _NEEDS and equals and group.kind == "constant":
        names = {*SIZE.findall(size)}  # of one alone, each size is a number of its own
        size = names.pop() if len(names) == 1 else size.removeprefix("(").removesuffix(")")
        named = {"size": f"`{size}`", "line": _name_line(limit)}
        advice = ANY_SIZE.fill(needs=_NEEDS[limit.how], pad="pad to a fixed size", **named)
        return replace_advice(finding, advice)
    if limit.place is None or limit.how != "branch":
        return finding
    finding = replace(finding, title=_TITLES[limit.kind])
    advice = TWO_SIDES.fill(size=f"`{group.variable}`", line=_name_line(limit))
    return replace_advice(finding, advice)


def _name_line(limit: SizeLimit) -> str:
    """Name the line that needs the value, also in a package: a finding shows the call before it."""
    place = limit.inside
    if place is None or classify_ownership(place.file) == "torch":
        place = limit.place
    return format_place(place.file, place.line) if place is not None else "this line"


def _has_line(finding: Finding) -> bool:
    """True unless no line made the size a number."""
    kind = GuardEvidence.parse(finding.evidence).kind
    return finding.severity != "info" and kind not in _NO_LINE


def _move_to_line(finding: Finding, limit: SizeLimit, timeline: Timeline) -> Finding:
    """Move a finding to the line of what limits the size, where that is known."""
    finding = replace(finding, evidence={**finding.evidence, **_build_line_evidence(limit)})
    if limit.place is None:
        return finding
    owner = classify_ownership(limit.place.file, timeline.user_roots)
    return replace(finding, location=make_place(limit.place), ownership=owner)


def _build_line_evidence(limit: SizeLimit) -> dict[str, object]:
    """Build the evidence about the line."""
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


def _find_fixed_sizes(group: Group, timeline: Timeline) -> Iterator[tuple[str, SizeLimit]]:
    """Find changed sizes a graph made numbers, or whose two values it tells apart, and where."""
    for cause, recompile in group.members:
        # What a graph for a batch of one tells apart says nothing of other batches.
        alone = find_changed_sizes([(cause.expected, cause.actual)])[1]
        for size, before in _list_changed_sizes(cause):
            for key in _list_compiles(recompile):
                guards = timeline.size_guards.get(key, ())
                guard = find_fixing_guard(guards, size)
                if guard is None and key == recompile.id and before.isdigit() and not alone:
                    guard = find_excluding_guard(guards, size, int(before))
                if guard is not None:
                    yield size, locate_size_limit(guard, timeline.user_roots)


def needs_backend(group: Group, timeline: Timeline) -> bool:
    """True where the backend, after the code was traced, made a changed size a number."""
    return any(limit.how == "backend" for _, limit in _find_fixed_sizes(group, timeline))


def _list_changed_sizes(cause: Cause) -> Iterator[tuple[str, str]]:
    """List the sizes of a tensor that changed, with what they were."""
    tensor = simplify_source(cause.source) if cause.source else cause.variable
    changed = find_changed_dims(cause.expected, cause.actual)
    for change in changed:
        yield f"{tensor}.size()[{change.dimension}]", change.before
    # Of a recorded trace: "tensor 'x' size mismatch at index 0. expected 4, actual 5".
    printed = re.search(r" at index (\d+)", cause.guard)
    if printed is not None and not changed:
        yield f"{tensor}.size()[{printed[1]}]", cause.expected or ""


def _list_compiles(event: Recompile) -> list[CompileId]:
    """List the recompile's own compile, then the cache entries that did not fit."""
    entries = [entry.compile_id for entry in event.entries]
    entries += [reason.partition(":")[0].strip() for reason in event.reasons]
    others = [CompileId(event.process, event.epoch, name) for name in dict.fromkeys(entries)]
    return [event.id, *others]


# --- CD154 --------------------------------------------------------------------------------------

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
_REQUIRED = {
    "constant": "a constant",
    "divisibility": "a multiple",
    "range": "within a smaller range",
    "equal": "equal to another one",
}


def find_violated_constraints(timeline: Timeline) -> Iterable[Finding]:
    """CD154: a size declared dynamic became a constant; torch raises and the run stops."""
    failed = [
        event
        for event in timeline.compiles
        if _VIOLATED.search(f"{event.fail_type or ''}: {event.fail_reason or ''}")
    ]
    alone = all(event in failed for event in timeline.compiles)
    for event in failed:
        guards = timeline.size_guards.get(event.id, ())
        yield from _find_violations(timeline, event, event.fail_reason or "", guards, alone=alone)
    for process in timeline.processes if not failed else ():
        text = process.ended.failure if process.ended else None
        if text and _VIOLATED.search(text):
            # The conditions of the last export of a process: it is what raised.
            guards = ()
            for exported in timeline.guarded_sizes:
                if exported.process == process.index and not exported.compile_id:
                    guards = exported.guards
            yield from _find_violations(timeline, None, text, guards, alone=not timeline.compiles)


def _find_violations(
    timeline: Timeline,
    failed: Compile | None,
    text: str,
    guards: Sequence[SizeGuard],
    *,
    alone: bool,
) -> Iterator[Finding]:
    """Find one finding for each line that violates what was declared, in torch's order."""
    unmark = "use torch._dynamo.maybe_mark_dynamic"
    if suggested := _SUGGESTED.search(text):
        lines = "; ".join(line.strip() for line in suggested[1].splitlines())
        unmark = f"declare it as torch suggests ({lines})"
    frame = failed.frame if failed else None
    seen: set[object] = set()
    for part in _BULLET.split(text)[1:] or [text]:
        sizes = [simplify_source(size.strip(" (=\n")) for size in _SIZE.findall(part)]
        guard = _find_guard(part, sizes, guards)
        known = [*sizes, *(map(simplify_source, guard.fixed) if guard is not None else ())]
        size = next(iter(known), None)
        limit = locate_size_limit(guard, timeline.user_roots) if guard is not None else None
        place = limit.place if limit is not None else _find_printed_place(part, timeline.user_roots)
        key = place if place is not None else size
        if key in seen:
            continue
        seen.add(key)
        title = "a size declared dynamic became a constant"
        if constant := _CONSTANT.search(part):
            title += f", {constant[1]}"
        elif limit is not None and limit.kind != "constant":
            title = "a size declared dynamic has to be " + _REQUIRED[limit.kind]
        yield make_finding(
            timeline,
            "CD154",
            title,
            f"{unmark}, or remove the line that makes the size a constant"
            if place is None
            else f"change this line so that it works for every size, or {unmark}",
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
                **(_build_line_evidence(limit) if limit is not None else {}),
                "nothing_else": alone,
            },
            called_from=failed,
        )


def _find_guard(part: str, sizes: Sequence[str], guards: Sequence[SizeGuard]) -> SizeGuard | None:
    """Find the condition that one line of torch's message is about; None where several would do."""
    generated = _GENERATED.search(part)
    if generated is not None:
        return find_guard_behind(guards, generated[1], None)
    fixed = next(filter(None, (find_fixing_guard(guards, size) for size in sizes)), None)
    if fixed is not None:
        return fixed
    constants = [guard for guard in guards if guard.fixed]
    if not sizes and len(constants) == 1:  # an export names its Dim, not the size
        return constants[0]
    both = [
        guard for guard in guards if all(guard in list_guards_on(guards, size) for size in sizes)
    ]
    return both[0] if len(sizes) > 1 and len(both) == 1 else None


def _find_printed_place(part: str, user_roots: Sequence[str]) -> Location | None:
    """Find the user's line of the stack that torch 2.13 prints."""
    stack = [Location(file, int(line), name) for file, line, name in _STACK_LINE.findall(part)]
    own = [at for at in stack if classify_ownership(at.file, user_roots) == "user"]
    return (own or stack or [None])[-1]


def _is_cause_of_all(cause: Finding, symptom: Finding) -> bool:
    """True where nothing else was compiled, and what failed, failed for it."""
    alone = BreakEvidence.parse(cause.evidence).nothing_else
    why = AnyEvidence.parse(symptom.evidence).why
    return alone and why in ("failed", "eager", "ahead_of_time")


ABSORBS = (
    # A frame that failed for a violated constraint did not run at all.
    make_eager_absorption("CD154"),
    # It is why nothing was compiled.
    Absorption("CD901", "CD154", _is_cause_of_all),
)
