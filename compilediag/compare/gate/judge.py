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
    Relocated,
    RunChanges,
    find_changes,
    format_place,
    relocate,
)
from compilediag.compare.gate.inconclusive import (
    CodeComparison,
    find_inconclusive,
    find_mismatches,
    list_harmless_losses,
)
from compilediag.compare.gate.judgement import (
    Issue,
    Judgement,
    Kind,
    build_finding_issue,
    build_frame_issue,
    build_improvement,
    build_issue,
    build_narrowed_issue,
    describe_entry,
    pluralize,
)
from compilediag.compare.gate.limits import Limit, describe_unmeasured, find_broken
from compilediag.compare.run_baseline import (
    Allowed,
    ConfigBaseline,
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    RunBaseline,
    build_run_baseline,
    get_torch_release,
    is_own,
)
from compilediag.receipt.proofs import explain_missing_proof
from compilediag.receipt.schema.receipt import Receipt

_NAMED, _MAX_MOVES, _REASON_CHARS = 10, 5, 200


Differences = tuple[Sequence[Issue], Sequence[Issue], Sequence[Issue], Sequence[str]]
"""What is worse than the baseline, what is better, what it allows, and notices."""


def compare_with_baseline(
    receipt: Receipt, run: RunBaseline, whole: RunBaseline, baseline: ConfigBaseline
) -> Differences:
    """Compare a run with a baseline key by key. `run` is what is judged; `whole` is everything that
    happened, which decides what is gone."""
    relocated = relocate(baseline, whole.baseline)
    baseline = relocated.baseline
    changes = find_changes(baseline, run.baseline)
    # Causes, breaks and fallbacks of the run: those that fail, and those that are allowed.
    worse: list[Issue] = []
    known: list[Issue] = []
    for entry in run.baseline.allowed:
        # Invariant: `changes` has every key of either side, so that this finds one.
        old: Allowed | None = changes.allowed[entry.key].before
        before = old.count if old is not None else 0
        issue = build_issue(receipt, run, entry, before)
        reason = old.reason if old is not None else None
        (worse if entry.count > before else known).append(replace(issue, reason=reason))
    everything = changes if whole is run else find_changes(baseline, whole.baseline)
    better = [
        build_improvement(change.before, change.count_after)
        for change in everything.allowed.values()
        if change.before is not None
        and change.count_after < change.count_before
        and _is_judged(change.before.key.file, run)
    ]
    frames, more_frames = _find_grown_frames(run, changes)
    names = ", ".join(dict.fromkeys(f"{frame.function}" for frame in frames))
    notices = [*_describe_moves(relocated)]
    if frames and not more_frames:
        # A function that was renamed or moved is no regression.
        notices.append(f"compiled where the baseline has other frames, and no more in all: {names}")
    elif frames and any(issue.kind in ("break", "fallback") for issue in worse):
        # A graph break splits a function into several frames: these are its consequence.
        notices.append(
            f"{pluralize(len(frames), 'more frame')} compiled ({names}): the new graph breaks "
            "and fallbacks come first"
        )
    else:
        worse += frames
    worse += [
        build_narrowed_issue(run, change.after, name)
        for key, change in changes.frames.items()
        if change.before is not None and change.after is not None and _is_judged(key.file, run)
        for name in change.after.find_narrowed(change.before)
    ]
    if not run.own_code_only:
        had, has = baseline.recordings, run.baseline.recordings
        if had is not None and has is not None and has > had:
            message = f"{pluralize(has, 'CUDA-graph recording')}; the baseline has {had}"
            worse.append(Issue("recording", "recordings", message, had, has))
        grown, shrunk = _compare_counts(changes.counts, worse, better, more_frames=more_frames)
        worse, better = [*worse, *grown], [*better, *shrunk]
    return worse, better, known, notices


def _describe_moves(relocated: Relocated) -> Iterable[str]:
    """Describe what is allowed where it is now, because it was allowed where it was."""
    named = [
        (describe_entry(entry), move)
        for entry in relocated.baseline.allowed
        for move in relocated.moves
        if move.after == entry.key and move.group != "frames"
    ]
    for text, move in named[:_MAX_MOVES]:
        yield f"moved from {format_place(move.before)}, and known there: {text}"
    if (more := len(named) - _MAX_MOVES) > 0:
        yield f"{pluralize(more, 'more item')} moved, and known where they were"


def _is_judged(file: str | None, run: RunBaseline) -> bool:
    return not run.own_code_only or is_own(file)


def _find_grown_frames(run: RunBaseline, changes: RunChanges) -> tuple[list[Issue], bool]:
    """Find frames that are compiled more often, recompiles aside, and whether all frames together
    are. A frame that no longer runs eager may."""

    def count_firsts(frame: KnownFrame | None) -> int:
        return max(0, frame.count - frame.recompiles) if frame is not None else 0

    judged = [
        change
        for key, change in changes.frames.items()
        if _is_judged(key.file, run) or change.after is not None
        if (eager := changes.fallbacks.get(key)) is None or eager.kind != "gone"
    ]
    more = sum(count_firsts(change.after) - count_firsts(change.before) for change in judged) > 0
    grown = [
        build_frame_issue(run, change.after, count_firsts(change.before))
        for change in judged
        if change.after is not None and count_firsts(change.after) > count_firsts(change.before)
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


def _compare_counts(
    counts: Iterable[CountChange],
    worse: Iterable[Issue],
    better: Iterable[Issue],
    *,
    more_frames: bool,
) -> tuple[list[Issue], list[Issue]]:
    kinds_worse, kinds_better = {issue.kind for issue in worse}, {issue.kind for issue in better}
    recovered = "fallback" in kinds_better and not more_frames
    grown: dict[str, Issue] = {}
    shrunk: list[Issue] = []
    for count in counts:
        kinds, name, after = _EXPLAINED_BY.get(count.name, ()), count.name, count.after
        message = f"{name.replace('_', ' ')}: {after}, and the baseline has {count.before}"
        made = Issue("count", name, message, count.before, after)
        if count.change > 0 and not kinds_worse.intersection(kinds):
            # A frame that no longer runs eager is compiled instead: that is no regression.
            if not (recovered and name in ("frames", "compiles", "graphs")):
                grown[name] = made
        elif count.change < 0 and not kinds_better.intersection(kinds):
            shrunk.append(made)
    # For counts that grew together the most specific one: a recompile is a compile and a graph.
    if grown.keys() & {"recompiles", "frames"}:
        grown.pop("compiles", None)
        grown.pop("graphs", None)
    elif "compiles" in grown:
        grown.pop("graphs", None)
    return [*grown.values()], shrunk


def list_enlarged(before: ConfigBaseline | None, now: ConfigBaseline, base: str) -> tuple[str, ...]:
    """Describe what is allowed that `base` does not allow; counts only where no key says it."""
    if before is None:
        return (
            f"this change adds the configuration {now.name!r}: the baseline of {base} lacks it",
        )
    changes = find_changes(relocate(before, now).baseline, now)
    sentences: list[str] = []
    for change in changes.allowed.values():
        entry: Allowed | None = change.after
        if entry is not None and change.count_after > change.count_before:
            why = f"reason: {entry.reason[:_REASON_CHARS]}" if entry.reason else "no reason given"
            counts = f"{change.count_before} → {change.count_after}"
            sentences.append(f"{describe_entry(entry)} {counts} ({why})")
    if not sentences:
        sentences = [
            f"{count.name.replace('_', ' ')} {count.before} → {count.after}"
            for count in changes.counts
            if count.change > 0
        ]
    if not sentences:
        return ()
    more = len(sentences) - _NAMED
    head = f"this change itself allows {pluralize(len(sentences), 'thing')} that {base} does not"
    shown = "; ".join(sentences[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
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
    baseline: ConfigBaseline | None = None,
    baseline_name: str | None = None,
    strict: bool = False,
    own_code_only: bool = False,
    configuration: str | None = None,
    code: CodeComparison | None = None,
    enlarged: Sequence[str] = (),
    require_proved_fix: bool = False,
) -> Judgement:
    """Judge a receipt. `baseline_name` is the file of the baseline: with it and no `baseline` the
    receipt's configuration is absent there, which is an error and no pass. `configuration` is the
    name to judge the receipt under, its own by default. `code` is the receipt's code against what
    is checked out; None: not compared. `enlarged` says what the change allows itself. With
    `require_proved_fix` each finding needs a proved change, also one that the baseline allows."""
    name = configuration or receipt.header.configuration.name
    whole = build_run_baseline(receipt, name)
    run = build_run_baseline(receipt, name, own_code_only=True) if own_code_only else whole
    reasons = [
        *(code.reasons if code is not None else ()),
        *find_inconclusive(receipt),
        *describe_unmeasured(receipt, run, limits),
    ]
    if baseline is not None:
        reasons += _explain_mismatch(receipt, whole, baseline)
    elif baseline_name is not None:
        reasons.append(f"the baseline {baseline_name} has no configuration {name!r}")
    differences: Differences = ((), (), (), ())
    usable, failures = baseline if not reasons else None, list[Issue]()
    if usable is not None:
        differences = compare_with_baseline(receipt, run, whole, usable)
    worse, better, known, notices = differences
    if not reasons:
        proofs = find_unproved(receipt, run) if require_proved_fix else ()
        failures = _sort_by_importance([*worse, *find_broken(receipt, run, limits), *proofs])
    return Judgement(
        configuration=name,
        receipt_id=receipt.receipt_id,
        verdict=receipt.verdict,
        baseline=baseline_name,
        limits=tuple(str(limit) for limit in limits),
        counts=_pair_counts(run, usable if not own_code_only else None),
        failures=(*(Issue("not_judged", "not_judged", why) for why in reasons), *failures),
        improvements=tuple(better),
        known=tuple(_sort_by_importance(known)),
        notices=(
            *enlarged,
            *(code.notices if code is not None else ()),
            *notices,
            *_list_notices(receipt, usable, known, own_code_only=own_code_only),
        ),
        strict=strict,
        require_proved_fix=require_proved_fix,
    )


def _explain_mismatch(receipt: Receipt, run: RunBaseline, known: ConfigBaseline) -> Iterable[str]:
    """Explain why the baseline says nothing of a run: what it did not measure is no improvement."""
    yield from find_mismatches(receipt, known)
    if known.recordings is not None and run.baseline.recordings is None:
        without = receipt.cudagraph is not None and receipt.cudagraph.applicable is False
        why = "had no CUDA device" if without else "did not measure them"
        yield f"the baseline counts CUDA-graph recordings ({known.recordings}) and this run {why}"


def _sort_by_importance(issues: Iterable[Issue]) -> list[Issue]:
    """Sort most important first, each once: what a limit shows may be a failure already."""
    unique: dict[tuple[str, ...], Issue] = {}
    for issue in issues:
        about = (issue.kind, issue.rule, issue.file, issue.function, issue.variable, issue.detail)
        same = tuple(str(part) for part in (*about, issue.message if issue.file is None else ""))
        unique.setdefault(same, issue)
    return sorted(
        unique.values(), key=lambda issue: (_ORDER.index(issue.kind), -(issue.cost_s or 0.0))
    )


def _pair_counts(run: RunBaseline, baseline: ConfigBaseline | None) -> tuple[CountChange, ...]:
    """Pair the counts of both; one that the baseline does not have is shown as unchanged."""
    now = dict(run.baseline.counts)
    before = dict(baseline.counts) if baseline is not None else {}
    if run.baseline.recordings is not None:
        now["recordings"] = run.baseline.recordings
        if baseline is not None and baseline.recordings is not None:
            before["recordings"] = baseline.recordings
    return tuple(CountChange(name, before.get(name, count), count) for name, count in now.items())


def _list_notices(
    receipt: Receipt,
    baseline: ConfigBaseline | None,
    known: Iterable[Issue],
    *,
    own_code_only: bool,
) -> Iterable[str]:
    cut = [reason for reason in receipt.completeness.reasons if reason.startswith("compile.events")]
    yield from (*cut, *(f"not observed: {loss}" for loss in list_harmless_losses(receipt)))
    if baseline is None:
        return
    if own_code_only:
        yield "counts are of your own code; the baseline's are of all code and are not compared"
    now = get_torch_release(receipt)
    if baseline.torch is not None and now is not None and baseline.torch != now:
        yield f"recorded with torch {baseline.torch}, judged with torch {now}"
    if baseline.recordings is None and receipt.cudagraph and receipt.cudagraph.recordings:
        yield f"CUDA-graph recordings ({receipt.cudagraph.recordings}) are not in the baseline"
    unexplained = [issue.variable or f"{issue.function}" for issue in known if not issue.reason]
    if unexplained:
        rest = f" and {len(unexplained) - _MAX_NAMED} more" if len(unexplained) > _MAX_NAMED else ""
        yield (
            f"allowed without a reason: {', '.join(unexplained[:_MAX_NAMED])}{rest}; "
            "give one with --update --reason TEXT"
        )


def find_unproved(receipt: Receipt, run: RunBaseline) -> Iterable[Issue]:
    """Find each finding of at least `warning` without a proof, also one that a baseline allows.
    What was tried in vain has to be edited by hand; all else `compilediag fix` can try."""
    for finding in receipt.findings:
        if finding.severity == "info" or not run.is_finding_counted(finding):
            continue
        if (why := explain_missing_proof(finding, receipt)) is not None:
            issue = build_finding_issue(receipt, finding)
            number = finding.id.removeprefix("F")
            following = "explain" if finding.fix.refused else "fix"
            message = f"{issue.message}: {why}; run `compilediag {following} {number}`"
            yield replace(issue, kind="unproved", message=message, after=None)


# --- into a baseline ------------------------------------------------------------------------------

EntryT = TypeVar("EntryT", KnownCause, KnownBreak, KnownFallback)


class RecordedBaseline(NamedTuple):
    """A configuration as it is to be written."""

    baseline: ConfigBaseline
    inconclusive: tuple[str, ...]  #: Why the run must not be recorded: blind, torn, killed.
    #: Causes, breaks and fallbacks that the baseline did not have and that have no reason.
    unexplained: tuple[str, ...]
    without_reason: tuple[str, ...]  #: What is allowed and still has no reason.
    allowed: tuple[str, ...] = ()  #: Everything that is allowed now.
    explained: frozenset[str] = frozenset()  #: The names in `reasons` that something allowed has.


def record_baseline(
    receipt: Receipt,
    baseline: ConfigBaseline | None,
    *,
    reason: str | None = None,
    reasons: Sequence[tuple[str, str]] = (),
    configuration: str | None = None,
    code: CodeComparison | None = None,
) -> RecordedBaseline:
    """Record a receipt as the new baseline of its configuration. `reason` is for all that has none
    yet, `reasons` for what has a name in its description."""
    now = build_run_baseline(receipt, configuration).baseline
    old = baseline if baseline is not None else ConfigBaseline(now.name, {}, {})
    old = relocate(old, now).baseline
    new = replace(
        now,
        causes=_merge(now.causes, old.causes, reason, reasons),
        breaks=_merge(now.breaks, old.breaks, reason, reasons),
        fallbacks=_merge(now.fallbacks, old.fallbacks, reason, reasons),
        counts={**{k: v for k, v in old.counts.items() if k not in now.counts}, **now.counts},
    )
    known = {(type(entry), entry.key) for entry in old.allowed}
    added = [entry for entry in new.allowed if (type(entry), entry.key) not in known]
    return RecordedBaseline(
        baseline=new,
        inconclusive=(*(code.reasons if code is not None else ()), *find_inconclusive(receipt)),
        unexplained=tuple(describe_entry(entry) for entry in added if entry.reason is None),
        without_reason=tuple(
            describe_entry(entry) for entry in new.allowed if entry.reason is None
        ),
        allowed=tuple(describe_entry(entry) for entry in new.allowed),
        explained=frozenset(
            name
            for name, _ in reasons
            if any(name in describe_entry(entry) for entry in new.allowed)
        ),
    )


def _merge(
    now: Iterable[EntryT],
    old: Iterable[EntryT],
    reason: str | None,
    reasons: Sequence[tuple[str, str]],
) -> tuple[EntryT, ...]:
    """Merge what is there now with the reasons of what was allowed."""
    known = {entry.key: entry.reason for entry in old}
    merged: list[EntryT] = []
    for entry in now:
        own = next((text.strip() for name, text in reasons if name in describe_entry(entry)), None)
        merged.append(replace(entry, reason=own or known.get(entry.key) or reason))
    return tuple(merged)
