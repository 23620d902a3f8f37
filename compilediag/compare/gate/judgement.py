"""The result of a gate, as values: made by `judge`, shown by the views of `views/gate/`; its
issues are made of the causes, breaks, frames and findings of a receipt."""

from __future__ import annotations

import hashlib
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from compilediag.compare.changes import CountChange
from compilediag.compare.run_baseline import (
    Allowed,
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    RunBaseline,
    find_break_finding,
    find_cause_finding,
    find_frame_finding,
)
from compilediag.receipt.finding_keys import normalize_function
from compilediag.receipt.proofs import describe_proved_change
from compilediag.receipt.schema.compiles import FindingRecord, UserCallRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.user_line import find_leading_call, is_foreign

Kind = Literal[
    "limit",  # --fail-on: a count over its limit
    "count",  # a count over the baseline's that no kind below explains
    "cause",  # a cause that the baseline does not have, or that is met more often
    "break",  # a graph-break site
    "fallback",  # a frame that torch runs eager
    "frame",  # a frame that accepts fewer sizes, or is compiled more often without a recompile
    "recording",  # CUDA-graph recordings
    "unproved",  # a finding for which no change is proved, where that is demanded
    "not_judged",  # blind, torn, another configuration or none: cannot be judged, which is no pass
]


class Issue(Struct, frozen=True):
    """One reason why a gate fails; or one thing that is better, or that is allowed."""

    kind: Kind
    #: A code of docs/rules where there is one (CD103), else the name of the count or the kind.
    rule: str
    message: str  #: One sentence: variable, guard, steps. Text of the target, not yet escaped.
    #: How often, in the baseline; the limit, for a limit. None: there is nothing to compare.
    before: int | None = None
    after: int | None = None  #: How often, in the receipt.
    file: str | None = None  #: Relative to the working directory of the run where it lies below it.
    line: int | None = None
    function: str | None = None
    variable: str | None = None
    guard: str | None = None  #: The guard, with what it expected and what it met.
    fix: str | None = None  #: What to change.
    cost_s: float | None = None  #: Seconds it cost in this run; for information.
    finding: str | None = None  #: Its details: `compilediag explain 1` for "F1".
    key: str | None = None  #: The same over runs: CD103-rotary.
    reason: str | None = None  #: Why it is allowed, for what the baseline has.
    #: What tells apart two of one function without a variable: torch's reason for a break.
    detail: str | None = None
    #: The call of the program's own that led there, where that place is in a library or in torch:
    #: the line to look at first. It is no part of the fingerprint.
    call: UserCallRecord | None = None
    proved: str | None = None  #: The change that `compilediag fix` proved, and what it does.

    #: The same for the same fault after lines have moved: 32 hexadecimal digits, made here.
    fingerprint: str = ""

    def __post_init__(self) -> None:
        """Make the fingerprint of what this is, and not of where or how often it was met."""
        # msgspec calls this on `replace` too, so that the fingerprint follows the fields.
        parts = [self.kind, self.rule, self.file or "", self.function or "", self.variable or ""]
        parts += [self.detail] if self.detail else []
        text = "\x00".join(parts).encode("utf-8", "replace")
        force_setattr(self, "fingerprint", hashlib.sha256(text).hexdigest()[:32])


class Judgement(Struct, frozen=True, kw_only=True):
    """The result of a gate for one receipt; its fields in the order of its JSON."""

    configuration: str = field(name="lane")
    passed: bool = False  #: Whether nothing fails; made here, as is the next.
    judged: bool = False  #: Whether everything could be judged.
    receipt_id: str
    verdict: str | None  #: The receipt's own: clean, findings or blind.
    baseline: str | None  #: The baseline's file as it was given; None where only limits were given.
    limits: tuple[str, ...]  #: The limits that were given, as they were written.
    strict: bool = False  #: Improvements fail as well, until the baseline is updated.
    require_proved_fix: bool = False  #: Each finding of at least `warning` needs a proved change.
    counts: tuple[CountChange, ...]  #: Every count; without a baseline, `before` is the receipt's.
    failures: tuple[Issue, ...]  #: Most important first: formats with a limit cut the end.
    improvements: tuple[Issue, ...] = ()
    known: tuple[Issue, ...] = ()  #: Causes, breaks and fallbacks that the baseline allows.
    notices: tuple[str, ...] = ()  #: For information: another torch, no reason, no timings.

    def __post_init__(self) -> None:
        """Derive `passed` and `judged` from failures and improvements."""
        force_setattr(self, "passed", not self.failures and not (self.strict and self.improvements))
        unjudged = any(issue.kind == "not_judged" for issue in self.failures)
        force_setattr(self, "judged", not unjudged)


# --- items ---------------------------------------------------------------------------------------

_MAX_STEPS = 5
_MAX_CHARS = 300  #: Longest text of the target in a message; the receipt has the rest.


def build_issue(receipt: Receipt, run: RunBaseline, known: Allowed, before: int | None) -> Issue:
    """Build the issue of a cause, a graph break or a fallback of the run. `before`: how often the
    baseline has it; None where there is no baseline."""
    if isinstance(known, KnownCause):
        return _build_cause(receipt, run, known, before)
    if isinstance(known, KnownBreak):
        return _build_break(receipt, run, known, before)
    return _build_fallback(receipt, run, known, before)


def _build_cause(receipt: Receipt, run: RunBaseline, known: KnownCause, old: int | None) -> Issue:
    recompiles = run.causes[known.key]
    # The guard by which torch decided is more useful than one that was false beside it.
    event, cause = next((pair for pair in recompiles if pair[1].primary), recompiles[0])
    steps = sorted({event.step for event, _ in recompiles if event.step is not None})
    shown = ", ".join(str(step) for step in steps[:_MAX_STEPS])
    shown += f" and {len(steps) - _MAX_STEPS} more" if len(steps) > _MAX_STEPS else ""
    at = f" at step{'s' if len(steps) > 1 else ''} {shown}" if steps else ""
    words = (("expected", cause.expected), ("met", cause.actual))
    met = [f"{word} {value}" for word, value in words if value is not None]
    values = f" ({cause.expected} → {cause.actual})" if cause.expected or cause.actual else ""
    message = (
        f"{_shorten(cause.variable)}{_shorten(values)} made torch compile "
        f"{normalize_function(event.frame.function)} again: {pluralize(known.count, 'recompile')}"
        f"{at}{_describe_baseline_count(old, 'recompile')}"
    )
    measured = [event.seconds for event, _ in recompiles if event.seconds is not None]
    issue = Issue(
        kind="cause",
        rule=known.key.rule,
        message=message,
        before=old,
        after=known.count,
        file=cause.file,
        line=cause.line,
        function=known.key.function,
        # The call of the recompile itself: a finding has the first one's.
        call=event.entered_at if is_foreign(None, cause.file or event.frame.file) else None,
        variable=cause.variable,
        guard=(_shorten(cause.guard) + (f" ({_shorten(', '.join(met))})" if met else "")).strip(),
        cost_s=sum(measured) if measured else None,
    )
    return _add_finding(issue, receipt, find_cause_finding(receipt, cause))


def _build_break(receipt: Receipt, run: RunBaseline, known: KnownBreak, old: int | None) -> Issue:
    site = run.breaks[known.key][-1]
    finding = find_break_finding(receipt, site)
    # torch may name a line of its own; the finding has the line to change.
    where = finding.location if finding is not None and finding.location is not None else site
    function, title = normalize_function(where.function), _shorten(known.key.reason)
    at = f" at {pluralize(known.count, 'place')}" if known.count > 1 else ""
    issue = Issue(
        kind="break",
        rule=finding.rule if finding is not None else "graph_breaks",
        message=f"graph break in {function}{at}: {title or 'torch gave no reason'}"
        + _describe_baseline_count(old, "place"),
        before=old,
        after=known.count,
        file=where.file,
        line=where.line,
        function=function,
        call=find_leading_call(site if finding is None else finding),
        detail=title or None,
    )
    return _add_finding(issue, receipt, finding)


def _build_fallback(
    receipt: Receipt, run: RunBaseline, known: KnownFallback, old: int | None
) -> Issue:
    total, function = run.frames[known.key], known.key.function
    finding = find_frame_finding(receipt, total.frame.file, total.frame.line, function)
    reason = (total.eager_reason or "").partition("\n")[0].strip()
    why = f": {_shorten(reason)}" if total.eager_reason else ""
    issue = Issue(
        kind="fallback",
        rule=finding.rule if finding is not None else "eager_fallbacks",
        message=f"{function} runs eager{why}" + ("; not in the baseline" if old == 0 else ""),
        before=old,
        after=known.count,
        file=total.frame.file,
        line=total.frame.line,
        function=function,
        call=find_leading_call(total),
    )
    return _add_finding(issue, receipt, finding)


def build_frame_issue(run: RunBaseline, known: KnownFrame, before: int) -> Issue:
    """Build that of a frame with more first compiles: another epoch, process or frame."""
    in_baseline = f"the baseline has {before}" if before else "this frame is not in the baseline"
    function, after = known.key.function, known.count - known.recompiles
    times, total = pluralize(after, "time"), run.frames[known.key]
    return Issue(
        kind="frame",
        rule="compiles" if before else "frames",
        message=f"{function} is compiled {times} without a recompile; {in_baseline}",
        before=before,
        after=after,
        file=total.frame.file,
        line=total.frame.line,
        function=function,
        call=find_leading_call(total),
    )


def build_narrowed_issue(run: RunBaseline, known: KnownFrame, name: str) -> Issue:
    """Build that of a frame whose graphs accept fewer sizes of dimensions than they did."""
    issue = replace(build_frame_issue(run, known, 0), before=None, after=None, detail=name)
    message = f"{known.key.function} accepts fewer sizes of {name} than in the baseline"
    return replace(issue, rule="accepted_sizes", message=message)


def build_finding_issue(receipt: Receipt, finding: FindingRecord) -> Issue:
    """Build that of a finding that a limit is about and that is no cause, break or frame."""
    where = finding.location
    title = finding.title or finding.slug.replace("-", " ")
    about = f": {finding.variable}" if finding.variable and finding.variable not in title else ""
    issue = Issue(
        kind="limit",
        rule=finding.rule,
        message=_shorten(title + about),
        after=finding.count,
        file=where.file if where is not None else None,
        line=where.line if where is not None else None,
        function=normalize_function(where.function) if where is not None else None,
        call=find_leading_call(finding),
        variable=finding.variable,
    )
    return _add_finding(issue, receipt, finding)


def _add_finding(issue: Issue, receipt: Receipt, finding: FindingRecord | None) -> Issue:
    if finding is None:
        return issue
    cost_s = finding.cost_s if finding.cost_s is not None else issue.cost_s
    fix = finding.fix.summary if finding.fix.recipe is not None else None
    proved = describe_proved_change(finding, receipt)
    known = {"finding": finding.id, "key": finding.key}
    return replace(issue, fix=fix, proved=proved, cost_s=cost_s, **known)


def build_improvement(known: Allowed, after: int) -> Issue:
    """Build that of what the baseline has and the run has less often, or no more."""
    key, before = known.key, known.count
    if isinstance(known, KnownCause):
        kind, rule, what = "cause", known.key.rule, f"{known.key.variable} made torch compile again"
    elif isinstance(known, KnownBreak):
        kind, rule = "break", "graph_breaks"
        what = f"graph break in {known.key.function}: {known.key.reason}"
    else:
        kind, rule, what = "fallback", "eager_fallbacks", f"{key.function} runs eager"
    return Issue(
        kind=kind,
        rule=rule,
        message=f"{'less often' if after else 'no more'}: {what} ({before} → {after})",
        before=before,
        after=after,
        file=key.file,
        function=key.function,
        variable=known.key.variable if isinstance(known, KnownCause) else None,
        detail=known.key.reason if isinstance(known, KnownBreak) else None,
    )


def describe_entry(entry: Allowed) -> str:
    """Describe in a few words what a baseline allows."""
    if isinstance(entry, KnownCause):
        return f"{entry.key.rule} {entry.key.variable}"
    if isinstance(entry, KnownBreak):
        return f"graph break in {entry.key.function} of {entry.key.file}"
    return f"{entry.key.function} of {entry.key.file} runs eager"


def pluralize(count: int, noun: str) -> str:
    """Format a count with its noun: "1 recompile", "2 recompiles"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _describe_baseline_count(before: int | None, noun: str) -> str:
    if before is None:
        return ""
    return f"; the baseline has {pluralize(before, noun)}" if before else "; not in the baseline"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"
