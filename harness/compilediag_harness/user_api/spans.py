"""Named spans of the run ("checkpoint", "eval"), for goodput; a lock is taken once a step.

Which step and phase a span belongs to is decided together for all that have ended, before a step
ends (`assign_ended_spans`). Inside of compiled code a span does nothing, and breaks no graph,
unless its handle was made outside: Dynamo (2.7 to 2.15) enters no context manager whose making it
did not trace.

Finished spans are stored as the columns of their record, and each costs one pass of a loop without
a call, since a program may end half a million a second.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

from compilediag_harness.base.session import BATCH_ROWS, Session, SessionSink, SessionSinks
from compilediag_harness.torch_internals import dynamo_skip, torch_api
from compilediag_harness.user_api.to_jsonable import clip_name
from compilediag_harness.wire import SpansEnded

DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER, SPANS = range(5)
NAMES = ("data_wait", "forward", "backward", "optimizer", "spans")

HOLDS_PHASES = -1
"""A span of this "phase" is the work itself: the phases inside it count, not the span."""

REST = "rest"
"""What no phase has."""

UNMEASURED = "unmeasured"
"""The phase of what happens while not every phase is measured."""

MAIN_THREAD = 0
"""The main thread in `SpansEnded.threads`; the others are there by their identifiers."""


SpanRow = tuple[int, int, "span", int, int]
"""Begin and end (`time.monotonic_ns()`), handle, depth, thread of a span that has ended."""


class SpanBatches(SessionSink):
    """Spans of one session that are not written yet. The caller holds the lock of the spans."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._origin_ns = -round(session.convert_time(0.0) * 1e9)

    def discard(self) -> None:
        super().discard()
        self._index: dict[tuple[str, int, int, str], int] = {}
        """Name, depth, thread and phase of each kind of span, with its index among the kinds."""
        self._kinds: list[int] = []
        self._steps: list[int] = []
        self._starts: list[int] = []
        self._walls: list[int] = []

    def add(self, rows: Sequence[SpanRow], phases: Sequence[str]) -> None:
        """Add spans that ended in the step in progress, with the phase each of them was in."""
        index_of, origin = self._index, self._origin_ns
        kinds, starts, walls = self._kinds, self._starts, self._walls
        for (began, ended, handle, depth, thread), phase in zip(rows, phases, strict=True):
            key = handle.name, depth, thread, phase
            index = index_of.get(key)
            if index is None:
                index = index_of[key] = len(index_of)
            kinds.append(index)
            starts.append(began - origin)
            walls.append(ended - began)
        self._steps += [self.session.step] * len(rows)

    def write(self, at_ns: int, main_thread: int | None) -> None:
        """Write what is there, in records of at most `BATCH_ROWS`."""
        kinds, steps, starts, walls = self._kinds, self._steps, self._starts, self._walls
        columns = zip(*self._index, strict=True) if kinds else ((),) * 4
        names, depths, threads, phases = columns
        threads = tuple(MAIN_THREAD if thread == main_thread else thread for thread in threads)
        self.discard()
        for first in range(0, len(kinds), BATCH_ROWS):
            part = slice(first, first + BATCH_ROWS)
            self.session.emit(
                SpansEnded(
                    (at_ns - self._origin_ns) * 1e-9,
                    *(names, depths, threads, phases),
                    kinds=tuple(kinds[part]),
                    steps=tuple(steps[part]),
                    starts_ns=tuple(starts[part]),
                    walls_ns=tuple(walls[part]),
                )
            )


Params = ParamSpec("Params")
Result = TypeVar("Result")

BATCH_NS = 250_000_000
"""Finished spans are written when the last writing is older than this, in nanoseconds."""

_monotonic_ns = time.monotonic_ns
_get_ident = threading.get_ident

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
"""Names of spans that are a phase of a step; others are the phase "spans"."""

Attribution = Callable[[Sequence[SpanRow], bool], Sequence[str | None]]
"""Takes spans that ended in the step in progress, and whether the session is ending; returns the
phase of each, "" where it is not known, and None where only the span's own thread may decide."""


class _Nesting(threading.local):
    """The spans open in this thread, outermost first, with the times they began."""

    def __init__(self) -> None:
        self.open: list[tuple[span, int]] = []


_nesting = _Nesting()


def _leave_unattributed(rows: Sequence[SpanRow], _ending: bool) -> Sequence[str | None]:
    return ("",) * len(rows)


_attribute: Attribution = _leave_unattributed
_main_ident = threading.main_thread().ident
sinks = SessionSinks(SpanBatches)
_ever = False
"""There was a session once: spans may be open that began under it."""

ended_rows: deque[SpanRow] = deque()
"""Spans that have ended and belong to no step yet. Appending to a deque needs no lock of ours."""

_due_ns = 0
"""From then on the finished spans are due..."""

_max_rows = BATCH_ROWS
"""... or when so many have ended."""

# Reentrant: a signal handler of the program may end a span meanwhile.
_lock = threading.RLock()


class span:  # noqa: N801  (a context manager reads as a word, like contextlib.suppress)
    """`with span("checkpoint"): ...`, or `@span("eval")` above a function.

    A handle can be used again and nested in itself. A span named "forward", "backward",
    "optimizer" or "data" is that phase of the step; "step", "train" and "train_step" leave it to
    the spans inside them.
    """

    __slots__ = ("name", "phase")

    def __init__(self, name: str) -> None:
        self.name = clip_name(name)
        self.phase = _PHASES.get(self.name, SPANS)

    def __enter__(self) -> span:
        # Checked first, as below.
        if not dynamo_skip.is_traced() and _ever and sinks.all:
            _nesting.open.append((self, _monotonic_ns()))
        return self

    def __exit__(self, *_exception: object) -> None:
        if not dynamo_skip.is_traced() and _ever:
            ended, opened = _monotonic_ns(), _nesting.open
            if opened and opened[-1][0] is self:
                ended_rows.append((opened.pop()[1], ended, self, len(opened), _get_ident()))
            else:
                _close_out_of_order(self, ended, opened)
            if ended >= _due_ns or len(ended_rows) >= _max_rows:
                _write(ended)

    def __call__(self, function: Callable[Params, Result]) -> Callable[Params, Result]:
        dynamo_skip.bind_if_imported()

        @functools.wraps(function)
        def inside(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            # Checked first: compiled code is then not guarded on whether a session is there.
            if dynamo_skip.is_compiling() or not sinks.all:
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return inside

    def __repr__(self) -> str:
        return f"span({self.name!r})"


def _close_out_of_order(handle: span, ended: int, opened: list[tuple[span, int]]) -> None:
    """End a span that is not the newest: generators may leave them in another order, and one
    that began before the session is not there."""
    for depth in range(len(opened) - 1, -1, -1):
        if opened[depth][0] is handle:
            _, began = opened.pop(depth)
            ended_rows.append((began, ended, handle, depth, _get_ident()))
            return


def assign_ended_spans(*, ending: bool = False) -> None:
    """Assign the spans that have ended to the step and the phases in progress: to be called before
    a step ends, where `ended_rows` is not empty. `ending`: those of other threads too, as a
    session will not be there for long."""
    global _max_rows
    with _lock:
        rows = [ended_rows.popleft() for _ in range(len(ended_rows))]
        phases: Sequence[Any] = _attribute(rows, ending)
        if None in phases:
            pairs = list(zip(rows, phases, strict=True))
            ended_rows.extendleft(row for row, phase in reversed(pairs) if phase is None)
            rows = [row for row, phase in pairs if phase is not None]
            phases = [phase for phase in phases if phase is not None]
        _max_rows = BATCH_ROWS + len(ended_rows)  # those left are not checked for every span
        for sink in sinks.all:
            sink.add(rows, phases)


def _write(at: int) -> None:
    global _due_ns
    with _lock:
        _due_ns = at + BATCH_NS
        assign_ended_spans()
        for sink in sinks.all:
            sink.write(at, _main_ident)


def list_open_spans() -> tuple[str, ...]:
    """List the names of the spans open in this thread, outermost first."""
    opened = _nesting.open
    return tuple(handle.name for handle, _ in opened) if opened else ()


def install(session: Session, attribute: Attribution | None = None) -> None:
    """Write spans for `session`."""
    global _ever, _attribute, _main_ident
    with _lock:
        assign_ended_spans()
        _ever = True
        _main_ident = threading.main_thread().ident
        _attribute = attribute or _attribute
        sinks.install(session)


def finish(session: Session) -> None:
    """Write the finished spans; those still open are not reported."""
    with _lock:
        assign_ended_spans(ending=True)
        for sink in sinks.all:
            if sink.session is session:
                sink.write(_monotonic_ns(), _main_ident)


def handle_fork() -> None:
    """Drop what is not written: this process is a fork, and that belongs to the parent."""
    global _lock
    _lock = threading.RLock()  # a thread that is not here may have held it
    ended_rows.clear()
    sinks.discard()


def uninstall(session: Session) -> None:
    """Stop writing spans for `session`; call `finish` before."""
    with _lock:
        assign_ended_spans(ending=True)
        sinks.uninstall(session)


# --- checkpoints that the program writes ----------------------------------------------------------
# What is wrapped is what `torch.save` and `torch.distributed.checkpoint` call, in torch itself:
# a name that the program imported is seen as well, and Dynamo meets nothing it did not meet before.

CHECKPOINTS = ("checkpoint", "checkpointing", "save_checkpoint")
"""Spans of the program that are a checkpoint already: what they save is not counted again."""

_SAVES = {
    torch_api.SERIALIZATION: ("_save", "_legacy_save"),
    torch_api.DISTRIBUTED_SAVER: ("_save_state_dict", "async_save"),
}

_checkpoint = span(CHECKPOINTS[0])


def watch_saves(module: str) -> None:
    """Watch the saves of a module of torch that has been imported. Stays for ever."""
    torch_api.wrap_saves(module, _SAVES[module], _measure_checkpoint)


def _measure_checkpoint() -> AbstractContextManager[Any]:
    if any(name in CHECKPOINTS for name in list_open_spans()):
        return contextlib.nullcontext()
    return _checkpoint
