"""Watched lines of the program: which were run, by the interpreter or as a part of compiled code.

Lines are followed from the start of the process, before the main script, in code that holds a
watched line that was not seen yet, and in no other; once all were seen nothing is followed. Dynamo
is asked which lines it traces: no line of code that it made is looked at. On Python 3.11 and
earlier nothing is seen in threads that are made in C++, such as autograd's for a device.
"""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Collection
from typing import Any

from compilediag_harness.base.post_import import PostImport
from compilediag_harness.base.session import Session
from compilediag_harness.blame.line_events import make_line_events
from compilediag_harness.blame.source_locations import list_lines
from compilediag_harness.torch_internals import torch_compiles, torch_names
from compilediag_harness.wire import LinesRun, WatchedLines

NOT_TRACED = "this torch does not tell which lines it traces"


class LineWatcher:
    """Watches the planned lines in this process."""

    def __init__(self, planned: Collection[WatchedLines], imports: PostImport) -> None:
        self._planned = planned
        self._left = {os.path.realpath(plan.file): set(plan.lines) for plan in planned}
        """Lines that were not seen yet, by file."""
        self._in_graph: dict[str, set[int]] = {file: set() for file in self._left}
        self._traced: dict[str, tuple[int, set[tuple[str, int]]]] = {}
        """The last attempt at each compile in progress, by its id, and the lines traced in it."""
        self._problem: str | None = None
        self._stopped = False
        self._events = make_line_events(self, self._is_followed)
        self._events.resume()
        imports.run_after_import(torch_names.SYMBOLIC_CONVERT, lambda _: self._watch_dynamo())

    def handle_entry(self, frame: types.FrameType) -> None:
        """Nothing: lines alone count."""

    handle_exit = handle_entry

    def handle_line(self, frame: types.FrameType, line: int) -> None:
        """A line is about to be run."""
        if file := self._find_file(frame.f_code):
            self._left[file].discard(line)
            self._stop_if_done()

    def finish(self, session: Session) -> None:
        """Emit what was seen; nothing is followed any more."""
        self._stop()
        problem = self._events.problem or self._problem
        for plan in self._planned:
            file = os.path.realpath(plan.file)
            run = tuple(sorted({*plan.lines} - self._left[file]))
            in_graph = tuple(sorted(self._in_graph[file] & {*plan.lines}))
            session.emit(LinesRun(session.now(), plan.file, run, in_graph, problem))

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._events.pause()  # finds out whether somebody else has taken over
            self._events.stop()

    def _stop_if_done(self) -> None:
        if not any(self._left.values()):
            self._stop()

    # Invariant: called by the interpreter at each call of a function, in whatever thread: it raises
    # nothing, and is cheap for files without watched lines.
    def _is_followed(self, frame: types.FrameType) -> bool:
        code = frame.f_code
        file = self._find_file(code)
        if not file:
            return False
        self._stop_if_done()  # what was left may have been traced by Dynamo
        left = self._left[file]
        return not (left.isdisjoint(list_lines(code)) or torch_compiles.is_compiled_code(code))

    def _find_file(self, code: types.CodeType) -> str:
        """Find the file of code; empty where it has no watched lines."""
        file = _resolve(code.co_filename)
        return file if file in self._left else ""

    def _watch_dynamo(self) -> None:
        if torch_compiles.watch_traced_lines(self._handle_traced) is None:
            self._problem = NOT_TRACED

    def _handle_traced(self, code: types.CodeType, line: int) -> None:
        file = self._find_file(code)
        if not file:
            return
        torch_compiles.watch_metrics_rows(self._handle_row)
        compile_id, attempt = torch_compiles.get_compile_id(), torch_compiles.get_attempt()
        known = self._traced.get(compile_id)
        if known is None or known[0] != attempt:  # a restart traces anew
            known = self._traced[compile_id] = (attempt, set())
        known[1].add((file, line))

    def _handle_row(self, row: Any) -> None:
        """A compile has ended: what it traced is run where it was not given up."""
        compile_id = str(getattr(row, "compile_id", None) or "")
        _, traced = self._traced.pop(compile_id, (0, ()))
        for file, line in traced if getattr(row, "has_guarded_code", None) else ():
            self._left[file].discard(line)
            if getattr(row, "graph_op_count", None):
                self._in_graph[file].add(line)


# At its first call: a relative path is another one in another folder.
@functools.lru_cache(maxsize=1 << 16)
def _resolve(name: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        return os.path.realpath(name)
    return ""
