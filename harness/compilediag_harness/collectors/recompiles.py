"""The guards that were false at a recompile: of the nearest cache entries, all of them."""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations, writers
from compilediag_harness.blame.changing_lines import add_changing_lines
from compilediag_harness.collectors.false_guards import describe_entry, strip_comments
from compilediag_harness.collectors.guard_facts import Baselines
from compilediag_harness.collectors.leaf_checks import ExaminedEntry, LeafChecks
from compilediag_harness.torch_internals import torch_compiles
from compilediag_harness.wire import EntryDiff, FalseGuard, Location, Recompiled, clip, clip_middle

_PREFIX = re.compile(r"^(!?\d+(?:/\d+)+(?:_\d+)?): ?")
# The messages that torch makes in C++ for a tensor guard: one mismatch, or another type.
_TENSOR = re.compile(
    r"^(?:tensor '(?P<a>.*)' [\w ]+ mismatch|expected type of '(?P<b>.*)' to be )", re.DOTALL
)
_ENTRIES, _ENTRIES_LATER = 8, 2
"""Cache entries recorded of a recompile; torch's default limit allows 8."""
_EXAMINED = 1024
"""Cache entries whose guards are evaluated at a recompile: of more, those used last."""
_MANY_RECOMPILES = 512
"""Recompiles of a process after which fewer entries are recorded: by then each repeats others."""
_REASON_CHARS = 2048
"""Longest printed reason that is read and recorded, its comment and stack at the end included."""
_COMPARED_CHARS = 512
"""A guard's text and torch's printed one are each cut somewhere beyond this."""
_BUDGET_S = 2.0
"""Longest analysis of one recompile, in CPU seconds; torch itself takes as long for such models."""


class RecompileCollector:
    """Analyses all cache entries each time torch determines why none of them fits."""

    def __init__(
        self, session: Session, baselines: Baselines, leave_out: Callable[[str, float], None]
    ) -> None:
        """`leave_out` is called with the compile in progress and our own seconds inside it."""
        self._session = session
        self._baselines = baselines
        self._leave_out = leave_out
        writers.clear_session()
        self.calls = 0

    def record_recompile(self, entries: list[Any], frame: Any, reasons: list[str]) -> None:
        """torch has its reasons, and compiles next; never raises."""
        started = time.monotonic()
        self.calls += 1
        try:
            diffs, problem, clipped_reasons = self._analyze_entries(entries, frame, reasons)
        except Exception as error:
            diffs, problem = [], f"{type(error).__name__}: {error}"
            clipped_reasons = [clip_middle(reason, _REASON_CHARS) for reason in reasons[:1]]
            self._session.record_fault("recompile analysis", error)
        spent = time.monotonic() - started
        compile_id = torch_compiles.get_compile_id()
        self._leave_out(compile_id, spent)
        self._session.collector_s += spent
        self._session.emit_in_step(
            Recompiled,
            *(compile_id, self._session.epoch, source_locations.get_location(frame.f_code)),
            reasons=tuple(clipped_reasons),
            entries=tuple(diffs),
            analysis_s=spent,
            problem=clip(problem, 500) if problem else None,
            entries_left_out=len(entries) - len(diffs),
        )

    def _analyze_entries(
        self, entries: list[Any], frame: Any, reasons: list[str]
    ) -> tuple[list[EntryDiff], str | None, list[str]]:
        """The entries, why they could not all be examined, and the printed reasons, clipped."""
        most = _ENTRIES if self.calls <= _MANY_RECOMPILES else _ENTRIES_LATER
        checks = LeafChecks(frame.f_locals, time.thread_time() + _BUDGET_S, len(entries))
        examined: list[ExaminedEntry] = []
        problem = None
        for entry in entries[:_EXAMINED]:
            baseline = self._baselines.get_facts(frame.f_code, str(entry.compile_id))
            checked = checks.examine(entry, baseline.lengths)
            if not checked.finished and len(examined) >= most:
                break  # the nearest are chosen of those used last
            examined.append(checked)
            if not checked.finished:
                problem = f"stopped after {_BUDGET_S:g} s at entry {entry.compile_id}"
                break
        # Those with the fewest false guards, of equals those used last, in torch's order. An entry
        # without a false leaf fails by something that has no leaf: one guard at least.
        distances = ((max(1, len(checked.false)), at) for at, checked in enumerate(examined))
        nearest = [examined[at] for at in sorted(at for _, at in heapq.nsmallest(most, distances))]
        ids = {str(checked.entry.compile_id) for checked in nearest}
        clipped_reasons = [
            clip_middle(reason, _REASON_CHARS)
            for at, reason in enumerate(reasons)
            if not at or _split_reason(reason)[0] in ids
        ]
        printed = dict(map(_split_reason, reversed(clipped_reasons)))
        writers.clear_instances()
        given = (frame.f_code, self._baselines, writers.ReachableNames())
        of_all = problem is None and len(examined) == len(entries)
        accepted = checks.accepted if of_all else None
        diffs = [describe_entry(checked, *given, accepted) for checked in nearest]
        scope = {"L": frame.f_locals, "G": frame.f_globals}
        diffs = add_changing_lines(diffs, frame.f_code, scope)
        diffs = [
            _add_printed_reason(diff, printed.get(diff.compile_id), checked.raised)
            for diff, checked in zip(diffs, nearest, strict=True)
        ]
        return diffs, problem, clipped_reasons


def _split_reason(reason: str) -> tuple[str, str]:
    """Split a printed reason into the compile id of the entry that it is about, and the rest: torch
    prints "0/1: reason"."""
    match = _PREFIX.match(reason)
    return (match[1], reason[match.end() :]) if match else ("", reason)


def _add_printed_reason(diff: EntryDiff, printed: str | None, raised: Set[str]) -> EntryDiff:
    """Adds the printed reason when no leaf accounts for it: accessor failures, relational guards,
    dictionary sizes, dead entries and other backends have no leaf that could be called. `raised`:
    what conditions raised, which torch evaluates last, and prints in place of a reason."""
    if printed is None:
        return diff
    head = printed.split("\nUser stack trace:")[0]
    expression = strip_comments(head)
    tensor = _TENSOR.match(expression)
    named = None if tensor is None else tensor["a"] or tensor["b"]
    for guard in diff.guards:  # printed without torch's `L[...]`
        text = strip_local_scope(guard.text)
        same = text[:_COMPARED_CHARS] == expression[:_COMPARED_CHARS]
        if same or (named is not None and strip_local_scope(guard.source) == named):
            return diff
    if expression in raised and diff.guards:
        return diff
    expression = f"a guard raised: {expression}" if expression in raised else expression
    user = _find_printed_line(printed, head)
    guard = FalseGuard(source="", leaf="PRINTED", text=clip(expression, 2048), user=user)
    return replace(diff, guards=(guard, *diff.guards))


def strip_local_scope(text: str) -> str:
    """Write `L['x']` as `x`, as torch does in its reasons."""
    return re.sub(r"L\[\s*['\"](.*?)['\"]\s*\]", r"\1", text)


def _find_printed_line(printed: str, head: str) -> Location | None:
    location = source_locations.parse_comment_location(head)
    stack = re.findall(r'File "([^"\n]+)", line (\d+), in (\S+)', printed)
    known = [file for file, _, _ in stack]
    if location is not None:
        location = source_locations.complete_path(location, known)
        if not source_locations.is_library(location.file):
            return location
    for file, line, function in reversed(stack):
        if not source_locations.is_library(file):
            return Location(file, int(line), function)
    return location
