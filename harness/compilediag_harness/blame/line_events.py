"""Line events of the program's own files: by `sys.monitoring` from Python 3.12 on, by
`sys.settrace` before. Nobody else's trace function is ever replaced."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from compilediag_harness.base.object_graph import iterate_frames
from compilediag_harness.blame.source_locations import is_own_frame
from compilediag_harness.torch_internals import torch_compiles

_MAX_FRAMES = 200

OTHER_TRACER = "a debugger, coverage or another trace function was there first"
REPLACED = "the program has set a trace function of its own"
NO_TOOL_ID = "every tool id of sys.monitoring is taken"


Follows = Callable[[types.FrameType], bool]
"""True if the lines of a call are followed: mostly those of the program's own code."""


def iterate_own_frames(
    frame: types.FrameType | None, follows: Follows = is_own_frame
) -> Iterator[types.FrameType]:
    """Iterate over the calls in progress in the user's files, innermost first, from `frame` on."""
    return filter(follows, iterate_frames(frame, _MAX_FRAMES))


class TraceFunction:
    """Follows lines by `sys.settrace`, on Python 3.10 and 3.11. The thread that runs the line calls
    the listener, which must not raise: `handle_entry(frame)` where a user's function begins or goes
    on, `handle_line(frame, line)` before a line, `handle_exit(frame)` where it returns, yields or
    raises."""

    def __init__(self, listener: Any, follows: Follows = is_own_frame) -> None:
        self._listener = listener
        self._follows = follows
        self._function = self._handle_call
        self._line = self._handle_event
        self._closed = False
        self._resumed = False
        self.problem: str | None = OTHER_TRACER if sys.gettrace() is not None else None
        """Why lines cannot be followed, or not any more."""

    def resume(self) -> bool:
        """Follow the lines of this thread from now on, also for the calls in progress, and of
        threads that begin from now on; False where that cannot be."""
        if self.problem is not None or self._closed:
            return False
        if sys.gettrace() is not None:
            self.problem = REPLACED if self._resumed else OTHER_TRACER
            return False
        frames = list(iterate_own_frames(sys._getframe(1), self._follows))  # pyright: ignore[reportPrivateUsage]
        if any(frame.f_trace not in (None, self._line) for frame in frames):
            self.problem = REPLACED
            return False
        # `sys.settrace` reaches calls that begin later: those in progress need `f_trace`.
        for frame in frames:
            frame.f_trace = self._line
        if threading.gettrace() is None:
            threading.settrace(self._function)
        sys.settrace(self._function)
        self._resumed = True
        return True

    def is_following(self) -> bool:
        """True where the lines of this thread are followed."""
        return sys.gettrace() is self._function

    def pause(self) -> bool:
        """Follow no line in this thread; False where somebody else has taken over meanwhile."""
        # Invariant: `_function` is one bound method, made once, since it is compared by identity.
        if sys.gettrace() is not self._function:
            self.problem = self.problem or REPLACED
            return False
        sys.settrace(None)
        return True

    def stop(self) -> None:
        """Follow no line in any thread until `resume`: nothing is slower. For a paused thread."""
        if threading.gettrace() is self._function:
            threading.settrace(None)  # pyright: ignore[reportArgumentType] - as it was

    def close(self) -> None:
        """End it for good, also in the calls in progress of this thread."""
        self._closed = True
        self.stop()
        if sys.gettrace() is self._function:
            sys.settrace(None)
        for frame in iterate_own_frames(sys._getframe(1), self._follows):  # pyright: ignore[reportPrivateUsage]
            if frame.f_trace is self._line:
                frame.f_trace = None

    def _handle_call(self, frame: types.FrameType, event: str, arg: object) -> Any:
        if self._closed or event != "call" or not self._follows(frame):
            return None
        self._listener.handle_entry(frame)
        return self._line

    def _handle_event(self, frame: types.FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self._listener.handle_line(frame, frame.f_lineno)
        elif event == "return":
            self._listener.handle_exit(frame)
        return self._line


class _Paused(threading.local):
    here = False


class Monitoring:
    """Follows lines by `sys.monitoring`, with a tool id of our own: other tools are not touched.
    Lines are switched on for the code objects of the user's files alone."""

    def __init__(
        self, listener: Any, follows: Follows = is_own_frame, monitoring: Any = None
    ) -> None:
        self._listener = listener
        self._follows = follows
        self._api: Any = monitoring or getattr(sys, "monitoring", None)
        self._events: Any = self._api.events
        self._followed: set[types.CodeType] = set()
        self._paused = _Paused()
        self._running = False
        # 0, 1, 2 and 5 are set apart for debuggers, coverage, profilers and optimizers.
        free = (tool for tool in (4, 3) if self._api.get_tool(tool) is None)
        self._tool = next(free, None)
        self.problem: str | None = NO_TOOL_ID if self._tool is None else None
        if self._tool is not None:
            self._api.use_tool_id(self._tool, "compilediag")

    def resume(self) -> bool:
        """Follow lines as `TraceFunction.resume` does, but in every thread that is not paused."""
        if self._tool is None:
            return False
        self._paused.here = False
        events = self._events
        if not self._running:
            self._running = True
            for event, callback in (
                (events.PY_START, self._handle_start),
                (events.PY_RESUME, self._handle_start),
                (events.LINE, self._handle_line),
                (events.PY_RETURN, self._handle_end),
                (events.PY_YIELD, self._handle_end),
                (events.PY_UNWIND, self._handle_end),
            ):
                self._api.register_callback(self._tool, event, callback)
            # Other code calls `_handle_start` once for each of its places: then that is disabled.
            self._api.set_events(self._tool, events.PY_START | events.PY_RESUME | events.PY_UNWIND)
        for frame in iterate_own_frames(sys._getframe(1), self._follows):  # pyright: ignore[reportPrivateUsage]
            self._follow(frame.f_code)
        return True

    def is_following(self) -> bool:
        return self._running and not self._paused.here

    def pause(self) -> bool:
        # Invariant: events stay on for other threads: only this one's callbacks return at once.
        self._paused.here = True
        return True

    def stop(self) -> None:
        if self._running:
            self._running = False
            self._api.set_events(self._tool, 0)
            for code in self._followed:
                self._api.set_local_events(self._tool, code, 0)
            self._followed.clear()

    def close(self) -> None:
        self.stop()
        if self._tool is not None:
            self._api.free_tool_id(self._tool)
            self._tool = None

    def _follow(self, code: types.CodeType) -> None:
        if code not in self._followed:
            self._followed.add(code)
            events = self._events
            wanted = events.LINE | events.PY_RETURN | events.PY_YIELD
            self._api.set_local_events(self._tool, code, wanted)

    def _handle_start(self, code: types.CodeType, offset: int) -> Any:
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - of the user's code
        # DISABLE holds for this place of the code until `restart_events`, which nobody here calls.
        if not self._follows(frame):
            return self._api.DISABLE
        if not self._paused.here:
            self._follow(code)
            self._listener.handle_entry(frame)
        return None

    def _handle_line(self, code: types.CodeType, line: int) -> None:
        if not self._paused.here:
            self._listener.handle_line(sys._getframe(1), line)  # pyright: ignore[reportPrivateUsage]

    def _handle_end(self, code: types.CodeType, offset: int, value: object) -> None:
        # A call that raises reports it whether it is followed or not.
        if not self._paused.here and code in self._followed:
            self._listener.handle_exit(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]


def pause_in_compiles(events: Monitoring | TraceFunction) -> None:
    """Follow nothing in a thread in which torch compiles, once torch is imported: to be called at
    each of the functions that Dynamo calls doubles the seconds of a compile on Python 3.11. What
    Dynamo traces of the program it tells itself."""
    paused = set[int]()

    def begin(*_: object) -> None:
        if events.is_following():
            paused.add(threading.get_ident())
            events.pause()

    def end() -> None:
        if threading.get_ident() in paused:
            paused.discard(threading.get_ident())
            events.resume()

    torch_compiles.watch_compile_starts(begin)
    torch_compiles.watch_compile_ends(end)


def make_line_events(listener: Any, follows: Follows = is_own_frame) -> Monitoring | TraceFunction:
    """Make what follows lines on this Python."""
    kind = Monitoring if hasattr(sys, "monitoring") else TraceFunction
    return kind(listener, follows)
