"""Judges a receipt by limits and a baseline: what is not known to be good does not pass.

Counts are judged, never seconds: they are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from compilediag.compare.gate.baseline import LaneBaseline
from compilediag.compare.gate.inconclusive import doubts_of, harmless_losses, lane_doubts
from compilediag.compare.gate.judgement import Changes, Item, Judgement
from compilediag.compare.keys import CountChange
from compilediag.compare.run_baseline import RunBaseline, ledger_of, torch_release
from compilediag.receipt.schema.receipt import Receipt

if TYPE_CHECKING:
    from compilediag.compare.gate.expression import Limit

_ORDER = ("not_judged", "cause", "fallback", "break", "frame", "recording", "count", "limit")
_NAMED = 5
"""Items named in a notice; the rest is a number."""


def judge(
    receipt: Receipt,
    *,
    limits: Sequence[Limit] = (),
    baseline: LaneBaseline | None = None,
    baseline_name: str | None = None,
    strict: bool = False,
    own_code_only: bool = False,
    lane: str | None = None,
) -> Judgement:
    """What the gate says of a receipt.

    `baseline_name` is the file of the baseline: with it and no `baseline` the receipt's lane is
    absent there, which is an error and no pass. `lane` is the name to judge the receipt under, its
    own by default.
    """
    name = lane or receipt.header.lane.name
    whole = ledger_of(receipt, name)
    seen = ledger_of(receipt, name, own_code_only=True) if own_code_only else whole
    doubts, over = list(doubts_of(receipt)), list[Item]()
    if limits:
        from compilediag.compare.gate.limits import broken, unmeasured

        doubts += unmeasured(receipt, seen, limits)
        over += broken(receipt, seen, limits)
    if baseline is not None:
        doubts += [*lane_doubts(receipt, baseline), *_recordings_doubt(receipt, whole, baseline)]
    elif baseline_name is not None:
        doubts.append(f"the baseline {baseline_name} has no lane {name!r}")
    known = baseline if baseline is not None and not doubts else None
    found = Changes()
    if known is not None:
        from compilediag.compare.gate.compare_baseline import changes

        found = changes(receipt, seen, whole, known, own_code_only=own_code_only)
    failures = [*found.failures, *([] if doubts else over)]
    return Judgement(
        lane=name,
        receipt_id=receipt.receipt_id,
        verdict=receipt.verdict,
        baseline=baseline_name,
        limits=tuple(str(limit) for limit in limits),
        counts=_counts(seen, known if not own_code_only else None),
        failures=(*(_not_judged(doubt) for doubt in doubts), *_ordered(failures)),
        improvements=found.improvements,
        known=tuple(_ordered(found.known)),
        notices=(*_notices(receipt, known, found, own_code_only=own_code_only),),
        strict=strict,
    )


def _not_judged(doubt: str) -> Item:
    return Item("not_judged", "not_judged", doubt)


def _recordings_doubt(receipt: Receipt, seen: RunBaseline, baseline: LaneBaseline) -> Iterable[str]:
    """Recordings that were measured once and now are not must not look like an improvement."""
    if baseline.recordings is None or seen.lane.recordings is not None:
        return
    without = receipt.cudagraph is not None and receipt.cudagraph.applicable is False
    why = "this run had no CUDA device" if without else "this run did not measure them"
    yield f"the baseline counts CUDA-graph recordings ({baseline.recordings}) and {why}"


def _ordered(items: Iterable[Item]) -> list[Item]:
    """Most important first, the same item once: what a limit shows may be a failure already."""
    kept: dict[tuple[str, ...], Item] = {}
    for item in items:
        about = (item.kind, item.rule, item.file, item.function, item.variable, item.detail)
        same = tuple(str(part) for part in (*about, item.message if item.file is None else ""))
        kept.setdefault(same, item)
    return sorted(kept.values(), key=lambda item: (_ORDER.index(item.kind), -(item.cost_s or 0.0)))


def _counts(seen: RunBaseline, baseline: LaneBaseline | None) -> tuple[CountChange, ...]:
    now = dict(seen.lane.counts)
    before = dict(baseline.counts) if baseline is not None else {}
    if seen.lane.recordings is not None:
        now["recordings"] = seen.lane.recordings
        if baseline is not None and baseline.recordings is not None:
            before["recordings"] = baseline.recordings
    return tuple(CountChange(name, before.get(name, count), count) for name, count in now.items())


def _notices(
    receipt: Receipt, baseline: LaneBaseline | None, found: Changes, *, own_code_only: bool
) -> Iterable[str]:
    yield from found.notices
    cut = [reason for reason in receipt.completeness.reasons if reason.startswith("compile.events")]
    yield from (*cut, *(f"not observed: {loss}" for loss in harmless_losses(receipt)))
    if baseline is None:
        return
    if own_code_only:
        yield "counts are of your own code; the baseline's are of all code and are not compared"
    now = torch_release(receipt)
    if baseline.torch is not None and now is not None and baseline.torch != now:
        yield f"recorded with torch {baseline.torch}, judged with torch {now}"
    if baseline.recordings is None and receipt.cudagraph and receipt.cudagraph.recordings:
        yield f"CUDA-graph recordings ({receipt.cudagraph.recordings}) are not in the baseline"
    silent = [item.variable or f"{item.function}" for item in found.known if not item.reason]
    if silent:
        rest = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
        yield (
            f"allowed without a reason: {', '.join(silent[:_NAMED])}{rest}; "
            "say why with --update --reason TEXT"
        )
