"""CD153: compiled autograd captured its backward graph again."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Finding, Fix, Severity
from compilediag.diagnosis.ownership import ownership_of
from compilediag.timeline.timeline import Timeline

_AUTOGRAD_MISS = "Cache miss due to"


def find_autograd_recaptures(timeline: Timeline) -> Iterable[Finding]:
    """CD153: compiled autograd compiled a backward graph again. Once, in the second step, is
    normal: gradients exist then."""
    captures = [
        item
        for item in timeline.compiles
        if item.compile_id.startswith("!") and item.forward and item.guarded
    ]
    misses = [item for item in timeline.warnings if _AUTOGRAD_MISS in item.text]
    again = captures[1:]
    if not again and len(misses) < 2:
        return
    steps = tuple(dict.fromkeys(item.step for item in (again or misses)))
    severity: Severity = "info" if len(again) < 2 and len(misses) < 3 else "warning"
    # The captured graph is generated code: a line of it leads nowhere.
    place = next((item.frame for item in again if item.frame.file[:1] not in ("", "<")), None)
    yield Finding(
        rule="CD153",
        slug=info("CD153").slug,
        severity=severity,
        confidence="exact" if again else "text",
        family=info("CD153").family,
        variable=None,
        title=f"compiled autograd compiled its backward graph {max(len(captures), 1)} times",
        location=place,
        ownership="user" if place is None else ownership_of(place.file, timeline.user_roots),
        count=len(again) or len(misses),
        steps=steps,
        cost_s=sum(item.seconds for item in again) if again else None,
        fix=Fix(
            summary="warm up two whole steps; keep shapes and the set of autograd nodes constant",
            how=info("CD153").how,
            caveat="the second step captures once more, because the gradients exist by then",
        ),
        evidence={
            "compile_ids": [item.compile_id for item in captures],
            "misses": [item.text[:400] for item in misses[:8]],
        },
    )
