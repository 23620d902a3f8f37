"""Limits held against a run: which are broken, and by what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compilediag.compare.gate.expression import Limit
from compilediag.compare.gate.judgement import Item, Kind
from compilediag.compare.keys import COUNTS
from compilediag.compare.run_baseline import RunBaseline
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt

_SHOWN_BY: dict[str, tuple[Kind, ...]] = {
    "compiles": ("cause",),
    "recompiles": ("cause",),
    "graphs": ("cause", "break"),
    "frames": ("break",),
    "graph_breaks": ("break",),
    "eager_fallbacks": ("fallback",),
    "recompile_limit_hits": ("fallback", "cause"),
    "findings": ("cause", "break", "fallback"),
}
"""Kinds of items that show where a count comes from."""


def unmeasured(receipt: Receipt, seen: RunBaseline, limits: Sequence[Limit]) -> list[str]:
    """Sentences about limits on what this run did not count; nothing may pass by them."""
    missing = [limit for limit in limits if count_of(receipt, seen, limit) is None]
    return [f"the limit {limit} cannot be held: what it counts {_why(limit)}" for limit in missing]


def _why(limit: Limit) -> str:
    """Counts of the receipt are always there, but not each of them for one's own code."""
    apart = limit.name in COUNTS
    return "cannot be told apart by whose code it is" if apart else "was not measured"


def count_of(receipt: Receipt, seen: RunBaseline, limit: Limit) -> int | None:
    """What the limit is about, counted; None where it was not measured."""
    if limit.name in COUNTS:
        return seen.lane.counts.get(limit.name)
    if limit.name in ("recordings", "replays"):
        part = receipt.cudagraph
        # Without a CUDA device there is nothing to record into: that is known to be none.
        if part is None or part.applicable is False:
            return None if part is None else 0
        return part.replays if limit.name == "replays" else seen.lane.recordings
    return len(_findings(receipt, limit, seen))


def broken(receipt: Receipt, seen: RunBaseline, limits: Sequence[Limit]) -> list[Item]:
    """An item for each limit that is broken, after the items that show where its count comes
    from."""
    found: list[Item] = []
    for limit in limits:
        count = count_of(receipt, seen, limit)
        if count is None or not limit.is_broken_by(count):
            continue
        if limit.forbids_more:
            found += _sources(receipt, seen, limit)
        said = f"{limit.name.replace('_', ' ')}: {count}, and the limit is {limit}"
        found.append(Item("limit", limit.name, said, before=limit.bound, after=count))
    return found


def _sources(receipt: Receipt, seen: RunBaseline, limit: Limit) -> Iterable[Item]:
    from compilediag.compare.gate.entries import break_item, cause_item, fallback_item, finding_item

    items = [
        *(cause_item(receipt, seen, key, None) for key in seen.causes),
        *(break_item(receipt, seen, key, None) for key in seen.breaks),
        *(fallback_item(receipt, seen, item.key, compared=False) for item in seen.lane.fallbacks),
    ]
    about = _findings(receipt, limit, seen)
    kinds = _SHOWN_BY.get(limit.name, ())
    shown = [
        item
        for item in items
        if (item.kind in kinds if kinds else item.rule == limit.name)
        and (limit.name != "findings" or item.finding in {each.id for each in about})
    ]
    told = {item.finding for item in shown}
    rest = [finding_item(item, item.rule) for item in about if item.id not in told]
    return [*shown, *rest]


def _findings(receipt: Receipt, limit: Limit, seen: RunBaseline) -> list[FindingRecord]:
    """The findings that a limit is about: those of a rule, or all that are no mere information."""
    found = [item for item in receipt.findings if not seen.own_code_only or _is_own(item)]
    if limit.name == "findings":
        return [item for item in found if item.severity != "info"]
    return [item for item in found if limit.name == item.rule or limit.name in item.also]


def _is_own(finding: FindingRecord) -> bool:
    if finding.ownership is not None:
        return finding.ownership == "user"
    from compilediag.diagnosis.ownership import ownership_of

    return finding.location is None or ownership_of(finding.location.file) == "user"
