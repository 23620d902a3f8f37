"""CD153: compiled autograd captured its backward graph again."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.diagnosis.findings import Finding
from compilediag.rules.make_finding import make_finding
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
    yield make_finding(
        timeline,
        "CD153",
        f"compiled autograd compiled its backward graph {max(len(captures), 1)} times",
        "warm up two whole steps; keep shapes and the set of autograd nodes constant",
        caveat="the second step captures once more, because the gradients exist by then",
        severity="info" if len(again) < 2 and len(misses) < 3 else "warning",
        confidence="exact" if again else "text",
        # The captured graph is generated code: a line of it leads nowhere.
        location=next((item.frame for item in again if item.frame.file[:1] not in ("", "<")), None),
        count=len(again) or len(misses),
        steps=(item.step for item in (again or misses)),
        cost_s=sum(item.seconds for item in again) if again else None,
        evidence={
            "compile_ids": [item.compile_id for item in captures],
            "misses": [item.text[:400] for item in misses[:8]],
        },
        # the program's call of backward
        entered=next((item for item in again if item.entered_at or item.entered_from), None),
    )
