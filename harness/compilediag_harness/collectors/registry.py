"""Registry of a session's collectors: the torch hook or step that calls each, and their order."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from compilediag_harness.base.session import Session
from compilediag_harness.collectors import warm_calls
from compilediag_harness.collectors.caches import CacheCollector
from compilediag_harness.collectors.compiles import CompileCollector, SizeGuardCollector
from compilediag_harness.collectors.cudagraphs import CudagraphCollector
from compilediag_harness.collectors.guard_facts import Baselines
from compilediag_harness.collectors.hazards import HazardCollector, UnguardedCollector
from compilediag_harness.collectors.logs import LogCollector
from compilediag_harness.collectors.memory import DeviceMemory
from compilediag_harness.collectors.recompiles import RecompileCollector
from compilediag_harness.collectors.signals import InterruptWatch
from compilediag_harness.collectors.syncs import SyncCollector
from compilediag_harness.collectors.warm_calls import WarmCalls
from compilediag_harness.torch_internals import (
    torch_api,
    torch_caches,
    torch_compiles,
    torch_cudagraphs,
    torch_guards,
    torch_logs,
    torch_names,
)
from compilediag_harness.torch_internals.torch_names import Remover, Removers
from compilediag_harness.wire import AOT_AUTOGRAD, FX_GRAPH, EvidenceLost

if TYPE_CHECKING:
    from compilediag_harness.blame.witness import Witness


@contextlib.contextmanager
def _without_collections() -> Generator[None]:
    """Pause Python's garbage collector in a block: what it reads would set off a collection of the
    program's whole heap."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class CollectorSet:
    """The collectors of one session, made once torch has been imported; each is put into a part of
    torch when that part is imported."""

    def __init__(self, session: Session, torch: Any) -> None:
        self._session = session
        self._witness: Witness | None = None
        if session.options.witness is not None:
            from compilediag_harness.blame.witness import Witness

            self._witness = Witness(session, session.options.witness)
        self._baselines = Baselines(torch.Tensor, self._witness)
        self._sizes = SizeGuardCollector(session)
        self._compiles = compiles = CompileCollector(session, self._sizes)
        self.recompiles = RecompileCollector(session, self._baselines, compiles.leave_out)
        self._hazards = HazardCollector(session, self._baselines)
        self._unguarded = UnguardedCollector(session, torch.nn.Module)
        self.syncs = SyncCollector(session, torch)
        self.logs = LogCollector(session, session.text_log)
        self._interrupts: InterruptWatch | None = None
        if session.text_log is not None:  # of a run, which passes Ctrl-C on
            folder = os.path.dirname(os.path.abspath(torch.__file__))
            self._interrupts = InterruptWatch(session, folder)
        self._caches = CacheCollector(session)
        self._memory = DeviceMemory(session, torch_api.device_memory)
        self._warm_calls = WarmCalls(session, lambda: self._compiles.rows)
        self._cudagraphs: CudagraphCollector | None = None
        """None until torch's trees have been imported."""
        self._counted_before: dict[str, int] = {}

    def steps_installed(self) -> None:
        """Watch the end of each step from now on, after the listeners that measure it."""
        self._warm_calls.install()  # the last at the begin of a call: none but torch's is in it
        # Invariant: those that count run before `_handle_step_end`, which looks at the guards.
        self._session.step_listeners += [self._memory.step_ended, self._step_ended]

    def hooks(self) -> list[tuple[str, Callable[[], Remover | Removers | None]]]:
        """List the hooks, each with the module of torch after whose import it is installed;
        installing one returns what removes it again."""
        caches, logs, compiles, sizes = self._caches, self.logs, self._compiles, self._sizes
        said, loaded, witness = logs.shielded, (caches.loaded, caches.called), self._witness
        resumed = witness and partial(torch_compiles.on_compile_end, witness.compile_ended)
        return [
            (torch_names.DYNAMO, partial(torch_compiles.on_compile_start, self.compile_started)),
            *([(torch_names.DYNAMO, resumed)] if resumed else ()),
            (torch_names.DYNAMO, partial(torch_compiles.on_reset, compiles.reset)),
            (torch_names.UTILS, self._watch_metrics),
            (torch_names.UTILS, partial(torch_caches.on_events, caches.instant)),
            (torch_names.GUARDS, partial(torch_guards.on_guards_built, self.guards_built)),
            (
                torch_names.SYMBOLIC_SHAPES,
                partial(torch_compiles.on_conditions, sizes.added, sizes.fixed),
            ),
            (
                torch_names.CONVERT_FRAME,
                partial(torch_guards.on_recompile_reasons, self.recompiled),
            ),
            (torch_names.CONVERT_FRAME, partial(torch_logs.on_frame_failed, said(logs.failed))),
            (torch_names.CONVERT_FRAME, partial(torch_logs.on_frame_skipped, said(logs.skipped))),
            (torch_names.CONVERT_FRAME, partial(torch_logs.on_recompile_limit, said(logs.limited))),
            (torch_names.SYMBOLIC_CONVERT, partial(torch_logs.on_graph_break, said(logs.broke))),
            (
                torch_logs.CUDAGRAPH_UTILS,
                partial(torch_logs.on_cudagraph_skip, said(logs.without_cudagraph)),
            ),
            (torch_cudagraphs.TREES, self._watch_trees),
            (torch_caches.CODECACHE, caches.watch_graph_loads),
            (torch_caches.CODECACHE, partial(torch_caches.on_choices, caches.looked_up)),
            (torch_caches.CODECACHE, partial(torch_caches.on_writes, FX_GRAPH, caches.written)),
            (torch_caches.AOT_CACHE, partial(torch_caches.on_writes, AOT_AUTOGRAD, caches.written)),
            (torch_caches.STATS, partial(torch_caches.on_counted, caches.looked_up)),
            (torch_caches.PGO, partial(torch_caches.on_profile, caches.looked_up)),
            (torch_caches.ARTIFACTS, partial(torch_caches.on_artifacts, caches.looked_up)),
            (torch_caches.PACKAGE, partial(torch_caches.on_packages, *loaded)),
            (torch_caches.AOT_COMPILE, partial(torch_caches.on_loaded_functions, *loaded)),
        ]

    def _watch_metrics(self) -> Removers:
        """Watch every row of torch's metrics, which needs no end, and its timing of phases."""
        torch_compiles.on_metrics_row(self._compiles.row)
        self._counted_before = torch_compiles.totals()
        phases = self._compiles.phases
        removers = torch_compiles.on_phases(phases.began, phases.ended)
        self._compiles.phases_seen = bool(removers)
        return removers

    def _watch_trees(self) -> None:
        self._cudagraphs = CudagraphCollector(self._session)
        self._session.step_listeners.append(self._cudagraphs.step_ended)

    def compile_started(self, trigger: str, compile_id: str) -> None:
        """A compile begins: no synchronisation is sampled in its step."""
        self.syncs.stop()
        if self._witness is not None:
            self._witness.compile_started()
        # Again at each compile: `set_compilation_metrics_limit` may have replaced torch's list.
        torch_compiles.on_metrics_row(self._compiles.row)
        self._compiles.started(trigger, compile_id)

    def recompiled(self, entries: list[Any], frame: Any, reasons: list[str]) -> None:
        with self._session.shielded("torch's messages"):
            self.logs.recompiling(frame.f_code, reasons)
        with _without_collections():
            self.recompiles.recompiled(entries, frame, reasons)

    def guards_built(
        self, code: Any, compile_id: str, scope: dict[str, Any], guards: Any, manager: Any
    ) -> None:
        """Guarded code exists: store what it was compiled with, measure what its guards cost."""
        session, started = self._session, time.monotonic()
        with session.shielded("guards built"), _without_collections():
            self._baselines.remember(code, compile_id, scope, guards)
            self._unguarded.compiled(code, scope)
            if self._witness is not None:
                self._witness.guards_built(code, compile_id, scope, guards)
            spent = warm_calls.evaluate_guards(session, compile_id, scope, guards, manager)
            self._compiles.leave_out(compile_id, spent)
        session.charge(time.monotonic() - started)

    def _step_ended(self, step: int, compiled: bool) -> None:
        self.syncs.step_ended(step, compiled)
        if self._interrupts is not None:
            self._interrupts.look()
        self._hazards.step_ended(step, compiled)
        self._unguarded.step_ended(step, compiled)
        self.syncs.step_begins(step + 1)

    def last_actions(self) -> list[tuple[str, Callable[[], object] | None]]:
        """List what to do when the process ends, in order, with the words for a fault in it."""
        return [
            ("memory", self._memory.read),
            ("CUDA graphs", self._cudagraphs and self._cudagraphs.finish),
            ("last look", self._look_last),
            ("warm calls", self._warm_calls.finish),
            ("witness", self._witness and self._witness.finish),
            ("hooks", self._unguarded.report_hooks),
        ]

    def _look_last(self) -> None:
        """Finds what no later step will show."""
        session = self._session
        self._hazards.step_ended(session.step, session.compiled_in_step)
        self._unguarded.look(session.step)
        self._sizes.finish()
        dynamo_seen = torch_names.loaded(torch_names.UTILS) is not None
        if dynamo_seen and not torch_compiles.on_metrics_row(self._compiles.row):
            session.record(EvidenceLost, "metrics", "torch keeps no metrics rows")

    def forked(self) -> None:
        """This process is a fork: what was counted before was counted in its parent."""
        self.syncs.forked()
        if self._interrupts is not None:
            self._interrupts.uninstall()
        if self._witness is not None:
            self._witness.forked()
        self._counted_before = self._totals()

    def counters(self) -> dict[str, int]:
        """Read torch's own totals since they were first looked at, and ours to compare."""
        before = self._counted_before
        return {name: total - before.get(name, 0) for name, total in self._totals().items()}

    def _totals(self) -> dict[str, int]:
        return {
            **torch_compiles.totals(),
            "metrics_rows": self._compiles.rows,
            "recompile_calls": self.recompiles.calls,
            "break_records": self.logs.break_records,
        }

    def uninstall(self) -> None:
        """Takes everything out again; nothing is called any more."""
        self._session.step_listeners.clear()
        torch_compiles.forget_metrics_rows(self._compiles.row)
        self.logs.close()
        for each in (self._interrupts, self.syncs, self._cudagraphs, self._witness):
            if each is not None:
                each.uninstall()
        self._warm_calls.uninstall()
