"""Named stretches of the run ("checkpoint", "eval"), for goodput: at most one lock a span.

A span that is not observed costs one attribute check. Nested spans know their depth; every thread
has its own nesting. Inside of compiled code a span does nothing, and breaks no graph, unless its
handle was made outside: Dynamo (2.7 to 2.15) enters no context manager that it did not see made.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from compilediag_harness import undisturbed
from compilediag_harness.session import Session
from compilediag_harness.wire import SpanEnded, clip

Params = ParamSpec("Params")
Result = TypeVar("Result")

BATCH_S = 0.25
"""Finished spans are written when the last writing is older than this, in seconds."""

BATCH_SPANS = 512
"""... or when there are so many."""

NAME_LIMIT = 200
"""Longest name, in characters."""

MAIN_THREAD = 0
"""What `SpanEnded.thread` says of the main thread; others say their identifier."""

_monotonic = time.monotonic


class _Writer:
    """The finished spans of one session that are not written yet."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = threading.Lock()
        self._rows: list[tuple[float, float, int, str, int, int]] = []
        self._written = 0.0

    def add(self, began: float, ended: float, name: str, depth: int, thread: int) -> None:
        row = (began, ended, self.session.step, name, depth, thread)
        with self._lock:
            self._rows.append(row)
            if ended - self._written < BATCH_S and len(self._rows) < BATCH_SPANS:
                return
            rows, self._rows, self._written = self._rows, [], ended
        self._emit(rows)

    def flush(self) -> None:
        with self._lock:
            rows, self._rows = self._rows, []
        self._emit(rows)

    def _emit(self, rows: list[tuple[float, float, int, str, int, int]]) -> None:
        at = self.session.at
        for began, ended, step, name, depth, thread in rows:
            self.session.emit(
                SpanEnded(at(ended), step, name, at(began), ended - began, depth, thread)
            )


class _Nesting(threading.local):
    """The spans open in this thread, outermost first, with the times they began."""

    def __init__(self) -> None:
        self.open: list[tuple[span, float]] = []


_nesting = _Nesting()
_main_ident = threading.main_thread().ident
_outermost_ended: Callable[[float, float], None] | None = None
_writers: tuple[_Writer, ...] = ()
_ever = False
"""A session has been there: spans may be open that began under it."""


class span:  # noqa: N801  (a context manager reads as a word, like contextlib.suppress)
    """`with span("checkpoint"): ...`, or `@span("eval")` above a function.

    A handle can be used again and nested in itself. The time of an outermost span is counted to
    the step it ends in.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = clip(str(name), NAME_LIMIT)

    def __enter__(self) -> span:
        if _writers and not undisturbed.is_compiling():
            _nesting.open.append((self, _monotonic()))
        return self

    def __exit__(self, *_exception: object) -> None:
        if _ever and not undisturbed.is_compiling():
            _close(self)

    def __call__(self, function: Callable[Params, Result]) -> Callable[Params, Result]:
        undisturbed.bind_if_imported()

        @functools.wraps(function)
        def inside(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            # Asked first: code compiled with it is then not guarded on whether anybody listens.
            if undisturbed.is_compiling() or not _writers:
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return inside

    def __repr__(self) -> str:
        return f"span({self.name!r})"


def _close(handle: span) -> None:
    ended, opened = _monotonic(), _nesting.open
    depth = len(opened) - 1
    # Usually the newest; generators may leave them in another order, and one that began before
    # the session did is not there.
    while depth >= 0 and opened[depth][0] is not handle:
        depth -= 1
    if depth < 0:
        return
    _, began = opened.pop(depth)
    thread = threading.get_ident()
    if thread == _main_ident:
        thread = MAIN_THREAD
    for writer in _writers:
        writer.add(began, ended, handle.name, depth, thread)
    if depth == 0 and thread == MAIN_THREAD and _outermost_ended is not None:
        _outermost_ended(began, ended)


def install(
    session: Session,
    torch_module: Any | None = None,
    outermost_ended: Callable[[float, float], None] | None = None,
) -> None:
    """Starts writing spans for `session`; a second call, when torch is imported, adds what was
    missing. `outermost_ended` is told the begin and end of each span of the main thread that is
    in no other."""
    global _writers, _ever, _outermost_ended, _main_ident
    _ever = True
    _main_ident = threading.main_thread().ident
    _outermost_ended = outermost_ended or _outermost_ended
    if torch_module is not None:
        undisturbed.bind(torch_module)
        undisturbed.never_compiled(torch_module, span.__enter__, span.__exit__)
    if not any(writer.session is session for writer in _writers):
        _writers = (*_writers, _Writer(session))


def finish(session: Session) -> None:
    """Writes the finished spans; those still open are not told of."""
    for writer in _writers:
        if writer.session is session:
            writer.flush()


def uninstall(session: Session) -> None:
    """Stops writing spans for `session`; call `finish` before."""
    global _writers
    _writers = tuple(writer for writer in _writers if writer.session is not session)
