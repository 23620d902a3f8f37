"""Hooks that come and go, and changes that no guard sees (CD115, CD119)."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.codes import info
from compilediag.diagnosis.findings import Finding, Fix, Rule
from compilediag.diagnosis.ownership import ownership_of
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import UnguardedChanged

_WHAT = {
    "forward_hook": "forward hook",
    "forward_pre_hook": "forward pre-hook",
    "class_method": "method of the class",
    "instance_method": "method of the instance",
}


def _hook_set(group: Group) -> Wording:
    return Wording(
        "number of hooks changed",
        "register all hooks before the first compiled call and keep them; decide inside the hook "
        "with a tensor",
    )


def unguarded_change(timeline: Timeline) -> Iterable[Finding]:
    """CD119: what changed after the compile is ignored, and nothing recompiles."""
    found: dict[tuple[str, str], list[UnguardedChanged]] = {}
    for change in timeline.unguarded:
        found.setdefault((change.what, change.target), []).append(change)
    for (what, target), changes in found.items():
        yield _stale(what, target, changes, timeline.user_roots)


def _stale(
    what: str, target: str, changes: list[UnguardedChanged], user_roots: tuple[str, ...]
) -> Finding:
    register = info("CD119")
    place = next((change.where for change in changes if change.where), changes[0].frame)
    noun = _WHAT.get(what, what.replace("_", " "))
    action = "register it" if "hook" in what else "replace it"
    return Finding(
        rule="CD119",
        slug=register.slug,
        severity=register.severity,
        confidence="exact",
        family=register.family,
        variable=target,
        title=f"{noun} changed after compile and is ignored",
        location=place,
        ownership=ownership_of(place.file, user_roots),
        count=len(changes),
        steps=tuple(sorted({change.step for change in changes})),
        cost_s=None,
        fix=Fix(
            f"{action} before the first compiled call, or call torch._dynamo.reset() after it",
            register.how,
            "reset() compiles everything again",
        ),
        evidence={
            "kind": what,
            "target": target,
            "frames": [
                {"function": frame.function, "file": frame.file, "line": frame.line}
                for frame in dict.fromkeys(change.frame for change in changes)
            ],
        },
    )


RULES: tuple[Rule, ...] = (RecompileRule("CD115", _hook_set), unguarded_change)
