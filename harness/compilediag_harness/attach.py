"""Installs and removes every collector in this process; never lets a fault of ours reach the user.

`install` may come before torch is imported: each hook goes in right after the target imports the
module it lives in, never earlier. Several sessions may be installed at once (`watch()` inside a
supervised run); each sees every event.
"""

from __future__ import annotations

import os
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from compilediag_harness import extension_points
from compilediag_harness.base.post_import import PostImport
from compilediag_harness.base.session import Session, SessionSinks
from compilediag_harness.blame import source_locations
from compilediag_harness.collectors import invocations, memory, signals, trace_redaction
from compilediag_harness.collectors.registry import CollectorSet
from compilediag_harness.shapes import shape_log
from compilediag_harness.steps import steps
from compilediag_harness.torch_internals import (
    dynamo_skip,
    environment,
    torch_api,
    torch_caches,
    torch_calls,
    torch_compiles,
    torch_cudagraphs,
    torch_disabling,
    torch_guards,
    torch_logs,
    torch_names,
    torch_precompiled,
)
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
        self._collectors = CollectorSet(session)
        self._requests: list[dict[str, Any]] = []
        self._exported = False
        recorded = {n: extension_points.load(at) for n, at in extension_points.RECORDED.items()}
        self._recorded: dict[str, SessionSinks[Any]] = {
            name: sinks for name, sinks in recorded.items() if sinks is not None
        }

    # --- installing --------------------------------------------------------------------------

    def install(self) -> None:
        """Arms every hook for the moment its module is imported."""
        for module, action in (
            ("torch", self._torch_imported),
            (torch_names.EVAL_FRAME, torch_calls.watch_compiled_calls),
            (torch_names.DYNAMO, self._dynamo_imported),
            (torch_api.DISTRIBUTED_SAVER, spans.watch_distributed_saves),
            (torch_cudagraphs.TREES, self._collectors.trees_imported),
        ):
            self._imports.on_import(module, self._shielded(module, action))
        # Of this package: what is imported later is kept out of Dynamo as well.
        self._imports.on_package(__name__.partition(".")[0], dynamo_skip.bind_if_imported)
        collectors, exported = self._collectors, self._export_begun
        caches, precompiled = collectors.caches, collectors.precompiled
        for module, install in (
            (torch_names.UTILS, collectors.metrics_imported),
            (torch_names.GUARDS, lambda: [torch_guards.on_guards_built(collectors.guards_built)]),
            (torch_names.SYMBOLIC_SHAPES, collectors.symbolic_shapes_imported),
            (torch_names.CONVERT_FRAME, collectors.convert_frame_imported),
            (torch_names.SYMBOLIC_CONVERT, collectors.translator_imported),
            (torch_logs.CUDAGRAPH_UTILS, collectors.cudagraph_utils_imported),
            (torch_names.EXPORT, lambda: [torch_compiles.on_export(exported)]),
            (torch_names.UTILS, caches.events_imported),
            (torch_caches.CODECACHE, caches.graphs_imported),
            (torch_caches.AOT_CACHE, caches.aot_imported),
            (torch_caches.STATS, caches.counts_imported),
            (torch_caches.PGO, caches.profile_imported),
            (torch_caches.ARTIFACTS, caches.artifacts_imported),
            (torch_precompiled.PACKAGE, precompiled.packages_imported),
            (torch_precompiled.AOT_COMPILE, precompiled.aot_imported),
        ):
            self._imports.on_import(module, self._shielded(module, partial(self._keep, install)))

    def _shielded(
        self, where: str, action: Callable[[], object]
    ) -> Callable[[types.ModuleType], None]:
        def act(module: types.ModuleType) -> None:
            started = time.monotonic()
            try:
                action()
            except Exception as error:
                self.session.fault(f"after import of {where}", error)
            self.session.charge(time.monotonic() - started)

        return act

    def _keep(self, install: Callable[[], torch_names.Removers]) -> None:
        self._undo += [remover for remover in install() if remover is not None]

    def _torch_imported(self) -> None:
        session = self.session
        self._torch = torch = sys.modules["torch"]
        self._collectors.torch_imported(torch)
        self._keep(lambda: [torch_logs.on_logs_initialised(self._redact_trace)])
        self._redact_trace()
        self._report_torch()
        self._read_environment()
        steps.install(session, torch)
        spans.watch_saves()
        invocations.sinks.install(session)  # after the steps: their clock reads first
        for sinks in (*self._recorded.values(), shape_log.sinks):
            sinks.install(session)
        signals.install(session, torch)
        self._collectors.steps_installed()
        if (
            session.trial is not None
        ):  # after those that measure: its own cost is in no step's begin
            session.trial.torch_imported(session, torch)
        dynamo_skip.keep_out_of_dynamo(torch)

    def _dynamo_imported(self) -> None:
        self._keep(self._collectors.dynamo_imported)
        self._keep(
            lambda: (
                torch_disabling.on_stance_set(invocations.stance_set),
                torch_compiles.on_compile_request(self._compile_requested),
            )
        )
        self._report_torch()

    # --- what the hooks call -----------------------------------------------------------------

    def _compile_requested(self, request: dict[str, Any]) -> None:
        """`torch.compile` was called: its arguments are part of what makes runs comparable."""
        if request not in self._requests and len(self._requests) < _MAX_REQUESTS:
            self._requests.append(request)
            facts = {"compile_requests": list(self._requests)}
            self.session.emit(EnvironmentRead(self.session.now(), facts))

    def _export_begun(self) -> None:
        if not self._exported:
            self._exported = True
            self.session.emit(EnvironmentRead(self.session.now(), {"exported": True}))

    def _redact_trace(self) -> None:
        try:
            trace_redaction.install(self.session)
        except Exception as error:
            self.session.fault(trace_redaction.FAULT, error)

    def _report_torch(self) -> None:
        torch = self._torch
        hooks = {hook.name: torch_names.available(hook) for hook in torch_names.HOOKS}
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
        facts = environment.read(self._torch)
        self.session.emit(EnvironmentRead(self.session.now(), facts))

    def forked(self) -> None:
        """This process is a fork of the one that the collectors were installed in."""
        self._collectors.forked()

    # --- ending ------------------------------------------------------------------------------

    def finish(self, failure: str | None) -> None:
        """Looks a last time, writes what is not written, and emits how the process ends."""
        session, collectors, trial = self.session, self._collectors, self.session.trial
        collectors.stop_sampling()
        for what, action in (
            ("trial", trial.finish if trial is not None else None),
            ("steps", lambda: steps.finish(session)),
            *((name, partial(sinks.finish, session)) for name, sinks in self._recorded.items()),
            ("fixed shapes", lambda: shape_log.sinks.finish(session)),
            ("invocations", lambda: invocations.sinks.finish(session)),
            ("profiling", lambda: signals.finish(session)),
            *collectors.last_actions(),
            ("environment", self._read_environment if self._torch is not None else None),
        ):
            if action is not None:
                _try(session, what, action)
        files = _try(session, "imported files", source_locations.imported_files)
        session.emit(self.progress(failure, files))

    def progress(
        self, failure: str | None = None, sources: tuple[str, ...] | None = None
    ) -> ProcessEnded:
        """The record of the end of the process, as of now."""
        session = self.session
        return ProcessEnded(
            session.now(),
            self._collectors.counters(),
            session.collector_s,
            session.records_dropped,
            memory.peak()[0],
            failure,
            dict(session.records_left_out),
            sources,
        )

    def uninstall(self) -> None:
        """Puts torch back as it was."""
        session = self.session
        self._imports.withdraw()
        while self._undo:
            self._undo.pop()()
        self._collectors.uninstall()
        steps.uninstall(session)
        for sinks in (*self._recorded.values(), shape_log.sinks):
            sinks.uninstall(session)
        trace_redaction.uninstall(session)
        invocations.uninstall(session)
        signals.uninstall(session)
        if session.trial is not None:
            session.trial.uninstall()


def _try(session: Session, what: str, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:
        session.fault(f"finish: {what}", error)
        return None


_attachments: dict[int, Attachment] = {}


def _forked() -> None:
    for attachment in _attachments.values():
        attachment.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def install(session: Session) -> None:
    """Installs every collector for `session`; before or after torch is imported."""
    attachment = Attachment(session)
    _attachments[id(session)] = attachment
    attachment.install()


def finish(session: Session, failure: str | None = None) -> None:
    """Emits what is left and `ProcessEnded`; the hooks stay until `uninstall`."""
    attachment = _attachments.get(id(session))
    if attachment is not None:
        attachment.finish(failure if failure is not None else session.failure)


def progress(session: Session) -> ProcessEnded | None:
    """What `finish` would emit for `session` now; None when not installed."""
    attachment = _attachments.get(id(session))
    return attachment.progress() if attachment is not None else None


def uninstall(session: Session) -> None:
    """Removes every hook of `session`."""
    attachment = _attachments.pop(id(session), None)
    if attachment is not None:
        attachment.uninstall()
