"""CD154: a size that was declared dynamic became a constant."""

from __future__ import annotations

import re
from collections.abc import Iterable

from compilediag.diagnosis.absorption import Absorption
from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Finding, Fix, Ownership
from compilediag.diagnosis.ownership import ownership_of
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

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
    seen: set[str] = set()
    for item in timeline.compiles:
        if item.fail_type is None and item.fail_reason is None:
            continue
        text = f"{item.fail_type or ''}: {item.fail_reason or ''}"
        if item.fail_type != "ConstraintViolationError" and not _VIOLATED.search(text):
            continue
        seen.add(item.compile_id)
        yield _violation(item.frame, item.step, item.fail_reason or "", timeline.user_roots)
    failures = [p.ended.failure for p in timeline.processes if p.ended and p.ended.failure]
    if not seen:
        for failure in failures:
            if _VIOLATED.search(failure):
                yield _violation(None, None, failure, timeline.user_roots)


def _violation(
    place: Location | None, step: int | None, text: str, user_roots: tuple[str, ...]
) -> Finding:
    source = _VIOLATED_SOURCE.search(text)
    owner: Ownership = "user" if place is None else ownership_of(place.file, user_roots)
    return Finding(
        rule="CD154",
        slug=info("CD154").slug,
        severity="error",
        confidence="exact",
        family=info("CD154").family,
        variable=source[1] if source else None,
        title="a size declared dynamic became a constant",
        location=place,
        ownership=owner,
        count=1,
        steps=() if step is None else (step,),
        cost_s=None,
        fix=Fix(
            summary="use torch._dynamo.maybe_mark_dynamic, or remove the line that makes the size "
            "a constant",
            how=info("CD154").how,
            caveat="with maybe_mark_dynamic the graph is valid for that one size",
        ),
        evidence={"message": text[:4096]},
    )


def _is_same_frame(cause: Finding, symptom: Finding) -> bool:
    return cause.location == symptom.location


ABSORBS = (
    # A frame that failed for a violated constraint did not run at all.
    Absorption("CD904", "CD154", _is_same_frame),
)
