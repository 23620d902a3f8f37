"""Write tracing: watches what compiled frames are guarded on, from one compiled call to the next,
and notes the line of the program that changed it (`run --trace-writes`).

Nothing is followed inside a compiled call: what Dynamo sees is what it sees in any other run. A
value that changes there is seen to differ when the call returns.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import types
from collections.abc import Iterable
from itertools import islice
from typing import Any

from compilediag_harness.base.object_graph import Hop, WeakByIdentity
from compilediag_harness.base.process_options import WriteTracingPlan
from compilediag_harness.base.session import Session
from compilediag_harness.blame import guard_sources
from compilediag_harness.blame.guard_sources import SourcePath, parse_path
from compilediag_harness.blame.line_events import iterate_own_frames, make_line_events
from compilediag_harness.blame.user_calls import copy_locals
from compilediag_harness.blame.watched_values import (
    Moment,
    SeenChange,
    Snapshot,
    WatchedValue,
    WatchedValues,
    format_snapshot,
    take_snapshot,
)
from compilediag_harness.torch_internals import torch_api, torch_calls, torch_guards
from compilediag_harness.wire import Location, ValueChange, Witnessed

MAX_LINES = 2_000_000
MAX_SECONDS = 30.0
"""Line events, and seconds of looking at values, after which no more lines are followed."""
MAX_VALUES = 4096
_MAX_STACK = 8

_KEEPS_LOCALS = sys.version_info < (3, 12)
"""A trace function fills the snapshots of locals that somebody has read, and what the program
deletes stays alive in them: reading them once more empties them."""

_TORCH_GUARD_KINDS = frozenset({"MODULE_MATCH", "BUILTIN_MATCH", "CLASS_MATCH", "DUPLICATE_INPUT"})
"""Kinds of guards on objects that torch itself put there, or on what another guard is about."""
_TENSOR_ASPECT = re.compile(r"\b(requires_grad|dtype|device|stride|size|rank)\b")


class _Thread(threading.local):
    """State of write tracing in one thread."""

    def __init__(self) -> None:
        self.followed = False
        """Its lines have been followed since the last comparison."""
        self.compiling = False
        self.comparing = False
        """It holds our lock: what a finalizer or signal handler then calls is not looked at."""
        self.lines: dict[int, int] = {}
        """The line that each call in progress runs, by identity of its frame."""
        self.called_at: tuple[Location, ...] | None = None
        """The user's lines that led to the compiled call in progress."""
        self.modes: dict[str, WatchedValue] = {}


class WriteTracer:
    """Traces writes in one session. Methods that torch or the interpreter calls never raise."""

    def __init__(self, session: Session, plan: WriteTracingPlan) -> None:
        self._session = session
        self._plan = plan
        self._below = torch_api.get_torch_function_disabler()
        self._thread = _Thread()
        self._watches = WatchedValues(MAX_VALUES)
        self._lock = threading.Lock()
        self._compiled = WeakByIdentity[types.CodeType, dict[str, int]]()
        """When an entry was compiled, in the order of the changes."""
        self._order = 0
        self._others: dict[int, tuple[int, int]] = {}
        self._seconds = 0.0
        self._lines = 0
        self._stopped: str | None = None
        self._stopped_step = 0
        self._forked = False
        self._events = make_line_events(self)
        if self._events.problem is not None:
            self._stop(self._events.problem)
        self._remove = torch_calls.watch_every_call(self._handle_call_begin, self._handle_call_end)

    def watch_guards(
        self, code: types.CodeType, compile_id: str, scope: dict[str, Any], guards: Iterable[Any]
    ) -> None:
        """Watch what a frame that was just compiled is guarded on, from now on."""
        thread = self._thread
        if self._stopped is not None or thread.comparing:
            return
        thread.comparing = True
        try:
            with self._lock, self._below():
                self._add_watches(code, compile_id, scope, guards)
        finally:
            thread.comparing = False

    def _add_watches(
        self, code: types.CodeType, compile_id: str, scope: dict[str, Any], guards: Iterable[Any]
    ) -> None:
        self._order += 1
        self._compiled.setdefault(code, {})[compile_id] = self._order
        wanted, sources = self._plan.sources, set[str]()
        for guard in guards:
            name = str(guard.name)
            if not name or name.startswith("G['__builtins_dict"):
                continue
            known = not wanted or name in wanted or f"{name}.__dict__" in wanted
            if known and torch_guards.get_guard_kind(guard) not in _TORCH_GUARD_KINDS:
                sources.add(torch_guards.get_guarded_source(guard))
        for source in sources:
            path = parse_path(source)
            root = None if path is None else self._find_root(path, code, scope)
            if root is not None:
                self._watches.add(*root)

    def _find_root(
        self, path: SourcePath, code: types.CodeType, scope: dict[str, Any]
    ) -> tuple[Any, tuple[Hop, ...]] | None:
        """Find the object to begin from, and the hops from there; None where there is none."""
        if path.scope == "L" and path.root not in code.co_freevars:
            return (scope[path.root], path.hops) if path.root in scope and path.hops else None
        function = guard_sources.find_function(code)
        if function is None:
            return None
        if path.scope == "G":
            return function.__globals__, (Hop("item", path.root), *path.hops)
        cell = Hop("item", code.co_freevars.index(path.root))
        start = (Hop("attribute", "__closure__"), cell, Hop("attribute", "cell_contents"))
        return function, (*start, *path.hops)

    def _handle_call_begin(self, key: int) -> None:
        thread = self._thread
        if self._stopped is not None or thread.comparing:
            return
        try:
            calls = list(iterate_own_frames(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]
            thread.called_at = tuple(_locate(frame, frame.f_lineno) for frame in calls)[:_MAX_STACK]
            followed, thread.followed = thread.followed, False
            # Invariant: paused before torch runs: Dynamo and guards must not meet a trace function.
            if followed and (thread.compiling or not self._events.pause()):
                followed, thread.compiling = False, False
            self._record_changes(thread.called_at if followed else ())
            if followed and _KEEPS_LOCALS:
                for frame in calls:
                    copy_locals(frame)
            if self._events.problem is not None:
                self._stop(self._events.problem)
        except Exception as error:
            self._report_fault(error)

    def _handle_call_end(self, key: int) -> None:
        thread = self._thread
        if self._stopped is not None or thread.comparing:
            return
        try:
            called_at, thread.called_at = thread.called_at, None
            self._record_changes(called_at or (), in_call=True)
            if not self._compiled:
                return
            if not self._plan.should_follow(self._session.step):
                self._events.stop()
                return
            frames = iterate_own_frames(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
            # Invariant: made anew at each resume: ids of frames that ended unseen are used again.
            thread.lines = {id(frame): frame.f_lineno for frame in frames}
            thread.followed = self._events.resume()
            if self._events.problem is not None:
                self._stop(self._events.problem)
        except Exception as error:
            self._report_fault(error)

    def pause_for_compile(self) -> None:
        """Pause while torch compiles outside a call, as a backward graph: that is not followed."""
        if self._thread.followed and self._stopped is None:
            self._thread.compiling = self._events.pause()

    def resume_after_compile(self) -> None:
        """Follow the lines after a compile again: no line of the user's ran meanwhile."""
        if self._thread.compiling and self._stopped is None:
            self._thread.compiling = False
            self._thread.followed = self._events.resume()

    def handle_entry(self, frame: types.FrameType) -> None:
        """A function begins: what changed was changed by the line that called it."""
        if self._stopped is None:
            self._record_changes(_collect_stack(frame.f_back, None))
            self._thread.lines[id(frame)] = frame.f_lineno

    def handle_line(self, frame: types.FrameType, line: int) -> None:
        """A line begins: what changed was changed by the line before."""
        if self._stopped is not None:
            return
        self._lines += 1
        before = self._thread.lines.get(id(frame))
        self._thread.lines[id(frame)] = line
        self._record_changes(None, frame, before)
        if self._lines >= MAX_LINES:
            self._stop(f"after {MAX_LINES:,} lines")
        elif self._seconds > MAX_SECONDS:
            self._stop(f"after {MAX_SECONDS:g} seconds of looking at values")

    def handle_exit(self, frame: types.FrameType) -> None:
        """A function returns, yields or raises: what changed was changed by its last line."""
        if self._stopped is None:
            self._record_changes(None, frame, self._thread.lines.pop(id(frame), None))

    def _record_changes(
        self,
        stack: tuple[Location, ...] | None,
        frame: types.FrameType | None = None,
        line: int | None = None,
        *,
        in_call: bool = False,
    ) -> None:
        """Compare every value. Those that differ were changed by `stack`, or `line` of `frame`."""
        thread = self._thread
        if thread.comparing:
            return
        started = time.perf_counter()
        try:
            # Invariant: set before the lock is held, which is not reentrant: a finalizer or signal
            # handler that runs below may call compiled code, and is not to change what is compared.
            thread.comparing = True
            with self._lock, self._below():
                alone = self._is_alone()
                changed = self._watches.collect_changes()
                changed += [] if in_call else self._collect_mode_changes()
                if changed:
                    if stack is None:
                        inner = frame if line is not None else frame and frame.f_back
                        stack = _collect_stack(inner, line)
                    self._order += 1
                    # Invariant: no line is named where another thread may have made the change.
                    by = stack if alone else ()
                    at = Moment(self._order, by, in_call, self._session.step)
                    for watched, old, new in changed:
                        watched.record_change(SeenChange(old, new, at))
        except Exception as error:
            self._report_fault(error)
        finally:
            thread.comparing = False
        self._seconds += time.perf_counter() - started

    def _collect_mode_changes(self) -> list[tuple[WatchedValue, Snapshot, Snapshot]]:
        """Collect the changes of torch's modes, which are each thread's own."""
        changes: list[tuple[WatchedValue, Snapshot, Snapshot]] = []
        known = self._thread.modes
        for name, value in torch_guards.read_global_modes().items():
            snapshot = _snapshot_mode(value)
            watched = known.setdefault(name, WatchedValue(snapshot))
            if watched.snapshot != snapshot:
                changes.append((watched, watched.snapshot, snapshot))
                watched.snapshot = snapshot
        return changes

    def _is_alone(self) -> bool:
        """True if no other thread has run a line of the user's since the last comparison: a change
        would be anybody's."""
        if threading.active_count() == 1:
            moved, self._others = bool(self._others), {}
            return not moved
        here = threading.get_ident()
        others: dict[int, tuple[int, int]] = {}
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        for thread, frame in frames.items():
            if thread != here and next(iterate_own_frames(frame), None) is not None:
                others[thread] = (id(frame), frame.f_lasti)
        before, self._others = self._others, others
        before.pop(here, None)
        return before == others

    def find_last_change(
        self, leaf: torch_guards.Leaf, text: str, compile_id: str, scope: dict[str, Any], code: Any
    ) -> ValueChange | None:
        """Find the last change of what a guard of a cache entry is about, since that entry was
        compiled; None where there is none, or its line is not known."""
        since = (self._compiled.get(code) or {}).get(compile_id)
        if since is None or self._stopped is not None:
            return None
        # What changed since the last comparison belongs to the call or line in progress.
        thread = self._thread
        here = sys._getframe(1) if thread.followed else None  # pyright: ignore[reportPrivateUsage]
        stack = _collect_stack(here, None) if thread.called_at is None else thread.called_at
        self._record_changes(stack, in_call=thread.called_at is not None)
        watched, aspect = self._find_watched(leaf, text, scope, code)
        seen = None if watched is None else watched.find_last_change(aspect)
        if seen is None or seen.at.order < since or not seen.at.stack:
            return None
        at = seen.at
        old, new = format_snapshot(seen.old), format_snapshot(seen.new)
        return ValueChange(old, new, at.stack, at.in_call, at.step)

    def _find_watched(
        self, leaf: torch_guards.Leaf, text: str, scope: dict[str, Any], code: types.CodeType
    ) -> tuple[WatchedValue | None, str | None]:
        """Find the watched value that a guard is about, and the aspect of it; None: all of it."""
        if leaf.kind == "GLOBAL_STATE":
            name = text.rpartition(":")[2].strip()
            watched, now = self._thread.modes.get(name), torch_guards.read_global_modes().get(name)
            # Unless it changed in the compiled call itself: a compile sets some.
            same = watched is not None and watched.snapshot == _snapshot_mode(now)
            return (watched if same else None), None
        path = parse_path(leaf.source) if leaf.source else None
        f_locals: dict[str, Any] = scope.get("L") or {}
        root = None if path is None else self._find_root(path, code, f_locals)
        if root is None:
            return None, None
        hops = root[1]
        member = guard_sources.parse_member(text) if leaf.kind == "NO_HASATTR" else None
        if member is not None:
            hops = (*hops, Hop("attribute", member))
        aspect = _parse_aspect(leaf.kind, text)
        if aspect is not None and aspect.startswith("key '"):
            value = self._watches.find(root[0], (*hops, Hop("item", aspect[5:-1])))
            if value is not None:
                return value, "presence"
        return self._watches.find(root[0], hops), aspect

    def _stop(self, reason: str) -> None:
        self._stopped, self._stopped_step = reason, self._session.step
        self._events.close()

    def _report_fault(self, error: Exception) -> None:
        self._session.record_fault("write tracing", error)
        self._stop("a fault of compilediag itself")

    def stop_in_child(self) -> None:
        """Stop in a forked child, such as a data loader's: only the parent is followed."""
        self._forked, self._stopped = True, "in a forked process"
        self._lock = threading.Lock()  # another thread of the parent may have held it at the fork
        self._events.close()

    def uninstall(self) -> None:
        self._events.close()
        self._remove()

    def finish(self) -> None:
        """Report what following lines cost, and end it."""
        self.uninstall()
        if self._forked:
            return
        session = self._session
        session.collector_s += self._seconds
        session.emit(
            Witnessed(
                session.now(),
                self._stopped_step if self._stopped is not None else session.step,
                self._lines,
                self._seconds,
                self._watches.count,
                self._watches.left_out,
                self._stopped,
            )
        )


def _collect_stack(frame: types.FrameType | None, line: int | None) -> tuple[Location, ...]:
    """Collect the user's lines in progress, the innermost of which is at `line`, if given."""
    own = islice(iterate_own_frames(frame), _MAX_STACK)
    return tuple(
        _locate(call, line if line is not None and not index else call.f_lineno)
        for index, call in enumerate(own)
    )


def _locate(frame: types.FrameType, line: int) -> Location:
    code = frame.f_code
    return Location(code.co_filename, line, getattr(code, "co_qualname", code.co_name))


def _snapshot_mode(value: Any) -> Snapshot:
    return take_snapshot(value if type(value) is bool else str(value))


def _parse_aspect(kind: str, text: str) -> str | None:
    """Parse the aspect of a value that a guard is about, as named by `has_changed`."""
    if kind in ("DICT_CONTAINS", "SET_CONTAINS"):
        key = guard_sources.parse_key(text)
        return f"key {key}" if key else None
    if kind in ("DICT_LENGTH", "LENGTH_CHECK"):
        return "length"
    if kind == "TENSOR_MATCH":
        match = _TENSOR_ASPECT.search(text)
        named = match[1] if match else None
        return "shape" if named in ("size", "rank") else named
    return None
