"""The trial in this process: its plan is read when the process starts, what needs no torch is put
in place then, the rest when torch is imported."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections.abc import Callable, Collection, Generator, Iterator
from typing import Any

from compilediag_harness.base.object_graph import cache_by_code
from compilediag_harness.base.post_import import PostImport
from compilediag_harness.base.resumed_frames import find_resumed_line
from compilediag_harness.base.session import Session
from compilediag_harness.blame.line_events import make_line_events, pause_in_compiles
from compilediag_harness.blame.source_locations import list_lines
from compilediag_harness.shapes.side_effects import RandomStates
from compilediag_harness.torch_internals import torch_calls, torch_compiles, torch_names
from compilediag_harness.torch_internals.torch_graphs import OUTPUT_GRAPH
from compilediag_harness.torch_internals.torch_names import Remover
from compilediag_harness.trials import settings
from compilediag_harness.trials.outputs import CallSeconds, OutputWatcher
from compilediag_harness.trials.plan import Notes
from compilediag_harness.trials.program_output import ProgramOutput, WrittenFiles
from compilediag_harness.trials.redirected_writes import RedirectedWrites
from compilediag_harness.trials.settings import OVERRIDDEN, PlannedArguments, PlannedSettings
from compilediag_harness.trials.sources import ReplacedSources
from compilediag_harness.trials.varied_calls import vary_calls
from compilediag_harness.wire import (
    LinesRun,
    RandomStateRead,
    RecordingPlan,
    TrialPlan,
    WatchedLines,
    describe_stance,
)


class ActiveTrial:
    """The trial that this process is part of; made, and what needs no torch put in place, when the
    process starts, before the program does."""

    def __init__(self, chosen: TrialPlan) -> None:
        self._plan = chosen
        self._notes = Notes()
        self._imports = PostImport()
        self._undo: list[Remover] = []
        self._settings = PlannedSettings(chosen.settings, self._notes)
        self._session: Session | None = None
        self._pid = os.getpid()
        self._torch: Any = None
        self._outputs: OutputWatcher | None = None
        self._call_seconds: CallSeconds | None = None
        self._last: list[Callable[[Session], None]] = []
        """What emits at the end of the process."""
        self._lines: LineWatcher | None = None
        self._writes: RedirectedWrites | None = None
        self._is_device_broken = False
        if chosen.protection is not None:  # before what else stands in place of `open`
            self._writes = RedirectedWrites(chosen.protection)
            self._writes.install(self._imports)
        self._sources = ReplacedSources(self._plan, self._notes)
        self._sources.install(self._imports)
        recording = self._plan.recording
        self.makes_calls_at_end = recording is not None and recording.vary_s > 0
        if self._plan.seed is not None:
            settings.seed_after_import(self._plan.seed, self._notes, self._imports)
        self._output: ProgramOutput | None = None
        if recording is not None:
            self._begin_recording(recording)
        self._settings.install(self._imports)
        if self._plan.stance is not None:
            self._imports.run_after_import(torch_names.DYNAMO, lambda _: self._set_stance())

    def _begin_recording(self, recording: RecordingPlan) -> None:
        """Record what is written, and seed the generators that are not torch's."""
        if recording.hides_hash_seed:
            os.environ.pop("PYTHONHASHSEED", None)
        if recording.lines:
            self._lines = LineWatcher(recording.lines, self._imports)
            self._last.append(self._lines.finish)
        settings.seed_after_import(recording.seed, self._notes, self._imports)
        files = WrittenFiles(self._writes)
        files.install()
        self._output = output = ProgramOutput()
        output.install(self._imports)
        self._undo.append(output.uninstall)
        self._last.append(lambda _: output.finish())
        self._last.append(files.finish)

    def torch_imported(self, session: Session, torch: Any) -> None:
        """Put in place what needs torch, once the program has imported it."""
        chosen, notes = self._plan, self._notes
        self._session, self._torch = session, torch
        notes.attach(session)
        seed = chosen.seed if chosen.recording is None else chosen.recording.seed
        if seed is not None:
            settings.seed_generators(torch.manual_seed, seed, notes)  # CUDA's once it is in use
        files = {change.file for change in chosen.sources}
        remover = settings.change_compile(torch, chosen, files, notes)
        if remover is not None:
            self._undo.append(remover)
        if chosen.looks_at_calls:  # else no step would go unsampled
            arguments = PlannedArguments(chosen.arguments, files, notes)
            watcher = OutputWatcher(session, torch, chosen, arguments)
            self._outputs, recorder = watcher, watcher.recorder
            self._undo.append(watcher.uninstall)
            if (keeper := watcher.keeper) is not None:
                self._undo.append(keeper.uninstall)
            if keeper is not None and (calls := keeper.boundaries) is not None:
                name, events = torch_names.SYMBOLIC_CONVERT, calls.events
                self._imports.run_after_import(name, lambda _: pause_in_compiles(events))
            if recorder is not None:
                graphs = recorder.graphs
                self._imports.run_after_import(OUTPUT_GRAPH, lambda _: graphs.install())
                self._undo.append(recorder.uninstall)
                self._last.append(lambda _: recorder.finish())
        if self._output is not None:
            self._output.attach(session, torch)
        if chosen.call_seconds:  # last of all: nothing else of ours is then in the time of a call
            self._call_seconds = seconds = CallSeconds(session, torch)
            self._undo.append(seconds.uninstall)
            self._last.append(lambda _: seconds.finish())

    def _set_stance(self) -> None:
        label = describe_stance(str(self._plan.stance))
        torch: Any = torch_names.get_imported("torch")
        with self._notes.record_errors(label):
            torch.compiler.set_stance(self._plan.stance)
            self._notes.record_change(label)

    def finish(self) -> None:
        """Emit what the process holds at its end, and which changes are not in force any more."""
        session, stance = self._session, torch_calls.get_stance()
        if session is None:
            return
        self._settings.finish()
        self._sources.emit_loaded(session)
        if self._plan.stance is not None and stance not in (None, self._plan.stance):
            self._notes.record_change(describe_stance(self._plan.stance), OVERRIDDEN)
        for finish in self._last:
            finish(session)
        # A forked child, such as a data loader's worker, holds what its parent does.
        is_fork = os.getpid() != self._pid
        if self._outputs is not None and self._plan.recording is not None and not is_fork:
            self._outputs.finish()
            session.emit(RandomStateRead(session.now(), RandomStates.read(self._torch).digests))

    def vary_calls(self, t: float, uninstall: Callable[[], None]) -> None:
        """Make calls of the program again, with other inputs, once nothing else is left to do.
        Their events are of the time `t`; `uninstall` ends all watching of calls and compiles."""
        session, outputs, recording = self._session, self._outputs, self._plan.recording
        if session is None or outputs is None or outputs.keeper is None or recording is None:
            return
        if self.makes_calls_at_end and os.getpid() == self._pid:
            uninstall()
            watch = contextlib.nullcontext if self._lines is None else self._lines.watch_again
            broken = vary_calls(session, self._torch, outputs.keeper, recording.vary_s, t, watch)
            self._is_device_broken = broken

    def end_process_if_broken(self) -> None:
        """End the process as the program did, without finalizers, where a call of ours has broken
        the device, as by an index out of range: those of tensors would abort it."""
        if self._is_device_broken:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
            os._exit(0 if error is None else 1)

    def uninstall(self) -> None:
        """Look at no call any more. Settings and texts stay: code was compiled with them."""
        self._imports.withdraw()
        while self._undo:
            self._undo.pop()()


# --- watched lines: run by the interpreter, or as a part of compiled code -------------------------

NOT_TRACED = "this torch does not tell which lines it traces"


class LineWatcher:
    """Watches the planned lines in this process.

    Lines are followed from its start, before the main script, in code that holds a watched line
    that was not seen yet, and in no other; once all were seen nothing is followed. Dynamo is asked
    which lines it traces. In code that it made only what was left to the interpreter has lines: the
    rest of a function that it cannot resume behind a graph break. On Python 3.11 and earlier
    nothing is seen in threads that are made in C++, such as autograd's for a device.
    """

    def __init__(self, planned: Collection[WatchedLines], imports: PostImport) -> None:
        self._planned = planned
        self._left = {os.path.realpath(plan.file): set(plan.lines) for plan in planned}
        """Lines that were not seen yet, by file."""
        self._skips = {os.path.realpath(plan.file): [*_list_skips(plan)] for plan in planned}
        self._previous: dict[types.CodeType, int] = {}
        """The line before, of each code."""
        self._in_graph: dict[str, set[int]] = {file: set() for file in self._left}
        self._traced: dict[str, tuple[int, set[tuple[str, int]]]] = {}
        """The last attempt at each compile in progress, by its id, and the lines traced in it."""
        self._problem: str | None = None
        self._stopped = False
        self._events = make_line_events(self, self._is_followed)
        self._events.resume()
        imports.run_after_import(torch_names.SYMBOLIC_CONVERT, lambda _: self._watch_dynamo())

    def handle_entry(self, frame: types.FrameType) -> None:
        """A function begins: its first line is not behind the one before."""
        self._previous.pop(frame.f_code, None)

    def handle_exit(self, frame: types.FrameType) -> None:
        """A function ends, past an `if` where that was the line before."""
        before = self._previous.pop(frame.f_code, 0)
        if file := self._find_file(frame.f_code):
            self._left[file].difference_update(self._list_skipped(file, before, 0))

    def handle_line(self, frame: types.FrameType, line: int) -> None:
        """A line is about to be run."""
        if file := self._find_file(frame.f_code):
            self._left[file].difference_update(self._list_seen(file, frame.f_code, line))
            self._stop_if_done()

    def _list_seen(self, file: str, code: types.CodeType, line: int) -> list[int]:
        """List what a line shows: itself, and the ways past an `if` that led to it."""
        before = self._previous.get(code) or find_resumed_line(code.co_name)
        self._previous[code] = line
        return [line, *self._list_skipped(file, before, line)]

    def _list_skipped(self, file: str, before: int, line: int) -> list[int]:
        """List the ways past an `if` that lead from one line to another."""
        return [
            -start
            for start, block in self._skips[file]
            if start <= before < block and not start <= line <= block
        ]

    def finish(self, session: Session) -> None:
        """Emit what was seen; nothing is followed any more."""
        self._stop()
        problem = self._events.problem or self._problem
        for plan in self._planned:
            file = os.path.realpath(plan.file)
            run = tuple(sorted({*plan.lines} - self._left[file]))
            in_graph = tuple(sorted(self._in_graph[file] & {*plan.lines}))
            session.emit(LinesRun(session.now(), plan.file, run, in_graph, problem))

    @contextlib.contextmanager
    def watch_again(self) -> Generator[list[WatchedLines]]:
        """Watch the lines that were not seen yet in a block, at whose end those that were are in
        the list; where it raises, they are still to be seen."""
        seen: list[WatchedLines] = []
        left = {file: {*lines} for file, lines in self._left.items()}
        if not any(left.values()):
            yield seen
            return
        self._stopped = False
        self._events.resume()
        try:
            yield seen
        except BaseException:
            self._left = left
            raise
        finally:
            self._stop()
        ran = {file: lines - self._left[file] for file, lines in left.items()}
        seen += [WatchedLines(file, tuple(sorted(its))) for file, its in ran.items() if its]

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
        return not self._left[file].isdisjoint(_list_watchable(code))

    def _find_file(self, code: types.CodeType) -> str:
        """Find the file of code; empty where it has no watched lines."""
        file = _resolve(code.co_filename)
        return file if file in self._left else ""

    def _watch_dynamo(self) -> None:
        pause_in_compiles(self._events)
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
            self._previous.clear()
        known[1].update((file, seen) for seen in self._list_seen(file, code, line))

    def _handle_row(self, row: Any) -> None:
        """A compile has ended: what it traced is run where it was not given up."""
        compile_id = str(getattr(row, "compile_id", None) or "")
        _, traced = self._traced.pop(compile_id, (0, ()))
        for file, line in traced if getattr(row, "has_guarded_code", None) else ():
            self._left[file].discard(line)
            if getattr(row, "graph_op_count", None):
                self._in_graph[file].add(line)


def _list_skips(plan: WatchedLines) -> Iterator[tuple[int, int]]:
    """List each `if` whose other way is watched: its line, and the first one of its block."""
    for line in plan.lines:
        block = min((other for other in plan.lines if other > -line), default=0)
        if line < 0 < block:
            yield -line, block


@cache_by_code
def _list_watchable(code: types.CodeType) -> frozenset[int]:
    """List the lines of a code object, and the ways past each, were it an `if`."""
    lines = list_lines(code)
    return lines.union(-line for line in lines)


# At its first call: a relative path is another one in another folder.
@functools.lru_cache(maxsize=1 << 16)
def _resolve(name: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        return os.path.realpath(name)
    return ""
