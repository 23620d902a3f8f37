"""Watched lines of the program: which were run, by the interpreter or as a part of compiled code.

Lines are followed from the start of the process, before the main script, in code that holds a
watched line that was not seen yet, and in no other; once all were seen nothing is followed. Dynamo
is asked which lines it traces: no line of code that it made is looked at. On Python 3.11 and
earlier nothing is seen in threads that are made in C++, such as autograd's for a device.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Iterable
from typing import Any

from compilediag_harness.base.post_import import PostImport
from compilediag_harness.base.session import Session
from compilediag_harness.blame.line_events import Monitoring, TraceFunction
from compilediag_harness.torch_internals import torch_compiles, torch_names
from compilediag_harness.wire import LinesRun, WatchedLines

NOT_TRACED = "this torch does not tell which lines it traces"


class _WatchedFile:
    def __init__(self, plan: WatchedLines) -> None:
        self.name = plan.file
        self.lines = frozenset(plan.lines)
        self.left = set(plan.lines)
        """Not seen yet."""
        self.traced: set[int] = set()
        """By Dynamo, in frames that have a graph."""


class LineWatcher:
    """Watches the planned lines in this process. What the interpreter and torch call never raises:
    a fault is the problem of what was seen."""

    def __init__(self, planned: Iterable[WatchedLines], imports: PostImport) -> None:
        self._files = {os.path.realpath(plan.file): _WatchedFile(plan) for plan in planned}
        self._open = set(self._files.values())
        """Those with lines that were not seen yet."""
        self._by_name: dict[str, _WatchedFile | None] = {}
        """By the name that code has its file under."""
        self._traced: dict[str, tuple[int, set[tuple[_WatchedFile, int]]]] = {}
        """The last attempt at each compile in progress, by its id, and the lines traced in it."""
        self._problem: str | None = None
        self._stopped = False
        self._events: Any = (
            TraceFunction(self, self._is_followed)
            if sys.version_info < (3, 12)
            else Monitoring(self, follows=self._is_followed)
        )
        self._events.resume()
        imports.run_after_import(torch_names.SYMBOLIC_CONVERT, lambda _: self._watch_dynamo())

    def handle_entry(self, frame: types.FrameType) -> None:
        """Nothing: lines alone count."""

    handle_exit = handle_entry

    def handle_line(self, frame: types.FrameType, line: int) -> None:
        """A line is about to be run."""
        file = self._find_file(frame.f_code)
        if file is not None:
            self._note_seen(file, line)

    def finish(self, session: Session) -> None:
        """Emit what was seen; nothing is followed any more."""
        self._stop()
        problem = self._events.problem or self._problem
        for file in self._files.values():
            run, traced = tuple(sorted(file.lines - file.left)), tuple(sorted(file.traced))
            session.emit(LinesRun(session.now(), file.name, run, traced, problem))

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._events.pause()  # finds out whether somebody else has taken over
            self._events.stop()

    def _is_followed(self, frame: types.FrameType) -> bool:
        try:
            if not self._open:
                self._stop()
                return False
            code = frame.f_code
            file = self._find_file(code)
            if file is None or file.left.isdisjoint(_list_lines(code)):
                return False
            return not torch_compiles.is_compiled_code(code)
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"
            return False

    def _find_file(self, code: types.CodeType) -> _WatchedFile | None:
        name = code.co_filename
        if name not in self._by_name:
            if name.startswith("<"):  # of generated code there is no end of names
                return None
            # At its first call: a relative path is another one in another folder.
            self._by_name[name] = self._files.get(os.path.realpath(name))
        return self._by_name[name]

    def _note_seen(self, file: _WatchedFile, line: int) -> None:
        file.left.discard(line)
        if not file.left:
            self._open.discard(file)

    def _watch_dynamo(self) -> None:
        if torch_compiles.watch_traced_lines(self._handle_traced) is None:
            self._problem = NOT_TRACED

    def _handle_traced(self, code: types.CodeType, line: int) -> None:
        try:
            file = self._find_file(code)
            if file is None or line not in file.lines:
                return
            torch_compiles.watch_metrics_rows(self._handle_row)
            compile_id, attempt = torch_compiles.get_compile_id(), torch_compiles.get_attempt()
            known = self._traced.get(compile_id)
            if known is None or known[0] != attempt:  # a restart traces anew
                known = self._traced[compile_id] = (attempt, set())
            known[1].add((file, line))
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"

    def _handle_row(self, row: Any) -> None:
        """A compile has ended: what it traced counts where it has a graph."""
        compile_id = str(getattr(row, "compile_id", None) or "")
        _, traced = self._traced.pop(compile_id, (0, ()))
        for file, line in traced if getattr(row, "graph_op_count", None) else ():
            file.traced.add(line)
            self._note_seen(file, line)


@functools.lru_cache(maxsize=4096)
def _list_lines(code: types.CodeType) -> frozenset[int]:
    return frozenset(line for _, _, line in code.co_lines() if line is not None)
