"""Makes the items of a judgement: what a receipt tells of a cause, a break, a frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compilediag.compare.gate.attribution import (
    finding_of_break,
    finding_of_cause,
    finding_of_frame,
)
from compilediag.compare.gate.judgement import Item
from compilediag.compare.keys import BreakKey, CauseKey, FrameKey, function_key
from compilediag.compare.run_baseline import RunBaseline
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    EventCause,
    FindingRecord,
    GraphBreak,
    Place,
)
from compilediag.receipt.schema.receipt import Receipt

_STEPS_SHOWN = 5
_TEXT_CHARS = 300
"""Longest text of the target in a message; the receipt has the rest."""


def cause_item(receipt: Receipt, ledger: RunBaseline, key: CauseKey, before: int | None) -> Item:
    """A cause that the receipt has."""
    seen = ledger.causes[key]
    # The occurrence that torch decided by tells more than one that was false beside it.
    event, cause = next((pair for pair in seen if pair[1].primary), seen[0])
    finding = finding_of_cause(receipt, cause)
    values = f" ({cause.expected} → {cause.actual})" if cause.expected or cause.actual else ""
    steps = _steps([event for event, _ in seen])
    frame = function_key(event.frame.function)
    message = (
        f"{_cut(cause.variable)}{_cut(values)} made torch compile {frame} again: "
        f"{plural(len(seen), 'recompile')}{steps}"
    )
    return Item(
        kind="cause",
        rule=key.rule,
        message=message + _known_as(before, "recompile"),
        before=before,
        after=len(seen),
        file=cause.file,
        line=cause.line,
        function=function_key(cause.function) if cause.function is not None else None,
        variable=cause.variable,
        guard=_guard(cause),
        fix=_fix(finding),
        cost_s=_cost(finding, [event for event, _ in seen]),
        finding=finding.id if finding is not None else None,
    )


def break_item(receipt: Receipt, ledger: RunBaseline, key: BreakKey, before: int | None) -> Item:
    """A kind of graph break that the receipt has, with its sites."""
    sites = ledger.breaks[key]
    finding = finding_of_break(receipt, sites[-1])
    place = _place(sites[-1], finding)
    function, title = function_key(place.function), _cut(key.reason)
    where = f" at {plural(len(sites), 'place')}" if len(sites) > 1 else ""
    return Item(
        kind="break",
        rule=finding.rule if finding is not None else "graph_breaks",
        message=f"graph break in {function}{where}: {title or 'torch gave no reason'}"
        + _known_as(before, "place"),
        before=before,
        after=len(sites),
        file=place.file,
        line=place.line,
        function=function,
        detail=title or None,
        fix=_fix(finding),
        cost_s=finding.cost_s if finding is not None else None,
        finding=finding.id if finding is not None else None,
    )


def fallback_item(receipt: Receipt, ledger: RunBaseline, key: FrameKey, *, compared: bool) -> Item:
    """A frame that torch runs eager."""
    total = ledger.frames[key]
    finding = finding_of_frame(receipt, ledger.files[key], total.line, key.function)
    why = f": {_cut(_first_line(total.eager_reason))}" if total.eager_reason else ""
    return Item(
        kind="fallback",
        rule=finding.rule if finding is not None else "eager_fallbacks",
        message=f"{key.function} runs eager{why}"
        + ("; the baseline does not know it" if compared else ""),
        before=0 if compared else None,
        after=1,
        file=ledger.files[key],
        line=total.line,
        function=key.function,
        fix=_fix(finding),
        cost_s=finding.cost_s if finding is not None else None,
        finding=finding.id if finding is not None else None,
    )


def frame_item(ledger: RunBaseline, key: FrameKey, before: int, after: int) -> Item:
    """A frame that is compiled for the first time more often: another epoch, process or frame."""
    known = f"the baseline has {before}" if before else "the baseline does not know this frame"
    return Item(
        kind="frame",
        rule="frames" if not before else "compiles",
        message=f"{key.function} is compiled {plural(after, 'time')} without a recompile; {known}",
        before=before,
        after=after,
        file=ledger.files[key],
        line=ledger.frames[key].line,
        function=key.function,
    )


def finding_item(finding: FindingRecord, rule: str) -> Item:
    """A finding that a limit is about and that is no cause, break or frame."""
    place = finding.location
    title = finding.title or finding.slug.replace("-", " ")
    about = f": {finding.variable}" if finding.variable and finding.variable not in title else ""
    return Item(
        kind="limit",
        rule=rule,
        message=_cut(title + about),
        after=finding.count,
        file=place.file if place is not None else None,
        line=place.line if place is not None else None,
        function=function_key(place.function) if place is not None else None,
        variable=finding.variable,
        fix=_fix(finding),
        cost_s=finding.cost_s,
        finding=finding.id,
    )


def plural(count: int, noun: str) -> str:
    """The count with its noun: "1 recompile", "2 recompiles"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _place(site: GraphBreak, finding: FindingRecord | None) -> Place:
    """The line to change: the finding's, where torch names a line of its own."""
    if finding is not None and finding.location is not None:
        return finding.location
    return Place(file=site.file, line=site.line, function=site.function)


def _known_as(before: int | None, noun: str) -> str:
    if before is None:
        return ""
    return f"; the baseline has {plural(before, noun)}" if before else "; not in the baseline"


def _steps(events: Sequence[CompileEvent]) -> str:
    steps = sorted({event.step for event in events if event.step is not None})
    if not steps:
        return ""
    shown = ", ".join(str(step) for step in steps[:_STEPS_SHOWN])
    rest = f" and {len(steps) - _STEPS_SHOWN} more" if len(steps) > _STEPS_SHOWN else ""
    return f" at step{'s' if len(steps) > 1 else ''} {shown}{rest}"


def _guard(cause: EventCause) -> str:
    met = [
        f"{word} {value}"
        for word, value in (("expected", cause.expected), ("met", cause.actual))
        if value is not None
    ]
    return _cut(cause.guard) + (f" ({_cut(', '.join(met))})" if met else "")


def _fix(finding: FindingRecord | None) -> str | None:
    return finding.fix.summary if finding is not None else None


def _cost(finding: FindingRecord | None, events: Iterable[CompileEvent]) -> float | None:
    if finding is not None and finding.cost_s is not None:
        return finding.cost_s
    measured = [event.seconds for event in events if event.seconds is not None]
    return sum(measured) if measured else None


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0].strip()


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else text[: _TEXT_CHARS - 1] + "…"
