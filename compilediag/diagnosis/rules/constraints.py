"""CD154: a size that was declared dynamic became a constant."""

from __future__ import annotations

import re
from collections.abc import Iterable

from compilediag.diagnosis.absorption import Absorption
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.rules.make_finding import make_finding
from compilediag.timeline.timeline import Compile, Timeline

_VIOLATED = re.compile(
    r"ConstraintViolationError|Constraints violated|Not all values of .{0,400}are valid because"
    r"|You marked .{0,400}as dynamic but"
    r"|in the specified range .{0,400}satisfy the generated guard",
    re.DOTALL,
)
_VIOLATED_SOURCE = re.compile(
    r"(?:You marked |because |RelaxedUnspecConstraint\(|Not all values of )"
    r"(L\[[^\]\n]{1,200}\](?:[^\s()=]{0,200}\(\)\[\d{1,4}\])?)"
)


def find_violated_constraints(timeline: Timeline) -> Iterable[Finding]:
    """CD154: a size declared dynamic became a constant; torch raises and the run stops."""
    failed = [
        item
        for item in timeline.compiles
        if _VIOLATED.search(f"{item.fail_type or ''}: {item.fail_reason or ''}")
    ]
    for item in failed:
        yield _violation(timeline, item, item.fail_reason or "")
    for process in timeline.processes if not failed else ():
        text = process.ended.failure if process.ended else None
        if text and _VIOLATED.search(text):
            yield _violation(timeline, None, text)


def _violation(timeline: Timeline, failed: Compile | None, text: str) -> Finding:
    source = _VIOLATED_SOURCE.search(text)
    return make_finding(
        timeline,
        "CD154",
        "a size declared dynamic became a constant",
        "use torch._dynamo.maybe_mark_dynamic, or remove the line that makes the size a constant",
        caveat="with maybe_mark_dynamic the graph is valid for that one size",
        variable=source[1] if source else None,
        location=failed.frame if failed else None,
        steps=(failed.step,) if failed else (),
        evidence={"message": text[:4096]},
    )


def _is_same_frame(cause: Finding, symptom: Finding) -> bool:
    return cause.location == symptom.location


ABSORBS = (
    # A frame that failed for a violated constraint did not run at all.
    Absorption("CD904", "CD154", _is_same_frame),
)
