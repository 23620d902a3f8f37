"""Judges a receipt by limits and a baseline: what is not known to be good does not pass. Records
one into a baseline: what is newly allowed needs a reason, known reasons stay.

Counts are judged, never seconds: they are the same on every machine. The same fault is reported
once: a count fails only where no cause, break, fallback or frame explains why it grew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from compilediag.compare.changes import (
    CountChange,
    Moved,
    RunChanges,
    changes_between,
    moved,
    place_text,
)
from compilediag.compare.gate.inconclusive import (
    CodeComparison,
    harmless_losses,
    inconclusive_reasons,
    lane_mismatches,
)
from compilediag.compare.gate.judgement import (
    Item,
    Judgement,
    Kind,
    describe,
    finding_item,
    frame_item,
    improvement,
    item_of,
    plural,
)
from compilediag.compare.gate.limits import Limit, broken, unmeasured
from compilediag.compare.run_baseline import (
    Allowed,
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    LaneBaseline,
    RunBaseline,
    is_own,
    run_baseline,
    torch_release,
)
from compilediag.receipt.proofs import missing_proof
from compilediag.receipt.schema.receipt import Receipt

_NAMED, _MAX_MOVES, _REASON_CHARS = 10, 5, 200


Differences = tuple[Sequence[Item], Sequence[Item], Sequence[Item], Sequence[str]]
"""What is worse than the baseline, what is better, what it allows, and notices."""


def compare_with_baseline(
    receipt: Receipt, run: RunBaseline, whole: RunBaseline, baseline: LaneBaseline
) -> Differences:
    """Compare a run with a baseline key by key. `run` is what is judged; `whole` is everything that
    happened, which decides what is gone."""
    relocated = moved(baseline, whole.lane)
    baseline = relocated.lane
    changes = changes_between(baseline, run.lane)
    # Causes, breaks and fallbacks of the run: those that fail, and those that are allowed.
    worse: list[Item] = []
    known: list[Item] = []
    for found in run.lane.allowed:
        # Invariant: `changes` has every key of either side, so that this finds one.
        old: Allowed | None = changes.allowed[found.key].before
        before = old.count if old is not None else 0
        item = item_of(receipt, run, found, before)
        reason = old.reason if old is not None else None
        (worse if found.count > before else known).append(replace(item, reason=reason))
    everything = changes if whole is run else changes_between(baseline, whole.lane)
    better = [
        improvement(change.before, change.count_after)
        for change in everything.allowed.values()
        if change.before is not None
        and change.count_after < change.count_before
        and _is_judged(change.before.key.file, run)
    ]
    frames, more_frames = _grown_frames(run, changes)
    names = ", ".join(dict.fromkeys(f"{item.function}" for item in frames))
    notices = [*_moves(relocated)]
    if frames and not more_frames:
        # A function that was renamed or moved is no regression.
        notices.append(f"compiled where the baseline has other frames, and no more in all: {names}")
    elif frames and any(item.kind in ("break", "fallback") for item in worse):
        # A graph break splits a function into several frames: these are its consequence.
        notices.append(
            f"{plural(len(frames), 'more frame')} compiled ({names}): the new graph breaks "
            "and fallbacks come first"
        )
    else:
        worse += frames
    if not run.own_code_only:
        had, has = baseline.recordings, run.lane.recordings
        if had is not None and has is not None and has > had:
            message = f"{plural(has, 'CUDA-graph recording')}; the baseline has {had}"
            worse.append(Item("recording", "recordings", message, had, has))
        grown, shrunk = _count_items(changes.counts, worse, better, more_frames=more_frames)
        worse, better = [*worse, *grown], [*better, *shrunk]
    return worse, better, known, notices


def _moves(relocated: Moved) -> Iterable[str]:
    """Describe what is allowed where it is now, because it was allowed where it was."""
    named = [
        (describe(item), move)
        for item in relocated.lane.allowed
        for move in relocated.moves
        if move.after == item.key and move.group != "frames"
    ]
    for text, move in named[:_MAX_MOVES]:
        yield f"moved from {place_text(move.before)}, and known there: {text}"
    if (more := len(named) - _MAX_MOVES) > 0:
        yield f"{plural(more, 'more item')} moved, and known where they were"


def _is_judged(file: str | None, run: RunBaseline) -> bool:
    return not run.own_code_only or is_own(file)


def _grown_frames(run: RunBaseline, changes: RunChanges) -> tuple[list[Item], bool]:
    """Find frames that are compiled more often, recompiles aside, and whether all frames together
    are. A frame that no longer runs eager may."""

    def firsts(frame: KnownFrame | None) -> int:
        return max(0, frame.count - frame.recompiles) if frame is not None else 0

    judged = [
        change
        for key, change in changes.frames.items()
        if _is_judged(key.file, run) or change.after is not None
        if (eager := changes.fallbacks.get(key)) is None or eager.kind != "gone"
    ]
    more = sum(firsts(change.after) - firsts(change.before) for change in judged) > 0
    grown = [
        frame_item(run, change.after, firsts(change.before))
        for change in judged
        if change.after is not None and firsts(change.after) > firsts(change.before)
    ]
    return grown, more


_EXPLAINED_BY: Mapping[str, tuple[Kind, ...]] = {
    "frames": ("frame", "break", "fallback"),
    "compiles": ("cause", "frame", "break", "fallback"),
    "recompiles": ("cause",),
    "graphs": ("cause", "frame", "break", "fallback"),
    "graph_breaks": ("break",),
    "eager_fallbacks": ("fallback",),
    "recompile_limit_hits": ("fallback", "cause"),
}
"""Kinds of issues that explain why a count changed: then the count itself is none."""


def _count_items(
    counts: Iterable[CountChange],
    worse: Iterable[Item],
    better: Iterable[Item],
    *,
    more_frames: bool,
) -> tuple[list[Item], list[Item]]:
    kinds_worse, kinds_better = {item.kind for item in worse}, {item.kind for item in better}
    recovered = "fallback" in kinds_better and not more_frames
    grown: dict[str, Item] = {}
    shrunk: list[Item] = []
    for item in counts:
        kinds, name, after = _EXPLAINED_BY.get(item.name, ()), item.name, item.after
        message = f"{name.replace('_', ' ')}: {after}, and the baseline has {item.before}"
        made = Item("count", name, message, item.before, after)
        if item.change > 0 and not kinds_worse.intersection(kinds):
            # A frame that no longer runs eager is compiled instead: that is no regression.
            if not (recovered and name in ("frames", "compiles", "graphs")):
                grown[name] = made
        elif item.change < 0 and not kinds_better.intersection(kinds):
            shrunk.append(made)
    # For counts that grew together the most specific one: a recompile is a compile and a graph.
    if grown.keys() & {"recompiles", "frames"}:
        grown.pop("compiles", None)
        grown.pop("graphs", None)
    elif "compiles" in grown:
        grown.pop("graphs", None)
    return [*grown.values()], shrunk


def enlarged(before: LaneBaseline | None, now: LaneBaseline, base: str) -> tuple[str, ...]:
    """Describe what a configuration allows that it does not allow in `base`; counts are named where
    no key says what they are of."""
    if before is None:
        return (
            f"this change adds the lane {now.name!r} to the baseline: it is not in that of {base}",
        )
    changes = changes_between(moved(before, now).lane, now)
    found: list[str] = []
    for change in changes.allowed.values():
        item: Allowed | None = change.after
        if item is not None and change.count_after > change.count_before:
            why = f"reason: {item.reason[:_REASON_CHARS]}" if item.reason else "no reason given"
            counts = f"{change.count_before} → {change.count_after}"
            found.append(f"{describe(item)} {counts} ({why})")
    if not found:
        found = [
            f"{item.name.replace('_', ' ')} {item.before} → {item.after}"
            for item in changes.counts
            if item.change > 0
        ]
    if not found:
        return ()
    more = len(found) - _NAMED
    head = f"this change itself allows {plural(len(found), 'thing')} that {base} does not"
    shown = "; ".join(found[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
    return (f"{head}: {shown}",)


_ORDER = (
    *("not_judged", "cause", "fallback", "break", "frame", "recording", "count", "limit"),
    "unproved",
)
_MAX_NAMED = 5  #: Issues named in a notice; the rest is counted.


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
    """Judge a receipt. `baseline_name` is the file of the baseline: with it and no `baseline` the
    receipt's configuration is absent there, which is an error and no pass. `configuration` is the
    name to judge the receipt under, its own by default. `code` is the receipt's code against the
    one that is checked out; None: it is not compared. `enlarged` says what the change allows
    itself. With `require_proved_fix` each finding needs a proved change, also one that the baseline
    allows."""
    name = lane or receipt.header.lane.name
    whole = run_baseline(receipt, name)
    run = run_baseline(receipt, name, own_code_only=True) if own_code_only else whole
    reasons = [
        *(code.reasons if code is not None else ()),
        *inconclusive_reasons(receipt),
        *unmeasured(receipt, run, limits),
    ]
    if baseline is not None:
        reasons += _not_comparable(receipt, whole, baseline)
    elif baseline_name is not None:
        reasons.append(f"the baseline {baseline_name} has no lane {name!r}")
    found: Differences = ((), (), (), ())
    usable, failures = baseline if not reasons else None, list[Item]()
    if usable is not None:
        found = compare_with_baseline(receipt, run, whole, usable)
    worse, better, known, notices = found
    if not reasons:
        proofs = unproved(receipt, run) if require_proved_fix else ()
        failures = _ordered([*worse, *broken(receipt, run, limits), *proofs])
    return Judgement(
        lane=name,
        receipt_id=receipt.receipt_id,
        verdict=receipt.verdict,
        baseline=baseline_name,
        limits=tuple(str(limit) for limit in limits),
        counts=_counts(run, usable if not own_code_only else None),
        failures=(*(Item("not_judged", "not_judged", why) for why in reasons), *failures),
        improvements=tuple(better),
        known=tuple(_ordered(known)),
        notices=(
            *enlarged,
            *(code.notices if code is not None else ()),
            *notices,
            *_notices(receipt, usable, known, own_code_only=own_code_only),
        ),
        strict=strict,
        require_proved_fix=require_proved_fix,
    )


def _not_comparable(receipt: Receipt, run: RunBaseline, known: LaneBaseline) -> Iterable[str]:
    """Explain why the baseline says nothing of a run: what it did not measure is no improvement."""
    yield from lane_mismatches(receipt, known)
    if known.recordings is not None and run.lane.recordings is None:
        without = receipt.cudagraph is not None and receipt.cudagraph.applicable is False
        why = "had no CUDA device" if without else "did not measure them"
        yield f"the baseline counts CUDA-graph recordings ({known.recordings}) and this run {why}"


def _ordered(items: Iterable[Item]) -> list[Item]:
    """Sort most important first, each once: what a limit shows may be a failure already."""
    kept: dict[tuple[str, ...], Item] = {}
    for item in items:
        about = (item.kind, item.rule, item.file, item.function, item.variable, item.detail)
        same = tuple(str(part) for part in (*about, item.message if item.file is None else ""))
        kept.setdefault(same, item)
    return sorted(kept.values(), key=lambda item: (_ORDER.index(item.kind), -(item.cost_s or 0.0)))


def _counts(run: RunBaseline, baseline: LaneBaseline | None) -> tuple[CountChange, ...]:
    """Pair the counts of both; one that the baseline does not have is shown as unchanged."""
    now = dict(run.lane.counts)
    before = dict(baseline.counts) if baseline is not None else {}
    if run.lane.recordings is not None:
        now["recordings"] = run.lane.recordings
        if baseline is not None and baseline.recordings is not None:
            before["recordings"] = baseline.recordings
    return tuple(CountChange(name, before.get(name, count), count) for name, count in now.items())


def _notices(
    receipt: Receipt, baseline: LaneBaseline | None, known: Iterable[Item], *, own_code_only: bool
) -> Iterable[str]:
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
    unexplained = [item.variable or f"{item.function}" for item in known if not item.reason]
    if unexplained:
        rest = f" and {len(unexplained) - _MAX_NAMED} more" if len(unexplained) > _MAX_NAMED else ""
        yield (
            f"allowed without a reason: {', '.join(unexplained[:_MAX_NAMED])}{rest}; "
            "give one with --update --reason TEXT"
        )


def unproved(receipt: Receipt, run: RunBaseline) -> Iterable[Item]:
    """Find each finding of at least `warning` without a proof, also one that a baseline allows.
    What was tried in vain has to be edited by hand; all else `compilediag fix` can try."""
    for finding in receipt.findings:
        if finding.severity == "info" or not run.counts_finding(finding):
            continue
        if (why := missing_proof(finding, receipt)) is not None:
            item = finding_item(receipt, finding)
            number = finding.id.removeprefix("F")
            following = "explain" if finding.fix.refused else "fix"
            message = f"{item.message}: {why}; run `compilediag {following} {number}`"
            yield replace(item, kind="unproved", message=message, after=None)


# --- into a baseline ------------------------------------------------------------------------------

KnownItem = TypeVar("KnownItem", KnownCause, KnownBreak, KnownFallback)


class Recorded(NamedTuple):
    """A configuration as it is to be written."""

    lane: LaneBaseline
    inconclusive: tuple[str, ...]  #: Why the run must not be recorded: blind, torn, killed.
    #: Causes, breaks and fallbacks that the baseline did not have and that have no reason.
    unexplained: tuple[str, ...]
    without_reason: tuple[str, ...]  #: What is allowed and still has no reason.
    allowed: tuple[str, ...] = ()  #: Everything that is allowed now.
    explained: frozenset[str] = frozenset()  #: The names in `reasons` that something allowed has.


def recorded(
    receipt: Receipt,
    baseline: LaneBaseline | None,
    *,
    reason: str | None = None,
    reasons: Sequence[tuple[str, str]] = (),
    lane: str | None = None,
    code: CodeComparison | None = None,
) -> Recorded:
    """Record a receipt as the new baseline of its configuration. `reason` is for all that has none
    yet, `reasons` for what has a name in its description; fields of newer versions stay where they
    were."""
    now = run_baseline(receipt, lane).lane
    old = baseline if baseline is not None else LaneBaseline(now.name, {}, {})
    old = moved(old, now).lane
    frames = {item.key: item for item in old.frames}
    new = replace(
        now,
        causes=_merged(now.causes, old.causes, reason, reasons),
        breaks=_merged(now.breaks, old.breaks, reason, reasons),
        fallbacks=_merged(now.fallbacks, old.fallbacks, reason, reasons),
        frames=tuple(
            replace(item, unknown=frames.get(item.key, item).unknown) for item in now.frames
        ),
        counts={**{k: v for k, v in old.counts.items() if k not in now.counts}, **now.counts},
        unknown=old.unknown,
    )
    known = {(type(item), item.key) for item in old.allowed}
    added = [item for item in new.allowed if (type(item), item.key) not in known]
    return Recorded(
        lane=new,
        inconclusive=(*(code.reasons if code is not None else ()), *inconclusive_reasons(receipt)),
        unexplained=tuple(describe(item) for item in added if item.reason is None),
        without_reason=tuple(describe(item) for item in new.allowed if item.reason is None),
        allowed=tuple(describe(item) for item in new.allowed),
        explained=frozenset(
            name for name, _ in reasons if any(name in describe(item) for item in new.allowed)
        ),
    )


def _merged(
    now: Iterable[KnownItem],
    old: Iterable[KnownItem],
    reason: str | None,
    reasons: Sequence[tuple[str, str]],
) -> tuple[KnownItem, ...]:
    """Merge what is there now with the reasons and the unknown fields of what was allowed."""
    known = {item.key: item for item in old}
    merged: list[KnownItem] = []
    for item in now:
        kept = known.get(item.key, item)
        own = next((text.strip() for name, text in reasons if name in describe(item)), None)
        merged.append(replace(item, reason=own or kept.reason or reason, unknown=kept.unknown))
    return tuple(merged)
