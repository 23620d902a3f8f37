"""Named stretches of the run ("checkpoint", "eval"), for goodput: no lock but one a batch.

A span that is not observed costs one attribute check. Nested spans know their depth; every thread
has its own nesting. Inside of compiled code a span does nothing, and breaks no graph, unless its
handle was made outside: Dynamo (2.7 to 2.15) enters no context manager that it did not see made.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from compilediag_harness import undisturbed
from compilediag_harness.phases import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, SPANS
from compilediag_harness.session import Session
from compilediag_harness.wire import SpansEnded, clip

Params = ParamSpec("Params")
Result = TypeVar("Result")

BATCH_S = 0.25
"""Finished spans are written when the last writing is older than this, in seconds."""

BATCH_SPANS = 512
"""... or when there are so many."""

NAME_LIMIT = 200
"""Longest name, in characters."""

MAIN_THREAD = 0
"""What `SpansEnded.threads` says of the main thread; others say their identifier."""

_monotonic = time.monotonic
_get_ident = threading.get_ident


HOLDS_PHASES = -1
"""A span of this "phase" is the work itself: the phases inside of it decide, not it."""

_PHASES = {
    "step": HOLDS_PHASES,
    "train": HOLDS_PHASES,
    "train_step": HOLDS_PHASES,
    "forward": FORWARD,
    "backward": BACKWARD,
    "optimizer": OPTIMIZER,
    "data_wait": DATA_WAIT,
    "data": DATA_WAIT,
    "dataloader": DATA_WAIT,
}
"""Names of spans that say what phase of a step they are; others are the phase "spans"."""

_Row = tuple[float, float, int, "span", int, int, str]
"""Begin, end, step, handle, depth, thread, phase of the step."""


class _Writer:
    """The finished spans of one session that are not written yet."""

    __slots__ = ("_lock", "rows", "session", "written")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rows: deque[_Row] = deque()
        """Appending to a deque needs no lock of ours."""
        self.written = 0.0
        self._lock = threading.Lock()

    def flush(self, at: float) -> None:
        """Writes what is there, one record for at most `BATCH_SPANS`."""
        with self._lock:
            self.written = at
            rows = [self.rows.popleft() for _ in range(len(self.rows))]
        for place in range(0, len(rows), BATCH_SPANS):
            self.session.emit(self._batch(at, rows[place : place + BATCH_SPANS]))

    def discard(self) -> None:
        """Drops what is not written; a thread that is not here may have held the lock."""
        self._lock = threading.Lock()
        self.rows.clear()

    def _batch(self, at: float, rows: list[_Row]) -> SpansEnded:
        origin = -self.session.at(0.0)
        places: dict[tuple[str, int, int, str], int] = {}
        kinds = tuple(
            places.setdefault((handle.name, depth, thread, phase), len(places))
            for _, _, _, handle, depth, thread, phase in rows
        )
        names, depths, threads, phases = zip(*places, strict=True)
        return SpansEnded(
            t=self.session.at(at),
            names=names,
            depths=depths,
            threads=threads,
            phases=phases,
            kinds=kinds,
            steps=tuple(row[2] for row in rows),
            starts_ns=tuple(round((row[0] - origin) * 1e9) for row in rows),
            walls_ns=tuple(round((row[1] - row[0]) * 1e9) for row in rows),
        )


class _Nesting(threading.local):
    """The spans open in this thread, outermost first, with the times they began."""

    def __init__(self) -> None:
        self.open: list[tuple[span, float]] = []


_nesting = _Nesting()
_main_ident = threading.main_thread().ident
_ended: Callable[[int, float, float, int], str] | None = None
_writers: tuple[_Writer, ...] = ()
_ever = False
"""A session has been there: spans may be open that began under it."""


class span:  # noqa: N801  (a context manager reads as a word, like contextlib.suppress)
    """`with span("checkpoint"): ...`, or `@span("eval")` above a function.

    A handle can be used again and nested in itself. A span named "forward", "backward",
    "optimizer" or "data" is that phase of the step; "step", "train" and "train_step" leave it to
    what is inside of them.
    """

    __slots__ = ("name", "phase")

    def __init__(self, name: str) -> None:
        self.name = clip(str(name), NAME_LIMIT)
        self.phase = _PHASES.get(self.name, SPANS)

    def __enter__(self) -> span:
        if _writers and not undisturbed.is_traced():
            _nesting.open.append((self, _monotonic()))
        return self

    def __exit__(self, *_exception: object) -> None:
        if _ever and not undisturbed.is_traced():
            ended, opened = _monotonic(), _nesting.open
            if opened and opened[-1][0] is self:
                _, began = opened.pop()
                _finished(self, began, ended, len(opened))
            else:
                _close(self, ended, opened)

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


def _close(handle: span, ended: float, opened: list[tuple[span, float]]) -> None:
    """Ends a span that is not the newest: generators may leave them in another order, and one
    that began before the session did is not there."""
    for depth in range(len(opened) - 1, -1, -1):
        if opened[depth][0] is handle:
            _, began = opened.pop(depth)
            _finished(handle, began, ended, depth)
            return


def _finished(handle: span, began: float, ended: float, depth: int) -> None:
    thread = _get_ident()
    phase = "" if _ended is None else _ended(handle.phase, began, ended, thread)
    if thread == _main_ident:
        thread = MAIN_THREAD
    for writer in _writers:
        rows = writer.rows
        rows.append((began, ended, writer.session.step, handle, depth, thread, phase))
        if ended - writer.written >= BATCH_S or len(rows) >= BATCH_SPANS:
            writer.flush(ended)


def open_names() -> tuple[str, ...]:
    """Names of the spans open in this thread, outermost first."""
    opened = _nesting.open
    return tuple(handle.name for handle, _ in opened) if opened else ()


def install(
    session: Session,
    torch_module: Any | None = None,
    ended: Callable[[int, float, float, int], str] | None = None,
) -> None:
    """Starts writing spans for `session`; a second call, when torch is imported, adds what was
    missing. `ended` is told the phase, begin, end and thread of each span, in that thread, and
    answers in what phase of the step it was; "" where that is not known."""
    global _writers, _ever, _ended, _main_ident
    _ever = True
    _main_ident = threading.main_thread().ident
    _ended = ended or _ended
    if torch_module is not None:
        undisturbed.bind(torch_module)
        undisturbed.never_compiled(torch_module, span.__enter__, span.__exit__)
    if not any(writer.session is session for writer in _writers):
        _writers = (*_writers, _Writer(session))


def finish(session: Session) -> None:
    """Writes the finished spans; those still open are not told of."""
    for writer in _writers:
        if writer.session is session:
            writer.flush(_monotonic())


def forked() -> None:
    """This process is a fork: what is not written belongs to the parent."""
    for writer in _writers:
        writer.discard()


def uninstall(session: Session) -> None:
    """Stops writing spans for `session`; call `finish` before."""
    global _writers
    _writers = tuple(writer for writer in _writers if writer.session is not session)
