"""`with watch() as seen:`: a run observed from inside its own process, for tests and notebooks.

The same events as under `compilediag run` are kept in memory, and folded, diagnosed and made into
a receipt when they are first asked for. Nothing is written unless `seen.save` is called.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
import traceback
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from compilediag_harness.session import Session
from compilediag_harness.wire import WIRE_VERSION, Event, ProcessStarted, clip

if TYPE_CHECKING:
    from compilediag.diagnose import Diagnosis
    from compilediag.findings import Finding
    from compilediag.receipt.schema import Receipt
    from compilediag.timeline import Timeline

EVENT_LIMIT = 200_000
"""Events kept in memory; later ones are counted as dropped, and the verdict says so."""

FAILURE_LIMIT = 8192
"""Longest account kept of an exception that ends the block, in characters."""


class _Full(Exception):
    """The memory for events is used up: tells the session to count the event as dropped."""


class Seen:
    """What a `watch()` block has seen. Read it after the block."""

    def __init__(self, user_roots: tuple[str, ...]) -> None:
        self._events: list[Event] = []
        self._user_roots = user_roots
        self._started_unix = time.time()
        self._wall_s: float | None = None
        self._failure: str | None = None

    def keep(self, event: Event) -> None:
        """Adds an event: the session's sink."""
        if len(self._events) >= EVENT_LIMIT:
            raise _Full
        self._events.append(event)

    def end(self, wall_s: float, failure: str | None) -> None:
        """The block ended; `failure` is the text of the exception that ended it."""
        self._wall_s, self._failure = wall_s, failure

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event, in order, as a journal would hold them."""
        self._ended()
        return tuple(self._events)

    @cached_property
    def timeline(self) -> Timeline:
        """Frames, compiles, recompiles, breaks, steps and spans of the block."""
        from compilediag.fold import fold

        return fold([self.events], None, self._user_roots)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """Verdict and findings."""
        from compilediag.diagnose import diagnose

        return diagnose(self.timeline)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, most expensive first."""
        return tuple(self.diagnosis.findings)

    @cached_property
    def receipt(self) -> Receipt:
        """The receipt of the block, as `compilediag run` would write it."""
        from compilediag.receipt.build import build
        from compilediag.receipt.run_facts import RunFacts
        from compilediag.receipt.ulid import ulid
        from compilediag.redact import secret_values

        timeline = self.timeline
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._started_unix))
        return build(
            timeline,
            self.diagnosis,
            RunFacts(
                receipt_id=ulid(int(self._started_unix * 1000), os.urandom(10)),
                created_at_utc=stamp,
                status="complete" if self._failure is None else "failed",
                wall_s=self._wall_s,
                argv=tuple(sys.argv),
                secret_values=tuple(secret_values(sys.argv, os.environ)),
                failure_reason=self._failure,
            ),
        )

    def save(self, path: str | Path) -> Path:
        """Writes the receipt to `path`, atomically, and returns it.

        Raises:
            OutputUnwritable: the file cannot be written.
        """
        from compilediag.receipt.file import write_receipt

        write_receipt(self.receipt, Path(path))
        return Path(path)

    def _ended(self) -> None:
        if self._wall_s is None:
            raise RuntimeError("watch() has not ended: read what it has seen after the with block")

    def __repr__(self) -> str:
        if self._wall_s is None:
            return "<watch: in progress>"
        return f"<watch: {len(self._events)} events in {self._wall_s:.3g} s>"


class watch:  # noqa: N801  (a context manager reads as a word, like contextlib.suppress)
    """Observes torch.compile in this process, in all of its threads, for the length of a block.

        with watch() as seen:
            train_two_steps()
        assert seen.receipt.compile.recompiles == 0, seen.findings

    It works before and after torch is imported, inside of `compilediag run`, and nested: each
    block sees everything that happens in it. What was compiled before the block is not counted.
    """

    def __init__(self) -> None:
        self._seen: Seen | None = None
        self._session: Session | None = None

    def __enter__(self) -> Seen:
        from compilediag_harness import attach

        if self._session is not None:
            raise RuntimeError("this watch() is in use: make one for each block")
        caller = inspect.currentframe()
        caller = caller.f_back if caller is not None else None
        seen = Seen(_user_roots(caller.f_code.co_filename if caller is not None else ""))
        session = Session(seen.keep)
        self._seen, self._session = seen, session
        session.emit(_process_started())
        attach.install(session)
        return seen

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from compilediag_harness import attach

        session, seen = self._session, self._seen
        if session is None or seen is None:
            return
        self._session = self._seen = None
        failure = None
        if error is not None:
            text = "".join(traceback.format_exception(kind, error, trace))
            failure = clip(text, FAILURE_LIMIT)
        try:
            attach.finish(session, failure)
        finally:
            attach.uninstall(session)
            seen.end(session.now(), failure)


def _user_roots(caller: str) -> tuple[str, ...]:
    """The working directory, and the folder of the file whose code is watched."""
    roots = [os.getcwd()]
    if os.path.isfile(caller):
        roots.append(os.path.dirname(os.path.abspath(caller)))
    return tuple(dict.fromkeys(roots))


def _process_started() -> ProcessStarted:
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    return ProcessStarted(
        t=0.0,
        wire_version=WIRE_VERSION,
        pid=os.getpid(),
        parent_pid=os.getppid(),
        rank=_rank("RANK"),
        world_size=_rank("WORLD_SIZE"),
        argv=tuple(sys.orig_argv[:256]),
        executable=sys.executable or "",
        cwd=os.getcwd(),
        started_utc=f"{stamp}.{int(now % 1 * 1e6):06d}Z",
        python=sys.version.split()[0],
    )


def _rank(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None
