"""Limits checked against a run: which are broken, and by what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compilediag.compare.gate.entries import finding_item, item_of
from compilediag.compare.gate.expression import SECONDS, Limit
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
    "recompile_s": ("cause",),
}
"""Kinds of items that show where a count comes from."""


def unmeasured(receipt: Receipt, run: RunBaseline, limits: Sequence[Limit]) -> list[str]:
    """Sentences about limits on what this run did not count; nothing may pass by them."""
    missing = [limit for limit in limits if _value(receipt, run, limit.name) is None]
    return [
        f"the limit {limit} cannot be held: what it counts {_why_not(limit)}" for limit in missing
    ]


def _why_not(limit: Limit) -> str:
    """Counts of the receipt are always there, but not each of them for one's own code."""
    by_file = limit.name in COUNTS or limit.name in SECONDS
    return "cannot be split by whose code it is" if by_file else "was not measured"


def _value(receipt: Receipt, run: RunBaseline, name: str) -> float | None:
    """What a limit of this name is about, counted or in seconds; None where it was not measured."""
    if name not in SECONDS:
        return count_of(receipt, run, name)
    # Compile seconds belong to no file: what only one's own code took is not known.
    whole = run.lane.counts.keys() >= set(COUNTS)
    return getattr(receipt.compile.time_s, SECONDS[name]) if whole else None


def count_of(receipt: Receipt, run: RunBaseline, name: str) -> int | None:
    """What a limit of this name is about, counted; None where it was not measured."""
    if name in COUNTS:
        return run.lane.counts.get(name)
    if name in ("recordings", "replays"):
        part = receipt.cudagraph
        # Without a CUDA device there is nothing to record into: that is known to be none.
        if part is None or part.applicable is False:
            return None if part is None else 0
        return part.replays if name == "replays" else part.recordings
    return len(_findings(receipt, run, name))


def broken(receipt: Receipt, run: RunBaseline, limits: Sequence[Limit]) -> list[Item]:
    """An item for each limit that is broken, after the items that show where its count comes
    from."""
    found: list[Item] = []
    for limit in limits:
        count = _value(receipt, run, limit.name)
        if count is None or not limit.is_broken_by(count):
            continue
        if limit.forbids_more:
            found += _sources(receipt, run, limit)
        timed = limit.name in SECONDS  # only the message has the fraction
        shown = f"{count:.1f}" if timed else f"{count}"
        words = limit.name.removesuffix("_s").replace("_", " ") + " seconds" * timed
        message = f"{words}: {shown}, and the limit is {limit}"
        before, after = (None, None) if timed else (limit.bound, int(count))
        found.append(Item("limit", limit.name, message, before=before, after=after))
    return found


def _sources(receipt: Receipt, run: RunBaseline, limit: Limit) -> Iterable[Item]:
    items = [item_of(receipt, run, known, None) for known in run.lane.allowed]
    about = _findings(receipt, run, limit.name)
    kinds = _SHOWN_BY.get(limit.name, ())
    shown = [
        item
        for item in items
        if (item.kind in kinds if kinds else item.rule == limit.name)
        and (limit.name != "findings" or item.finding in {each.id for each in about})
    ]
    with_item = {item.finding for item in shown}
    return [*shown, *(finding_item(receipt, item) for item in about if item.id not in with_item)]


def _findings(receipt: Receipt, run: RunBaseline, name: str) -> list[FindingRecord]:
    """The findings that a limit is about: those of a rule, or all that are no mere information."""
    found = [item for item in receipt.findings if run.counts_finding(item)]
    if name == "findings":
        return [item for item in found if item.severity != "info"]
    return [
        item
        for item in found
        if name in (item.rule, *item.also, *(part.rule for part in item.parts))
    ]
