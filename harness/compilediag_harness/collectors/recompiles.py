"""Every guard that was false at a recompile."""

from __future__ import annotations

import re
import time
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.collectors.baselines import Baselines
from compilediag_harness.collectors.false_guards import GuardValues, expression_of, false_guards
from compilediag_harness.source import source_locations
from compilediag_harness.torch_internals import torch_compiles
from compilediag_harness.wire import EntryDiff, FalseGuard, Location, Recompiled, clip

_PREFIX = re.compile(r"^(!?\d+(?:/\d+)+(?:_\d+)?): ?")
# The messages that torch makes in C++ for a tensor guard: one mismatch, or another type.
_TENSOR = re.compile(
    r"^(?:tensor '(?P<a>.*)' [\w ]+ mismatch|expected type of '(?P<b>.*)' to be )", re.DOTALL
)
_MAX_ENTRIES = 64
"""Cache entries analysed per recompile: the default limits allow 8 to 256."""
_BUDGET_S = 2.0
"""Longest analysis of one recompile; torch itself takes seconds for models of that size."""


class RecompileCollector:
    """Analyses all cache entries each time torch determines why none of them fits."""

    def __init__(self, session: Session, baselines: Baselines) -> None:
        self._session = session
        self._baselines = baselines
        self.calls = 0
        self.analysis_s: dict[str, float] = {}
        """Our own seconds inside a compile in progress, by compile id; taken out of its cost."""

    def recompiled(self, entries: list[Any], frame: Any, reasons: list[str]) -> None:
        """torch has its reasons, and compiles next; never raises."""
        started = time.monotonic()
        self.calls += 1
        problem: str | None = None
        diffs: tuple[EntryDiff, ...] = ()
        try:
            diffs, problem = self._analyse(entries, frame, reasons, started)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            self._session.fault("recompile analysis", error)
        spent = time.monotonic() - started
        compile_id = torch_compiles.current_compile_id()
        self.analysis_s[compile_id] = self.analysis_s.get(compile_id, 0.0) + spent
        self._session.charge(spent)
        self._session.emit(
            Recompiled(
                t=self._session.now(),
                step=self._session.step,
                compile_id=compile_id,
                epoch=self._session.epoch,
                frame=source_locations.location_of(frame.f_code),
                reasons=tuple(clip(reason) for reason in reasons),
                entries=diffs,
                analysis_s=spent,
                problem=clip(problem, 500) if problem else None,
            )
        )

    def _analyse(
        self, entries: list[Any], frame: Any, reasons: list[str], started: float
    ) -> tuple[tuple[EntryDiff, ...], str | None]:
        # torch prints "0/1: reason", with the compile id of the entry that the reason is about.
        prefixes = [(_PREFIX.match(reason), reason) for reason in reasons]
        printed = {found[1]: reason[found.end() :] for found, reason in prefixes if found}
        given = GuardValues(frame.f_code, frame.f_locals, self._baselines, started + _BUDGET_S)
        diffs: list[EntryDiff] = []
        problem = None
        for entry in entries[:_MAX_ENTRIES]:
            compile_id = str(entry.compile_id)
            diff, finished = false_guards(entry, given)
            diffs.append(_with_printed(diff, printed.get(compile_id)))
            if not finished:
                problem = f"stopped after {_BUDGET_S:g} s at entry {compile_id}"
                break
        if len(entries) > _MAX_ENTRIES:
            problem = f"only the first {_MAX_ENTRIES} of {len(entries)} entries were analysed"
        return tuple(diffs), problem


def _with_printed(diff: EntryDiff, printed: str | None) -> EntryDiff:
    """Adds the printed reason when no leaf accounts for it: accessor failures, relational guards,
    dictionary sizes, dead entries and other backends have no leaf that could be called."""
    if printed is None:
        return diff
    head = printed.split("\nUser stack trace:")[0]
    expression = expression_of(head)
    if any(_same(expression, guard) for guard in diff.guards):
        return diff
    guard = FalseGuard(
        source="", leaf="PRINTED", text=clip(expression, 2048), user=_printed_line(printed, head)
    )
    return EntryDiff(diff.compile_id, (guard, *diff.guards), diff.checked, diff.unevaluated)


def _same(expression: str, guard: FalseGuard) -> bool:
    """Whether the printed expression (without torch's `L[...]`) is this guard."""
    if strip_local_scope(guard.text) == expression:
        return True
    tensor = _TENSOR.match(expression)
    if tensor is None:
        return False
    return strip_local_scope(guard.source) == (tensor["a"] or tensor["b"])


def strip_local_scope(text: str) -> str:
    """`L['x']` printed as `x`, as torch does in its reasons."""
    return re.sub(r"L\[\s*['\"](.*?)['\"]\s*\]", r"\1", text)


def _printed_line(printed: str, head: str) -> Location | None:
    location = source_locations.location_in_comment(head)
    stack = re.findall(r'File "([^"\n]+)", line (\d+), in (\S+)', printed)
    known = [file for file, _, _ in stack]
    if location is not None:
        location = source_locations.with_full_path(location, known)
        if not source_locations.is_library(location.file):
            return location
    for file, line, function in reversed(stack):
        if not source_locations.is_library(file):
            return Location(file, int(line), function)
    return location
