"""Installation and removal of every collector in this process; no fault of ours reaches the user.

`install` may come before torch is imported: each hook goes in right after the target imports the
module it lives in, never earlier. Several sessions may be installed at once (`watch()` inside a
supervised run); each sees every event.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from compilediag_harness import extension_points
from compilediag_harness.base.post_import import PostImport
from compilediag_harness.base.session import Session, SessionSinks, fork_handlers
from compilediag_harness.blame import source_locations
from compilediag_harness.collectors import invocations, logs, memory
from compilediag_harness.collectors.registry import CollectorSet
from compilediag_harness.shapes import shape_log
from compilediag_harness.steps import steps
from compilediag_harness.torch_internals import (
    dynamo_skip,
    environment,
    torch_api,
    torch_calls,
    torch_compiles,
    torch_logs,
    torch_names,
)
from compilediag_harness.torch_internals.torch_names import Remover, Removers
from compilediag_harness.user_api import spans
from compilediag_harness.wire import EnvironmentRead, ProcessEnded, TorchSeen

_MAX_REQUESTS = 32


class Attachment:
    """Everything one session has put into this process."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._imports = PostImport()
        self._undo: list[Callable[[], None]] = []
        self._torch: Any = None
        self._collectors: CollectorSet | None = None
        """Made when torch is imported."""
        self._requests: list[dict[str, Any]] = []
        self._exported = False
        recorded = {n: extension_points.load(at) for n, at in extension_points.RECORDED.items()}
        self._recorded: dict[str, SessionSinks[Any]] = {
            name: sinks for name, sinks in recorded.items() if sinks is not None
        }

    def install(self) -> None:
        """Arm every hook for the moment its module is imported."""
        self._run_after_import("torch", self._handle_torch_import)
        self._run_after_import(torch_names.EVAL_FRAME, torch_calls.watch_compiled_calls)
        distributed = torch_api.DISTRIBUTED_SAVER
        self._run_after_import(distributed, partial(spans.watch_saves, distributed))
        # Invariant: of this package, what is imported later stays out of Dynamo as well.
        self._imports.run_after_package(__name__.partition(".")[0], dynamo_skip.bind_if_imported)

    def _run_after_import(self, name: str, action: Callable[[], object]) -> None:
        def run_action(module: types.ModuleType) -> None:
            with self.session.charge_block(f"after import of {name}"):
                action()

        self._imports.run_after_import(name, run_action)

    def _install_hooks(self, install: Callable[[], Remover | Removers | None]) -> None:
        made = install()
        removers = (made,) if callable(made) else made or ()
        self._undo += [remover for remover in removers if remover is not None]

    def _handle_torch_import(self) -> None:
        session = self.session
        self._torch = torch = sys.modules["torch"]
        self._collectors = collectors = CollectorSet(session, torch)
        for module, install in (
            *collectors.list_hooks(),
            (torch_names.DYNAMO, partial(torch_calls.watch_stance, invocations.record_stance)),
            (torch_names.DYNAMO, partial(torch_compiles.watch_compile_requests, self._add_request)),
            (torch_names.EXPORT, partial(torch_compiles.watch_exports, self._record_export)),
        ):
            self._run_after_import(module, partial(self._install_hooks, install))
        self._run_after_import(torch_names.DYNAMO, self._report_torch)
        self._install_hooks(partial(torch_logs.watch_log_setup, self._redact_trace))
        self._redact_trace()
        self._report_torch()
        self._read_environment()
        steps.install(session, torch)
        spans.watch_saves(torch_api.SERIALIZATION)
        invocations.sinks.install(session)  # after the steps: their clock reads first
        for sinks in (*self._recorded.values(), shape_log.sinks):
            sinks.install(session)
        collectors.watch_steps()
        if session.trial is not None:
            # After those that measure: its own cost is in no step's begin. `trial` is untyped here:
            # its methods are called by name.
            session.trial.torch_imported(session, torch)
        dynamo_skip.keep_out_of_dynamo(torch)

    def _add_request(self, request: dict[str, Any]) -> None:
        """Record the arguments of `torch.compile`: they are part of what makes runs comparable."""
        if request not in self._requests and len(self._requests) < _MAX_REQUESTS:
            self._requests.append(request)
            facts = {"compile_requests": list(self._requests)}
            self.session.emit(EnvironmentRead(self.session.now(), facts))

    def _record_export(self) -> None:
        if not self._exported:
            self._exported = True
            self.session.emit(EnvironmentRead(self.session.now(), {"exported": True}))

    def _redact_trace(self) -> None:
        with self.session.catch_faults(logs.FAULT):
            logs.redact_trace(self.session)

    def _report_torch(self) -> None:
        torch = self._torch
        hooks = {hook.name: torch_names.is_available(hook) for hook in torch_names.HOOKS}
        self.session.emit(
            TorchSeen(
                self.session.now(),
                str(torch.__version__),
                getattr(torch.version, "git_version", None),
                {name: ok for name, ok in hooks.items() if ok is not None},
                {hook.name: hook.lost for hook in torch_names.HOOKS if hooks[hook.name] is False},
            )
        )

    def _read_environment(self) -> None:
        self.session.emit(EnvironmentRead(self.session.now(), environment.read(self._torch)))

    def handle_fork(self) -> None:
        """Start anew in a fork of the process that the collectors were installed in."""
        self.session.collector_s = 0.0
        if self._collectors is not None:
            self._collectors.handle_fork()

    def finish(self, failure: str | None) -> None:
        """Look a last time, write what is not written, and emit how the process ends."""
        session, collectors, trial = self.session, self._collectors, self.session.trial
        if collectors is not None:
            collectors.syncs.stop()
        for what, action in (
            ("trial", trial.finish if trial is not None else None),
            ("steps", partial(steps.finish, session)),
            *((name, partial(sinks.finish, session)) for name, sinks in self._recorded.items()),
            ("fixed shapes", partial(shape_log.sinks.finish, session)),
            ("invocations", partial(invocations.sinks.finish, session)),
            *(collectors.list_last_actions() if collectors is not None else ()),
            ("environment", self._torch and self._read_environment),
        ):
            with session.catch_faults(f"finish: {what}"):
                if action is not None:
                    action()
        files = None
        with session.catch_faults("finish: imported files"):
            files = source_locations.list_imported_files()
        ended = self.read_progress(failure, files)
        if trial is not None:
            # Everything is read, and nothing watches any more: what it compiles counts nowhere.
            with session.catch_faults("recording: varied calls"):
                trial.vary_calls(ended.t, self.uninstall)
        session.emit(ended)
        if trial is not None:
            trial.end_process_if_broken()

    def read_progress(
        self, failure: str | None = None, sources: tuple[str, ...] | None = None
    ) -> ProcessEnded:
        """Read the record of the end of the process, as of now."""
        session = self.session
        return ProcessEnded(
            session.now(),
            {} if self._collectors is None else self._collectors.read_counters(),
            session.collector_s,
            session.records_dropped,
            memory.read_peak()[0],
            failure,
            dict(session.records_left_out),
            sources,
        )

    def uninstall(self) -> None:
        """Remove everything that `install` and the imports since then have put in place."""
        session = self.session
        self._imports.withdraw()
        while self._undo:
            self._undo.pop()()
        if self._collectors is not None:
            self._collectors.uninstall()
        steps.uninstall(session)
        for sinks in (*self._recorded.values(), shape_log.sinks):
            sinks.uninstall(session)
        logs.restore_trace(session)
        invocations.uninstall(session)
        if session.trial is not None:
            session.trial.uninstall()


_attachments: dict[int, Attachment] = {}


def _handle_fork() -> None:
    for attachment in _attachments.values():
        attachment.handle_fork()


fork_handlers.append(_handle_fork)


def install(session: Session) -> None:
    """Install every collector for `session`; before or after torch is imported."""
    attachment = Attachment(session)
    _attachments[id(session)] = attachment
    attachment.install()


def finish(session: Session, failure: str | None = None) -> None:
    """Emit what is left and `ProcessEnded`; the hooks stay until `uninstall`."""
    attachment = _attachments.get(id(session))
    if attachment is not None:
        attachment.finish(failure if failure is not None else session.failure)


def read_progress(session: Session) -> ProcessEnded | None:
    """Read what `finish` would emit for `session` now; None when not installed."""
    attachment = _attachments.get(id(session))
    return attachment.read_progress() if attachment is not None else None


def uninstall(session: Session) -> None:
    """Remove every hook of `session`."""
    attachment = _attachments.pop(id(session), None)
    if attachment is not None:
        attachment.uninstall()
