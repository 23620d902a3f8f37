"""Asynchronous producer-consumer loops, measured: inference fills a pool of samples that training
empties, and one of the two is the bottleneck.

Without a session nothing is measured: every call is one check and returns one shared object. Work
that raises is not counted; waiting always is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

from compilediag_harness.base.session import SessionSink, SessionSinks
from compilediag_harness.torch_internals import dynamo_skip
from compilediag_harness.user_api.spans import span
from compilediag_harness.user_api.to_jsonable import clip_name, parse_count
from compilediag_harness.wire import PipelineWorked
from compilediag_harness.wire.user_events import (
    INFER,
    TRAIN,
    WAIT,
    compute_infer_capacity,
    compute_rate,
    resolve_slots,
)


class StageRow(NamedTuple):
    """A finished block of work or waiting; times are `time.monotonic()` readings."""

    stage: str
    began: float
    ended: float
    samples: int
    thread: int
    slot: int


class Size(NamedTuple):
    """The pool's size at a moment."""

    at: float
    size: int


class LoopDeclaration(NamedTuple):
    """A producer-consumer loop, as the program declares it."""

    name: str
    slots: int | None
    """Inference calls that can be in progress at a time; None: as observed."""


class _Batches(SessionSink):
    """The rows of all loops that one session has not received yet."""

    def discard(self) -> None:
        super().discard()
        self._rows: list[tuple[LoopDeclaration, StageRow | Size]] = []

    def add(self, loop: LoopDeclaration, row: StageRow | Size, at: float) -> None:
        with self.lock:
            self._rows.append((loop, row))
            if not self.is_due(at, len(self._rows)):
                return
        self._write(at)

    def finish(self) -> None:
        self._write(time.monotonic())

    def _write(self, at: float) -> None:
        with self.lock:
            rows, self._rows, self.written = self._rows, [], at
        by_loop: dict[LoopDeclaration, list[StageRow | Size]] = {}
        for loop, row in rows:
            by_loop.setdefault(loop, []).append(row)
        session = self.session
        for loop, its_rows in by_loop.items():
            work = [row for row in its_rows if isinstance(row, StageRow)]
            sizes = [row for row in its_rows if isinstance(row, Size)]
            session.emit(
                PipelineWorked(
                    t=session.convert_time(at),
                    name=loop.name,
                    slots=loop.slots,
                    stages=tuple(row.stage for row in work),
                    starts=tuple(session.convert_time(row.began) for row in work),
                    walls=tuple(row.ended - row.began for row in work),
                    samples=tuple(row.samples for row in work),
                    threads=tuple(row.thread for row in work),
                    infer_slots=tuple(row.slot for row in work),
                    pool_at=tuple(session.convert_time(size.at) for size in sizes),
                    pool_sizes=tuple(size.size for size in sizes),
                )
            )


sinks = SessionSinks(_Batches)
"""Without any, nothing is measured."""


WINDOW_S = 10.0
"""`Pipeline.line` covers the last so many seconds."""

MAX_ROWS = 1024
"""... and at most so many blocks of each kind."""

NO_SLOT = -1

_MAX_SLOTS = 4096
_SAMPLES = "a number of samples"

_monotonic = time.monotonic


class Unmeasured:
    """A block of work while there is no session."""

    __slots__ = ()

    @property
    def samples(self) -> int:
        """The samples that the block handles; may be set until it ends, if only known then."""
        return 0

    @samples.setter
    def samples(self, samples: int) -> None:
        parse_count(samples, _SAMPLES)

    def __enter__(self) -> Unmeasured:
        return self

    def __exit__(self, *_exception: object) -> None: ...


_UNMEASURED = Unmeasured()


class Measured(Unmeasured):
    """One block of work or waiting."""

    __slots__ = ("_began", "_pipeline", "_samples", "_slot", "_stage")

    def __init__(self, pipeline: Pipeline, stage: str, samples: int, slot: int) -> None:
        self._pipeline = pipeline
        self._stage = stage
        self._slot = slot
        self._began = 0.0
        self._samples = samples

    @property
    def samples(self) -> int:
        return self._samples

    @samples.setter
    def samples(self, samples: int) -> None:
        self._samples = parse_count(samples, _SAMPLES)

    def __enter__(self) -> Measured:
        if self._stage == WAIT:
            self._pipeline.waiting.__enter__()
        self._began = _monotonic()
        return self

    def __exit__(self, *exception: object) -> None:
        ended = _monotonic()
        if self._stage == WAIT:
            self._pipeline.waiting.__exit__(*exception)
        elif exception[0] is not None:
            return
        thread = threading.get_ident()
        row = StageRow(self._stage, self._began, ended, self._samples, thread, self._slot)
        self._pipeline.ended(row)


class Pipeline:
    """One producer-consumer loop; make it with `pipeline()`. Every method may be called from any
    thread and any asyncio task."""

    def __init__(self, name: str, slots: int | None) -> None:
        self.declared = LoopDeclaration(name, slots)
        self.waiting = span("dispatch_wait")
        self._slots: dict[Hashable, int] = {}
        self._recent: dict[str, deque[StageRow]] = {
            stage: deque(maxlen=MAX_ROWS) for stage in (TRAIN, INFER, WAIT)
        }
        self._size: int | None = None

    def train(self, samples: int = 1) -> Unmeasured:
        """`with loop.train(samples=64): ...` around one training step, the wait for its samples
        left out.

        Raises:
            TypeError: `samples` is no integer.
            ValueError: it is negative.
        """
        # Checked first: compiled code is then not guarded on whether a session is there.
        if dynamo_skip.is_compiling():
            return Unmeasured()
        parse_count(samples, _SAMPLES)
        return Measured(self, TRAIN, samples, NO_SLOT) if sinks.all else _UNMEASURED

    def infer(self, slot: Hashable = None, samples: int = 1) -> Unmeasured:
        """`with loop.infer(slot): ...` around one call of an inference engine, the wait for a free
        slot left out.

        Raises:
            TypeError: `samples` is no integer, or `slot` is not hashable.
            ValueError: `samples` is negative.
        """
        if dynamo_skip.is_compiling():
            return Unmeasured()
        parse_count(samples, _SAMPLES)
        hash(slot)
        if not sinks.all:
            return _UNMEASURED
        index = NO_SLOT  # else in the order they were first used
        if slot is not None and (slot in self._slots or len(self._slots) < _MAX_SLOTS):
            index = self._slots.setdefault(slot, len(self._slots))
        return Measured(self, INFER, samples, index)

    def dispatch_wait(self) -> Unmeasured:
        """`with loop.dispatch_wait(): ...` where training waits for the pool to hold enough. It is
        also a span of that name."""
        if dynamo_skip.is_compiling():
            return Unmeasured()
        return Measured(self, WAIT, 0, NO_SLOT) if sinks.all else _UNMEASURED

    def pool(self, size: int) -> None:
        """Records how many samples the pool holds now.

        Raises:
            TypeError: `size` is no integer.
            ValueError: it is negative.
        """
        if dynamo_skip.is_compiling():
            return
        parse_count(size, _SAMPLES)
        if sinks.all:
            at, self._size = _monotonic(), int(size)
            for sink in sinks.all:
                sink.add(self.declared, Size(at, self._size), at)

    def line(self) -> str:
        """The last ten seconds as text for a progress bar, `thru=8.2, I=8.5, T=15.3, wait=2.1s,
        pool=0`: samples a second that are trained, that inference and training could do, seconds
        waited a training step, samples in the pool. What is not known is left out; "" while
        there is no session."""
        if dynamo_skip.is_compiling() or not sinks.all:
            return ""
        now = _monotonic()
        trained, inferred, waits = (
            [row for row in tuple(self._recent[stage]) if row.ended >= now - WINDOW_S]
            for stage in (TRAIN, INFER, WAIT)
        )
        began = min((row.began for row in (*trained, *inferred, *waits)), default=now)
        calls = [(row.began, row.ended) for row in inferred]
        slots = resolve_slots(self.declared.slots, len(self._slots), calls)
        rates = {
            "thru": compute_rate(_count_samples(trained), now - max(began, now - WINDOW_S)),
            "I": compute_infer_capacity(_count_samples(inferred), _sum_seconds(inferred), slots),
            "T": compute_rate(_count_samples(trained), _sum_seconds(trained)),
        }
        parts = [f"{name}={value:.1f}" for name, value in rates.items() if value is not None]
        if waits:
            parts.append(f"wait={_sum_seconds(waits) / max(len(trained), 1):.1f}s")
        if self._size is not None:
            parts.append(f"pool={self._size}")
        return ", ".join(parts)

    def ended(self, row: StageRow) -> None:
        self._recent[row.stage].append(row)
        for sink in sinks.all:
            sink.add(self.declared, row, row.ended)


def _count_samples(rows: list[StageRow]) -> int:
    return sum(row.samples for row in rows)


def _sum_seconds(rows: list[StageRow]) -> float:
    return sum(row.ended - row.began for row in rows)


def pipeline(name: str = "pipeline", slots: int | None = None) -> Pipeline:
    """Make a producer-consumer loop to measure. `slots`: how many inference calls can be in
    progress at a time; without it, as many as were observed.

    Raises:
        ValueError: `slots` is below 1.
    """
    if slots is not None and slots < 1:
        raise ValueError(f"pipeline {name!r}: slots must be 1 or more, not {slots}")
    dynamo_skip.bind_if_imported()
    return Pipeline(clip_name(name), slots)
