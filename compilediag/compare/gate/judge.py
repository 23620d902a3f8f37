"""Judges a receipt by limits and a baseline: what is not known to be good does not pass.

Counts are judged, never seconds: they are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from compilediag.compare.changes import CountChange
from compilediag.compare.gate.compare_baseline import compare_with_baseline
from compilediag.compare.gate.entries import finding_item
from compilediag.compare.gate.expression import Limit
from compilediag.compare.gate.inconclusive import (
    CodeComparison,
    harmless_losses,
    inconclusive_reasons,
    lane_mismatches,
)
from compilediag.compare.gate.judgement import BaselineResult, Item, Judgement
from compilediag.compare.gate.limits import broken, unmeasured
from compilediag.compare.run_baseline import (
    LaneBaseline,
    RunBaseline,
    run_baseline,
    torch_release,
)
from compilediag.receipt.proofs import missing_proof
from compilediag.receipt.schema.receipt import Receipt

_ORDER = (
    "not_judged",
    "cause",
    "fallback",
    "break",
    "frame",
    "recording",
    "count",
    "limit",
    "unproved",
)
_MAX_NAMED = 5
"""Items named in a notice; the rest is counted."""


def judge(
    receipt: Receipt,
    *,
    limits: Sequence[Limit] = (),
    baseline: LaneBaseline | None = None,
    baseline_name: str | None = None,
    strict: bool = False,
    own_code_only: bool = False,
    lane: str | None = None,
    code: CodeComparison | None = None,
    enlarged: Sequence[str] = (),
    require_proved_fix: bool = False,
) -> Judgement:
    """Judges a receipt.

    `baseline_name` is the file of the baseline: with it and no `baseline` the receipt's lane is
    absent there, which is an error and no pass. `lane` is the name to judge the receipt under, its
    own by default. `code` is the receipt's code against the one that is checked out; None: it is
    not compared. `enlarged` says what the change allows itself. With `require_proved_fix` each
    finding needs a proved change, also one that the baseline allows.
    """
    name = lane or receipt.header.lane.name
    whole = run_baseline(receipt, name)
    run = run_baseline(receipt, name, own_code_only=True) if own_code_only else whole
    reasons = [
        *(code.reasons if code is not None else ()),
        *inconclusive_reasons(receipt),
        *unmeasured(receipt, run, limits),
    ]
    if baseline is not None:
        reasons += lane_mismatches(receipt, baseline)
        reasons += _recordings_not_measured(receipt, whole, baseline)
    elif baseline_name is not None:
        reasons.append(f"the baseline {baseline_name} has no lane {name!r}")
    found, failures = BaselineResult(), list[Item]()
    usable = baseline if not reasons else None
    if usable is not None:
        found = compare_with_baseline(receipt, run, whole, usable)
    if not reasons:
        proofs = unproved(receipt, run) if require_proved_fix else ()
        failures = _ordered([*found.failures, *broken(receipt, run, limits), *proofs])
    return Judgement(
        lane=name,
        receipt_id=receipt.receipt_id,
        verdict=receipt.verdict,
        baseline=baseline_name,
        limits=tuple(str(limit) for limit in limits),
        counts=_counts(run, usable if not own_code_only else None),
        failures=(*(Item("not_judged", "not_judged", why) for why in reasons), *failures),
        improvements=found.improvements,
        known=tuple(_ordered(found.known)),
        notices=(
            *enlarged,
            *(code.notices if code is not None else ()),
            *_notices(receipt, usable, found, own_code_only=own_code_only),
        ),
        strict=strict,
        require_proved_fix=require_proved_fix,
    )


def _recordings_not_measured(
    receipt: Receipt, run: RunBaseline, baseline: LaneBaseline
) -> Iterable[str]:
    """Recordings that were measured once and now are not must not look like an improvement."""
    if baseline.recordings is None or run.lane.recordings is not None:
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


def _counts(run: RunBaseline, baseline: LaneBaseline | None) -> tuple[CountChange, ...]:
    """A count that the baseline does not have is shown as unchanged."""
    now = dict(run.lane.counts)
    before = dict(baseline.counts) if baseline is not None else {}
    if run.lane.recordings is not None:
        now["recordings"] = run.lane.recordings
        if baseline is not None and baseline.recordings is not None:
            before["recordings"] = baseline.recordings
    return tuple(CountChange(name, before.get(name, count), count) for name, count in now.items())


def _notices(
    receipt: Receipt, baseline: LaneBaseline | None, found: BaselineResult, *, own_code_only: bool
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
    unexplained = [item.variable or f"{item.function}" for item in found.known if not item.reason]
    if unexplained:
        rest = f" and {len(unexplained) - _MAX_NAMED} more" if len(unexplained) > _MAX_NAMED else ""
        yield (
            f"allowed without a reason: {', '.join(unexplained[:_MAX_NAMED])}{rest}; "
            "give one with --update --reason TEXT"
        )


def unproved(receipt: Receipt, run: RunBaseline) -> Iterable[Item]:
    """An item for each finding of at least `warning`, also one that a baseline allows. What was
    tried in vain has to be edited by hand; all else `compilediag fix` can try."""
    for finding in receipt.findings:
        if finding.severity == "info" or not run.counts_finding(finding):
            continue
        if (why := missing_proof(finding, receipt)) is not None:
            item = finding_item(receipt, finding)
            number = finding.id.removeprefix("F")
            following = "explain" if finding.fix.refused else "fix"
            message = f"{item.message}: {why}; run `compilediag {following} {number}`"
            yield replace(item, kind="unproved", message=message, after=None)
