"""The receipt of the second start, with what it still pays after the first one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from compilediag.compare.cold_and_warm.conclude import ColdAndWarm, CompiledAgain
from compilediag.diagnosis.figures.key_difference import in_words, what_to_change
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.amend import amended
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.make_finding import make_finding
from compilediag.timeline.timeline import Timeline

NAMED = 20
"""Most components in the evidence of a finding."""


def with_starts(
    receipt: Receipt, warm: Timeline, found: ColdAndWarm, secret_values: Sequence[str] = ()
) -> Receipt:
    """The receipt of the second start with its section `cold_and_warm`, and the findings of CD612
    after its own; both redacted and bounded like the rest.

    Args:
        receipt: of the second start.
        warm: what it was made from.
        found: the comparison with the first start.
        secret_values: what must not stand in a receipt.
    """
    more = changing_keys(warm, found)
    return amended(receipt, warm, more, secret_values, cold_and_warm=found.section)


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
                "compile_ids": [each.record.compile_id for each in group],
                "components": [asdict(item) for item in first.changes[:NAMED]],
                "components_left_out": max(0, len(first.changes) - NAMED),
            },
        )


def _seconds(group: Iterable[CompiledAgain]) -> float | None:
    known = [each.record.seconds for each in group]
    return sum(item for item in known if item is not None) if None not in known else None
