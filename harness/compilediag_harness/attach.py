"""Installs and removes every collector in this process; never lets a fault of ours reach the user.

`install` may come before torch is imported: each hook goes in right after the target imports the
module it lives in, never earlier. Several sessions may be installed at once (`watch()` inside a
supervised run); each sees every event.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable
from typing import Any

from compilediag_harness import (
    checkpoints,
    environment,
    host_memory,
    pipeline,
    pipeline_log,
    profiling,
    steps,
    torch_api,
    torch_calls,
    torch_compiles,
    torch_cudagraphs,
    torch_guards,
    torch_logs,
    torch_names,
    tracker,
    tracker_log,
)
from compilediag_harness.collectors import hooks, invocations
from compilediag_harness.collectors.baselines import Baselines
from compilediag_harness.collectors.compiles import CompileCollector
from compilediag_harness.collectors.cudagraphs import CudagraphCollector
from compilediag_harness.collectors.hazards import HazardCollector
from compilediag_harness.collectors.logs import LogCollector
from compilediag_harness.collectors.memory import DeviceMemory
from compilediag_harness.collectors.recompiles import RecompileCollector
from compilediag_harness.collectors.syncs import SyncCollector
from compilediag_harness.collectors.unguarded import UnguardedCollector
from compilediag_harness.post_import import PostImport
from compilediag_harness.session import Session
from compilediag_harness.shapes import shape_log
from compilediag_harness.wire import EnvironmentRead, EvidenceLost, ProcessEnded, TorchSeen

_LOG_CHECK_EVERY_S = 0.1
_MOST_REQUESTS = 32


class Attachment:
    """Everything one session has put into this process."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._imports = PostImport()
        self._undo: list[Callable[[], None]] = []
        self._torch: Any = None
        self._baselines = Baselines()
        self._logs: LogCollector | None = None
        self._recompiles: RecompileCollector | None = None
        self._compiles: CompileCollector | None = None
        self._hazards: HazardCollector | None = None
        self._unguarded: UnguardedCollector | None = None
        self._memory: DeviceMemory | None = None
        self._cudagraphs: CudagraphCollector | None = None
        self._syncs: SyncCollector | None = None
        self._totals_at_start: dict[str, int] = {}
        self._next_log_check = 0.0
        self._requests: list[dict[str, Any]] = []

    # --- installing --------------------------------------------------------------------------

    def install(self) -> None:
        """Arms every hook for the moment its module is imported."""
        for module, action in (
            ("torch", self._torch_imported),
            (torch_names.UTILS, self._utils_imported),
            (torch_names.GUARDS, self._guards_imported),
            (torch_names.CONVERT_FRAME, self._convert_frame_imported),
            (torch_names.EVAL_FRAME, self._eval_frame_imported),
            (torch_names.DYNAMO, self._dynamo_imported),
            (torch_api.DISTRIBUTED_SAVER, self._saver_imported),
            (torch_cudagraphs.TREES, self._trees_imported),
        ):
            self._imports.want(module, self._shielded(module, action))

    def _shielded(
        self, where: str, action: Callable[[], None]
    ) -> Callable[[types.ModuleType], None]:
        def act(module: types.ModuleType) -> None:
            started = time.monotonic()
            try:
                action()
            except Exception as error:
                self.session.fault(f"after import of {where}", error)
            self.session.charge(time.monotonic() - started)

        return act

    def _torch_imported(self) -> None:
        session = self.session
        self._torch = torch = sys.modules["torch"]
        self._make_collectors(torch)
        self._logs = LogCollector(session, session.text_log)
        self._logs.arm()
        self._keep(torch_logs.on_logs_initialised(self._rearm_logs))
        self._tell_torch()
        self._read_environment()
        steps.install(session, torch)
        checkpoints.install(torch)
        invocations.install(session, torch)  # after the steps: their clock reads first
        pipeline.install(session, torch)
        tracker.install(session, torch)
        shape_log.install(session)
        profiling.install(session, torch)
        self._memory = DeviceMemory(session, torch_api.device_memory)
        session.step_listeners.append(self._memory.step_ended)
        session.step_listeners.append(self._step_ended)

    def _make_collectors(self, torch: Any) -> None:
        session, tensor = self.session, torch.Tensor
        self._recompiles = RecompileCollector(session, self._baselines, tensor)
        self._compiles = CompileCollector(session, self._recompiles)
        self._hazards = HazardCollector(session, self._baselines, tensor)
        self._unguarded = UnguardedCollector(session, self._baselines, torch.nn.Module)
        self._syncs = SyncCollector(session, torch)

    def _utils_imported(self) -> None:
        if self._compiles is not None:
            torch_compiles.on_metrics_row(self._compiles.row)
            self._totals_at_start = torch_compiles.totals()

    def _guards_imported(self) -> None:
        self._keep(torch_guards.on_guards_built(self._guards_built))

    def _convert_frame_imported(self) -> None:
        if self._recompiles is not None:
            self._keep(torch_guards.on_recompile_question(self._recompiles.asked))

    def _eval_frame_imported(self) -> None:
        torch_calls.watch_compiled_calls()

    def _trees_imported(self) -> None:
        self._cudagraphs = CudagraphCollector(self.session)
        self._cudagraphs.install()
        self.session.step_listeners.append(self._cudagraphs.step_ended)

    def _saver_imported(self) -> None:
        checkpoints.saver_imported(self._torch)

    def _dynamo_imported(self) -> None:
        self._watch_starts()
        self._keep(torch_compiles.on_reset(self._reset))
        self._keep(torch_compiles.on_compile_request(self._compile_requested))
        self._tell_torch()

    def _watch_starts(self) -> None:
        if self._compiles is not None:
            self._keep(torch_compiles.on_compile_start(self._started))

    def _keep(self, remover: torch_names.Remover | None) -> None:
        if remover is not None:
            self._undo.append(remover)

    # --- what the hooks tell -----------------------------------------------------------------

    def _started(self, trigger: str, compile_id: str) -> None:
        if self._syncs is not None:
            self._syncs.stop()
        if self._compiles is not None:
            torch_compiles.on_metrics_row(self._compiles.row)
            self._compiles.started(trigger, compile_id)

    def _compile_requested(self, request: dict[str, Any]) -> None:
        """`torch.compile` was called: its arguments are part of what makes runs comparable."""
        if request not in self._requests and len(self._requests) < _MOST_REQUESTS:
            self._requests.append(request)
            facts = {"compile_requests": list(self._requests)}
            self.session.emit(EnvironmentRead(self.session.now(), facts))

    def _guards_built(self, code: Any, compile_id: str, scope: dict[str, Any], guards: Any) -> None:
        started = time.monotonic()
        try:
            self._baselines.remember(code, compile_id, scope, guards, self._torch.Tensor)
            if self._unguarded is not None:
                self._unguarded.compiled(code, scope)
        except Exception as error:
            self.session.fault("guards built", error)
        self.session.charge(time.monotonic() - started)

    def _reset(self) -> None:
        if self._compiles is not None:
            self._compiles.reset()
        self._watch_starts()

    def _rearm_logs(self) -> None:
        try:
            if self._logs is not None:
                self._logs.arm()
        except Exception as error:
            self.session.fault("logs re-armed", error)

    def _step_ended(self, step: int, compiled: bool) -> None:
        if self._syncs is not None:
            self._syncs.step_ended(step, compiled)
        # A silenced logger stays silenced: looking now and then finds it as well.
        now = time.monotonic()
        if self._logs is not None and (compiled or now > self._next_log_check):
            self._next_log_check = now + _LOG_CHECK_EVERY_S
            self._logs.check()
        if self._hazards is not None:
            self._hazards.step_ended(step, compiled)
        if self._unguarded is not None:
            self._unguarded.step_ended(step, compiled)
        if self._syncs is not None:
            self._syncs.step_begins(step + 1)

    def _tell_torch(self) -> None:
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

    # --- ending ------------------------------------------------------------------------------

    def finish(self, failure: str | None) -> None:
        """Looks a last time, flushes the steps and says how the process ends."""
        session = self.session
        if self._syncs is not None:
            self._syncs.stop()
        for what, action in (
            ("steps", lambda: steps.finish(session)),
            ("pipeline", lambda: pipeline_log.finish(session)),
            ("tracker", lambda: tracker_log.finish(session)),
            ("fixed shapes", lambda: shape_log.finish(session)),
            ("invocations", lambda: invocations.finish(session)),
            ("profiling", lambda: profiling.finish(session)),
            ("memory", self._memory.read if self._memory is not None else None),
            ("CUDA graphs", self._cudagraphs.finish if self._cudagraphs is not None else None),
            ("last look", self._last_look),
            ("hooks", self._tell_hooks),
            ("environment", self._read_environment if self._torch is not None else None),
        ):
            try:
                if action is not None:
                    action()
            except Exception as error:
                session.fault(f"finish: {what}", error)
        session.emit(self.progress(failure))

    def progress(self, failure: str | None = None) -> ProcessEnded:
        """What there is to tell at the end, as of now."""
        session = self.session
        return ProcessEnded(
            session.now(),
            self._counters(),
            session.collector_s,
            session.records_dropped,
            host_memory.peak()[0],
            failure,
        )

    def _last_look(self) -> None:
        session = self.session
        if self._logs is not None:
            self._logs.check()
        if self._hazards is not None:
            self._hazards.step_ended(session.step, session.compiled_in_step)
        if self._unguarded is not None:
            self._unguarded.look(session.step)
        dynamo_seen = torch_names.loaded(torch_names.UTILS) is not None
        if dynamo_seen and self._compiles and not torch_compiles.on_metrics_row(self._compiles.row):
            lost = "torch keeps no metrics rows"
            session.emit(EvidenceLost(session.now(), session.step, "metrics", lost))

    def _tell_hooks(self) -> None:
        if self._unguarded is not None:
            found = hooks.look(self._unguarded.modules, self.session.now())
            if found is not None:
                self.session.emit(found)

    def _counters(self) -> dict[str, int]:
        now = torch_compiles.totals()
        counters = {name: now[name] - self._totals_at_start.get(name, 0) for name in now}
        if self._compiles is not None:
            counters["metrics_rows"] = self._compiles.rows
        if self._recompiles is not None:
            counters["recompile_calls"] = self._recompiles.calls
        if self._logs is not None:
            counters["break_records"] = self._logs.break_records
        return counters

    def uninstall(self) -> None:
        """Puts torch back as it was."""
        session = self.session
        self._imports.forget()
        while self._undo:
            self._undo.pop()()
        if self._compiles is not None:
            torch_compiles.forget_metrics_rows(self._compiles.row)
        if self._logs is not None:
            self._logs.disarm()
        if self._syncs is not None:
            self._syncs.uninstall()
        if self._step_ended in session.step_listeners:
            session.step_listeners.remove(self._step_ended)
        if self._memory is not None:
            session.step_listeners.remove(self._memory.step_ended)
        if self._cudagraphs is not None:
            self._cudagraphs.uninstall()
            session.step_listeners.remove(self._cudagraphs.step_ended)
        steps.uninstall(session)
        pipeline_log.uninstall(session)
        tracker_log.uninstall(session)
        shape_log.uninstall(session)
        invocations.uninstall(session)
        profiling.uninstall(session)


_attachments: dict[int, Attachment] = {}


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
    """What `finish` would tell of `session` now; nothing is emitted. None when not installed."""
    attachment = _attachments.get(id(session))
    return attachment.progress() if attachment is not None else None


def uninstall(session: Session) -> None:
    """Removes every hook of `session`."""
    attachment = _attachments.pop(id(session), None)
    if attachment is not None:
        attachment.uninstall()
