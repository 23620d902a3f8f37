"""The receipt of the second start, with what it still pays after the first one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from compilediag.compare.cold_and_warm.conclude import ColdAndWarm, CompiledAgain
from compilediag.diagnosis.figures.key_difference import in_words, what_to_change
from compilediag.diagnosis.findings import Finding
from compilediag.diagnosis.rules.make_finding import make_finding, pick
from compilediag.receipt.amend import amended
from compilediag.receipt.schema.cold_and_warm import ColdAndWarmSection, CompiledAgainRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.timeline import Timeline

NAMED = 20
"""Most components in the evidence of a finding."""


ANSWERS = ("hits", "misses", "bypasses", "disabled", "failed")
AGAIN_KEPT, CHANGES_KEPT = 100, 20
"""Most compiles listed, and components of each."""


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
    return amended(receipt, warm, more, secret_values, cold_and_warm=_section(found))


def _section(found: ColdAndWarm) -> ColdAndWarmSection:
    left_out = len(found.again) - AGAIN_KEPT
    more = (f"{left_out} more compiles are not listed",) if left_out > 0 else ()
    return record_from(
        ColdAndWarmSection,
        found,
        cold_answers={use.cache: pick(use, *ANSWERS) for use in found.cold_caches},
        again=tuple(_again(each) for each in found.again[:AGAIN_KEPT]),
        notes=(*found.notes, *more),
    )


def _again(each: CompiledAgain) -> CompiledAgainRecord:
    frame = each.frame
    place = "" if frame is None else f"{frame.function} at {frame.file}:{frame.line}"
    kept = each.changes[:CHANGES_KEPT]
    changes = {item.name: (item.before, item.after) for item in kept}
    return record_from(CompiledAgainRecord, each, place=place, changes=changes)


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
