"""`with watch() as seen:`: a run observed from inside its own process, for tests and notebooks.

The same events as under `compilediag run` are stored in memory, and folded, diagnosed and made into
a receipt at the first access. Nothing is written unless `seen.save` is called.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from compilediag.receipt.run_metadata import parse_provenance
from compilediag_harness.base.session import Session
from compilediag_harness.wire import Event, ProcessEnded, ProcessStarted, clip

if TYPE_CHECKING:
    from compilediag.diagnosis.findings import Finding
    from compilediag.receipt.schema.invocations import Invocation
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.rules.diagnose import Diagnosis
    from compilediag.runs.pipeline import DiagnosedRun
    from compilediag.timeline.timeline import Timeline


EVENT_LIMIT = 200_000
"""Events stored in memory; later ones are counted as dropped, and the verdict says so."""

FAILURE_LIMIT = 8192
"""Longest account stored of an exception that ends the block, in characters."""


class _Full(Exception):
    """The memory for events is used up: makes the session count the event as dropped."""


class WatchResult:
    """The record of a `watch()` block, to be read after the block; `snapshot()` inside it."""

    def __init__(self, user_roots: tuple[str, ...], configuration: str | None = None) -> None:
        self._events: list[Event] = []
        self._user_roots = user_roots
        self._configuration = configuration
        self._now: Callable[[], float] = time.monotonic
        self._progress: Callable[[], ProcessEnded | None] = lambda: None
        self._started_unix = time.time()
        self._wall_s: float | None = None
        self._failure: str | None = None
        self._partial = False
        self.calls = 0
        """Outermost calls of compiled callables, whether or not they compiled."""

    def begin(self, now: Callable[[], float], progress: Callable[[], ProcessEnded | None]) -> None:
        """Begin the block; `progress` returns its end event, were it to end now."""
        self._now, self._progress = now, progress

    def keep(self, event: Event) -> None:
        """Adds an event: the session's sink."""
        if len(self._events) >= EVENT_LIMIT:
            raise _Full
        self._events.append(event)

    def count_call(self, _key: int = 0) -> None:
        """Count a call of a compiled callable from outside compiled code."""
        self.calls += 1

    def now(self) -> float:
        """Seconds since the block began, on the clock of its events: marks a moment in it."""
        return self._now()

    def snapshot(self) -> WatchResult:
        """The record until now, read while the block goes on; undecided steps are left out."""
        part = WatchResult(self._user_roots, self._configuration)
        part._started_unix, part.calls = self._started_unix, self.calls
        if self._wall_s is not None:
            part._events, part._partial = list(self._events), self._partial
            part.end(self._wall_s, self._failure)
            return part
        ended = self._progress()
        part._events = [*self._events, *([ended] if ended is not None else [])]
        part._partial = True
        part.end(self._now(), None)
        return part

    def end(self, wall_s: float, failure: str | None) -> None:
        """End the block; `failure` is the text of the exception that ended it."""
        self._wall_s, self._failure = wall_s, failure

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event, in order, as a journal would hold them."""
        if self._wall_s is None:
            raise RuntimeError("watch() has not ended: read what it has seen after the with block")
        return tuple(self._events)

    @property
    def timeline(self) -> Timeline:
        """Frames, compiles, recompiles, breaks, steps and spans of the block."""
        return self._diagnosed_run.timeline

    @property
    def diagnosis(self) -> Diagnosis:
        """Verdict and findings."""
        return self._diagnosed_run.diagnosis

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, most expensive first."""
        return tuple(self.diagnosis.findings)

    @property
    def receipt(self) -> Receipt:
        """The receipt of the block, as `compilediag run` would write it."""
        return self._diagnosed_run.receipt

    @cached_property
    def _diagnosed_run(self) -> DiagnosedRun:
        """Made when it is first read, and not before: the block may still go on."""
        from compilediag.receipt.run_metadata import RunMetadata
        from compilediag.runs.pipeline import diagnose_run, make_identity
        from compilediag.timeline.timeline import fold
        from compilediag_harness.redaction.redactor import list_secret_values

        status = "complete" if self._failure is None else "failed"
        return diagnose_run(
            fold([self.events], user_roots=self._user_roots),
            RunMetadata(
                *make_identity(self._started_unix),
                status="partial" if self._partial else status,
                wall_s=self._wall_s,
                provenance=parse_provenance(os.environ),
                configuration_name=self._configuration,
                argv=tuple(sys.argv),
                secret_values=list_secret_values(sys.argv, os.environ),
                failure_reason=self._failure,
            ),
        )

    def invocation(self, name: str) -> Invocation:
        """The calls of one compiled callable, by the end of its name: "score", "Scorer.forward".

            per_step = seen.invocation("Scorer.forward").per_step
            assert (per_step.min, per_step.max) == (1, 1)    # exactly one batched call a step

        Raises:
            LookupError: no callable of that name was called from eager code, or several were.
        """
        called = self.receipt.invocations
        matching = [call for call in called if f".{call.name}".endswith(f".{name}")]
        if len(matching) != 1:
            many = "several callables" if matching else "no callable"
            names = ", ".join(dict.fromkeys(call.name for call in called)) or "none"
            raise LookupError(f"{many} named {name!r}; compiled callables called: {names}")
        return matching[0]

    def save(self, path: str | Path) -> Path:
        """Writes the receipt to `path`, atomically, and returns it.

        Raises:
            OutputUnwritable: the file cannot be written.
        """
        from compilediag.receipt.file import write_receipt

        write_receipt(self.receipt, Path(path))
        return Path(path)

    def __repr__(self) -> str:
        if self._wall_s is None:
            return "<watch: in progress>"
        return f"<watch: {len(self._events)} events in {self._wall_s:.3g} s>"

    def _repr_html_(self) -> str | None:
        """Render what a notebook shows; None inside the block, where its `repr` is shown."""
        if self._wall_s is None:
            return None
        from compilediag.views.summary import render_notebook

        root = os.getcwd()
        return render_notebook(self.receipt, root=root, find_cell=find_cell_name, calls=self.calls)


class watch:  # noqa: N801  (a context manager reads as a word, like contextlib.suppress)
    """Observes torch.compile in this process, in all of its threads, for the length of a block.

        with watch() as seen:
            train_two_steps()
        assert seen.receipt.compile.recompiles == 0, seen.findings

    It works before and after torch is imported, inside `compilediag run`, and nested: each
    block sees everything that happens in it. What was compiled before the block is not counted.
    """

    def __init__(
        self, *, root: str | None = None, user_roots: Sequence[str] = (), lane: str | None = None
    ) -> None:
        """`root`: the folder that paths are relative to, the working directory by default;
        `user_roots`: folders of the user's own code, the caller's by default; `lane`: the name
        under which the receipt is compared with others."""
        self._root = root
        self._user_roots = tuple(user_roots)
        self._configuration = lane
        self._seen: WatchResult | None = None
        self._session: Session | None = None
        self._forget_calls: Callable[[], None] | None = None

    def __enter__(self) -> WatchResult:
        from compilediag_harness import attach
        from compilediag_harness.process import read_identity
        from compilediag_harness.torch_internals import torch_calls

        if self._session is not None:
            raise RuntimeError("this watch() is in use: make one for each block")
        caller = inspect.currentframe()
        caller = caller.f_back if caller is not None else None
        file = caller.f_code.co_filename if caller is not None else ""
        # Without folders that are named, that of the caller's file.
        roots = [os.getcwd(), *self._user_roots]
        if not self._user_roots and os.path.isfile(file):
            roots.append(os.path.dirname(os.path.abspath(file)))
        seen = WatchResult(tuple(dict.fromkeys(roots)), self._configuration)
        session = Session(seen.keep)
        # The run around it may trace writes; a second session that does would cost them twice.
        session.options = replace(session.options, write_tracing=None)
        seen.begin(session.now, lambda: attach.read_progress(session))
        self._seen, self._session = seen, session
        started = {"t": 0.0, **read_identity(), "cwd": self._root or os.getcwd()}
        session.emit(msgspec.convert(started, ProcessStarted))
        attach.install(session)
        self._forget_calls = torch_calls.watch_outermost_calls(seen.count_call)
        return seen

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        from compilediag_harness import attach

        session, seen = self._session, self._seen
        if session is None or seen is None:
            return
        self._session = self._seen = None
        if self._forget_calls is not None:
            self._forget_calls()
        failure = None
        if error is not None:
            failure = clip("".join(traceback.format_exception(error)), FAILURE_LIMIT)
        try:
            attach.finish(session, failure)
        finally:
            attach.uninstall(session)
            seen.end(session.now(), failure)


def find_cell_name(file: str) -> str | None:
    """Find the name of a file's cell, `In[3]`; None for any other file, and outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    named = None if shell is None else shell.compile.format_code_name(file)
    return None if named is None else str(named[1])
