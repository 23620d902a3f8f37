"""Compares the events, torch's metrics and the text log; a disagreement makes the run blind.

Offsets that are no disagreement are allowed for: the attempt that hits the recompile limit prints a
"Recompiling" line and is no recompile; compiles of `isolate_recompiles` regions have ids above /0
and no reason; backward rows have no `Recompiled` event; after the limit every source is silent; ids
start again after `torch._dynamo.reset()`. A source that is absent does not disagree, and the text
log is the third source: where the two others agree and show everything, its loss costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from compilediag.timeline.compiles import LIMIT_WARNING
from compilediag.timeline.timeline import Process, TextLog, Timeline

_BREAK_TEXT = "\n  Explanation: "
TEXT_SOURCES = frozenset({"text_log", "recompiles", "graph_breaks"})
"""What is lost where torch's loggers fall silent."""

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of the sources about a run."""

    sources: dict[str, bool]
    """"events", "metrics", "text_log": whether each was there."""
    agree: bool | None
    """None when there was nothing to compare."""
    differences: tuple[str, ...]
    """One sentence with the numbers for each disagreement."""
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    """Everything compared, by name."""
    text_is_spare: bool = False
    """The text log was lost, and nothing with it: events and metrics agree, and torch's own totals
    count no graph break and no frame that ran eager beside those that are known."""


def reconcile(timeline: Timeline) -> Agreement:
    """Compare the sources of a run."""
    log = timeline.text_log if _is_text_complete(timeline) else None
    sources = {
        "events": any(_has_hook(process, "recompile_reasons") for process in timeline.processes),
        "metrics": any(_has_hook(process, "metrics_rows") for process in timeline.processes),
        "text_log": log is not None,
    }
    numbers = _collect_numbers(timeline)
    differences = [*_compare_attempts(timeline, numbers), *_compare_totals(timeline, numbers)]
    if log is not None:
        differences += _compare_text_log(timeline, log, numbers)
    compared = sum(sources.values()) > 1
    agree = not differences if compared or differences else None
    spare = (
        bool(agree)
        and sources["events"]
        and sources["metrics"]
        and not _is_text_complete(timeline)
        and _are_totals_complete(timeline)
    )
    return Agreement(sources, agree, tuple(differences), numbers, spare)


def _is_text_complete(timeline: Timeline) -> bool:
    """True if the whole text log is there. One that the program silenced half-way is no second
    opinion; CD902 reports the loss. Nor is one that was over its limit."""
    over_limit = timeline.text_log is not None and timeline.text_log.over_limit
    return not over_limit and not any(loss.source in TEXT_SOURCES for loss in timeline.lost)


def _find_limited_processes(timeline: Timeline) -> set[int]:
    """Find processes whose journals were over their limits: of those, `Recompiled` events and
    warnings are left out, and metrics rows are not."""
    return {part.index for part in timeline.processes if part.journal_limit_bytes is not None}


def _are_totals_complete(timeline: Timeline) -> bool:
    """True if torch's own totals leave no room for what only its loggers report: breaks, frames
    that it skips without a metrics row, and why CUDA graphs were left out."""
    if any(run.skips != 0 for run in timeline.cudagraphs) or _find_unseen_breaks(timeline):
        return False
    reports, breaks = sum(site.count for site in timeline.breaks), 0
    for process in timeline.processes:
        if process.torch is None:
            continue
        counters = process.ended.counters if process.ended is not None else {}
        if not counters.keys() >= _TOTALS:
            return False
        own = [row for row in timeline.compiles if row.forward and row.process == process.index]
        # A program may clear torch's counters: then they count fewer graphs than there are.
        eager = counters["frames_total"] - counters["frames_ok"]
        if counters["unique_graphs"] < sum(bool(i.guarded and i.graph_ops) for i in own):
            return False
        if not 0 <= eager <= sum(not row.guarded for row in own):
            return False
        breaks += counters["break_events"]
    return breaks <= reports


_TOTALS = {"frames_total", "frames_ok", "unique_graphs", "break_events"}


def _has_hook(process: Process, hook: str) -> bool:
    """True if torch was imported with this hook; a process that never imported torch has none."""
    return process.torch is not None and process.torch.hooks.get(hook, True)


def _collect_numbers(timeline: Timeline) -> dict[str, int]:
    rows = [attempt for attempt in timeline.compiles if attempt.has_row]
    numbers = {
        "frames": timeline.counts.frames,
        "rows": len(rows),
        "backward_rows": sum(1 for attempt in rows if attempt.kind == "backward"),
        "compiles": timeline.counts.compiles,
        "questions": len(timeline.recompiles),
        "recompiles": timeline.counts.recompiles,
        "limit_rows": sum(1 for attempt in rows if attempt.kind == "limit"),
        "limit_warnings": sum(bool(LIMIT_WARNING.search(seen.text)) for seen in timeline.warnings),
        "break_sites": len(timeline.breaks),
        "break_reports": sum(site.count for site in timeline.breaks),
        "unended_processes": sum(1 for process in timeline.processes if process.ended is None),
    }
    for process in timeline.processes:
        for name, value in (process.ended.counters if process.ended else {}).items():
            numbers[f"torch_{name}"] = numbers.get(f"torch_{name}", 0) + value
    numbers["entries_left_out"] = sum(event.entries_left_out for event in timeline.recompiles)
    if timeline.text_log is not None:
        numbers["text_lines_left_out"] = timeline.text_log.lines_left_out
        numbers["text_recompiling_lines"] = timeline.text_log.recompiling_lines
        numbers["text_limit_warnings"] = timeline.text_log.limit_warnings
        numbers["text_break_sites"] = len(timeline.text_log.break_sites)
    return numbers


def _compare_attempts(timeline: Timeline, numbers: dict[str, int]) -> Iterable[str]:
    """Compare events with metrics, compile by compile."""
    limited = _find_limited_processes(timeline)
    unasked = [
        recompile.compile_id
        for recompile in timeline.recompiles
        if not recompile.has_question and recompile.process not in limited
    ]
    observed = any(_has_hook(process, "recompile_reasons") for process in timeline.processes)
    if unasked and observed:
        yield (
            f"metrics give a recompile reason for {len(unasked)} compiles whose question the "
            f"events do not have ({_list_some(unasked)})"
        )
    lost = [
        attempt.compile_id
        for attempt in timeline.compiles
        if attempt.kind == "recompile" and attempt.recompile is None
    ]
    if lost:
        yield f"{len(lost)} recompiles have no reason ({_list_some(lost)})"
    silent = _find_unseen_breaks(timeline)
    if silent and _is_text_complete(timeline):
        yield (
            f"metrics tell of graph breaks in {len(silent)} compiles that the events do not show "
            f"({_list_some(silent)})"
        )
    warnings, rows = numbers["limit_warnings"], numbers["limit_rows"]
    if warnings and not limited and abs(warnings - rows) > numbers["unended_processes"]:
        yield f"torch warned {warnings} times of the recompile limit, metrics have {rows} such rows"


def _find_unseen_breaks(timeline: Timeline) -> list[str]:
    """Find compiles that metrics say were restarted for a break, and of which no break is known."""
    broken = {compile_id.partition("_")[0] for s in timeline.breaks for compile_id in s.compile_ids}
    return [
        attempt.compile_id
        for attempt in timeline.compiles
        if any(_BREAK_TEXT in reason for reason in attempt.restart_reasons)
        and attempt.compile_id.partition("_")[0] not in broken
    ]


def _compare_totals(timeline: Timeline, numbers: dict[str, int]) -> Iterable[str]:
    """Compare torch's own totals, recorded at the end of a process, with what arrived from it."""
    counted = [(process, process.ended.counters) for process in timeline.processes if process.ended]
    if not counted:
        return
    limited = _find_limited_processes(timeline)
    finished = Counter(attempt.process for attempt in timeline.compiles if attempt.has_row)
    finished.update(attempt.process for attempt in timeline.ahead_of_time)
    questions = Counter(event.process for event in timeline.recompiles if event.has_question)
    for process, counters in counted:
        name = f"process {process.started.pid if process.started else process.index}"
        rows, questions_arrived = finished[process.index], questions[process.index]
        expected_rows = counters.get("metrics_rows", rows)
        if expected_rows != rows:
            yield f"{name} counted {expected_rows} metrics rows, {rows} arrived"
        calls = counters.get("recompile_calls", questions_arrived)
        if calls != questions_arrived and process.index not in limited:
            yield f"{name} counted {calls} questions why to recompile, {questions_arrived} arrived"
    reports = numbers.get("torch_break_records")
    if reports is not None and not numbers["unended_processes"]:
        arrived = numbers["break_reports"]
        if arrived > reports or (reports and not arrived):
            yield f"{reports} graph-break reports were counted, {arrived} arrived"


def _compare_text_log(timeline: Timeline, log: TextLog, numbers: dict[str, int]) -> Iterable[str]:
    """Compare the text log with both. It has one "Recompiling" line for each `Recompiled` event,
    the one at the limit included. A killed process may have died between line and event."""
    slack = numbers["unended_processes"]
    lines, questions = numbers["text_recompiling_lines"], numbers["questions"]
    if abs(lines - questions) > slack:
        yield (
            f'the text log has {lines} "Recompiling function" lines, the events {questions} '
            f"({numbers['recompiles']} recompiles and {questions - numbers['recompiles']} attempts "
            "without a graph)"
        )
    warned, rows = numbers["text_limit_warnings"], numbers["limit_rows"]
    if abs(warned - rows) > slack:
        yield f"the text log has {warned} recompile-limit warnings, metrics {rows} such rows"
    if log.unknown_lines:
        yield f"{log.unknown_lines} lines of the text log were not understood"
    seen = {(site.file, site.line) for site in timeline.breaks}
    for only, where in ((log.break_sites - seen, "text log"), (seen - log.break_sites, "events")):
        if len(only) > slack:
            places = _list_some(f"{file}:{line}" for file, line in sorted(only))
            yield f"{len(only)} graph-break sites are only in the {where} ({places})"


def _list_some(texts: Iterable[str]) -> str:
    listed = list(texts)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
