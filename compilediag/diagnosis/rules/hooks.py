"""Hooks and methods that changed after the compile, which no guard sees (CD119)."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.diagnosis.findings import Finding, Rule
from compilediag.diagnosis.rules.make_finding import make_finding, pick
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import UnguardedChanged

_NOUNS = {
    "forward_hook": "forward hook",
    "forward_pre_hook": "forward pre-hook",
    "class_method": "method of the class",
    "instance_method": "method of the instance",
}


def unguarded_change(timeline: Timeline) -> Iterable[Finding]:
    """CD119: what changed after the compile is ignored, and nothing recompiles."""
    found: dict[tuple[str, str], list[UnguardedChanged]] = {}
    for change in timeline.unguarded:
        found.setdefault((change.what, change.target), []).append(change)
    for (what, target), changes in found.items():
        action = "register it" if "hook" in what else "replace it"
        yield make_finding(
            timeline,
            "CD119",
            f"{_NOUNS.get(what, what.replace('_', ' '))} changed after compile and is ignored",
            f"{action} before the first compiled call, or call torch._dynamo.reset() after it",
            caveat="reset() compiles everything again",
            variable=target,
            location=next((change.where for change in changes if change.where), changes[0].frame),
            count=len(changes),
            steps=(change.step for change in changes),
            evidence={
                "kind": what,
                "target": target,
                "frames": [
                    pick(frame, "function", "file", "line")
                    for frame in dict.fromkeys(change.frame for change in changes)
                ],
            },
        )


RULES: tuple[Rule, ...] = (unguarded_change,)
