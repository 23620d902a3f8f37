"""CD612: what is compiled again at every start, since its key in the caches changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from compilediag.compare.cold_and_warm.conclude import ColdAndWarm, CompiledAgain
from compilediag.diagnosis.figures.key_difference import in_words, what_to_change
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.rules.make_finding import make_finding
from compilediag.timeline.timeline import Timeline

NAMED = 20
"""Most components in the evidence of a finding."""


def changing_keys(warm: Timeline, found: ColdAndWarm) -> Iterable[Finding]:
    """One for each function and set of components that differ; none where torch does not record of
    what the key is made."""
    groups: dict[object, list[CompiledAgain]] = {}
    for each in found.again:
        if each.changes:
            names = tuple(item.name for item in each.changes)
            groups.setdefault((each.frame, names), []).append(each)
    for group in groups.values():
        first = group[0]
        name = first.frame.function if first.frame is not None else "a graph"
        yield make_finding(
            warm,
            "CD612",
            f"{name} is compiled again at every start: its cache key changes ("
            f"{in_words(first.changes, 2)})",
            what_to_change(first.changes),
            location=first.frame,
            count=len(group),
            cost_s=_seconds(group),
            evidence={
                "compile_ids": [each.compile_id for each in group],
                "components": [asdict(item) for item in first.changes[:NAMED]],
                "components_left_out": max(0, len(first.changes) - NAMED),
            },
        )


def _seconds(group: Iterable[CompiledAgain]) -> float | None:
    known = [each.seconds for each in group]
    return sum(item for item in known if item is not None) if None not in known else None
