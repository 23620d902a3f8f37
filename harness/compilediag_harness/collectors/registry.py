"""Registry of a session's collectors: the torch hook or step that calls each, and their order."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from compilediag_harness.base.session import Session
from compilediag_harness.collectors import guards_in_use
from compilediag_harness.collectors.caches import CacheCollector
from compilediag_harness.collectors.compiles import CompileCollector, SizeGuardCollector
from compilediag_harness.collectors.cudagraphs import CudagraphCollector
from compilediag_harness.collectors.guard_facts import Baselines
from compilediag_harness.collectors.logs import LogCollector
from compilediag_harness.collectors.memory import DeviceMemory
from compilediag_harness.collectors.recompile_risks import (
    LostEffectCollector,
    RecompileRiskCollector,
    UnguardedChangeCollector,
)
from compilediag_harness.collectors.recompiles import RecompileCollector
from compilediag_harness.collectors.syncs import SyncCollector
from compilediag_harness.torch_internals import (
    torch_api,
    torch_caches,
    torch_compiles,
    torch_cudagraphs,
    torch_graphs,
    torch_guards,
    torch_logs,
)
from compilediag_harness.torch_internals.torch_names import (
    CONVERT_FRAME,
    DYNAMO,
    GUARDS,
    SYMBOLIC_CONVERT,
    SYMBOLIC_SHAPES,
    UTILS,
    Remover,
    Removers,
    get_imported,
)
from compilediag_harness.wire import AOT_AUTOGRAD, FX_GRAPH, EnvironmentRead, EvidenceLost

if TYPE_CHECKING:
    from compilediag_harness.blame.write_tracing import WriteTracer


@contextlib.contextmanager
def _pause_gc() -> Generator[None]:
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
        self._write_tracer: WriteTracer | None = None
        if session.options.write_tracing is not None:
            from compilediag_harness.blame.write_tracing import WriteTracer

            self._write_tracer = WriteTracer(session, session.options.write_tracing)
        self._baselines = Baselines(torch.Tensor, self._write_tracer)
        self._sizes = SizeGuardCollector(session)
        self._compiles = compiles = CompileCollector(session, self._sizes)
        self.recompiles = RecompileCollector(session, self._baselines, compiles.leave_out)
        self._recompile_risks = RecompileRiskCollector(session, self._baselines)
        self._unguarded_changes = UnguardedChangeCollector(session, torch.nn.Module)
        self._lost_effects = LostEffectCollector(session)
        self.syncs = SyncCollector(session, torch)
        self.logs = LogCollector(session, session.text_log)
        self._caches = CacheCollector(session)
        self._memory = DeviceMemory(session, torch_api.read_device_memory)
        self._served = guards_in_use.ServedEntries(session)
        self._warm_calls = guards_in_use.WarmCalls(session, lambda: self._compiles.rows)
        self._cudagraphs: CudagraphCollector | None = None
        """None until torch's trees have been imported."""
        self._counted_before: dict[str, int] = {}

    def watch_steps(self) -> None:
        """Watch the end of each step from now on, after the listeners that measure it."""
        self._warm_calls.install()
        # Invariant: those that count run before `_handle_step_end`, which looks at the guards.
        self._session.step_listeners += [self._memory.handle_step_end, self._handle_step_end]

    def list_hooks(self) -> list[tuple[str, Callable[[], Remover | Removers | None]]]:
        """List the hooks, each with the module of torch after whose import it is installed;
        installing one returns what removes it again."""
        # Invariant: hooks of one module are installed in this order and removed in the reverse one
        # (`Attachment.uninstall`), since two of them may wrap the same function.
        caches, logs, compiles, sizes = self._caches, self.logs, self._compiles, self._sizes
        safe, tracer = logs.catch_faults_in, self._write_tracer
        written = caches.record_write
        resumed = tracer and partial(torch_compiles.watch_compile_ends, tracer.resume_after_compile)
        return [
            *([(CONVERT_FRAME, self._lift_limit)] if self._session.options.past_limit else ()),
            (DYNAMO, partial(torch_compiles.watch_compile_starts, self.handle_compile_start)),
            *([(DYNAMO, resumed)] if resumed else ()),
            (DYNAMO, partial(torch_compiles.watch_resets, compiles.record_reset)),
            (UTILS, self._watch_metrics),
            (UTILS, partial(torch_caches.watch_cache_events, caches.record_event)),
            (GUARDS, partial(torch_guards.watch_guard_builds, self.handle_guards_built)),
            (
                SYMBOLIC_SHAPES,
                partial(
                    torch_compiles.watch_conditions,
                    sizes.record_condition,
                    sizes.record_fixed_sizes,
                ),
            ),
            (CONVERT_FRAME, partial(torch_guards.watch_recompile_reasons, self.handle_recompile)),
            (CONVERT_FRAME, partial(torch_logs.watch_failed_frames, safe(logs.record_failure))),
            (CONVERT_FRAME, partial(torch_logs.watch_skipped_frames, safe(logs.record_skip))),
            (CONVERT_FRAME, partial(torch_logs.watch_recompile_limit, safe(logs.record_limit))),
            (SYMBOLIC_CONVERT, partial(torch_compiles.watch_floats, compiles.record_specialized)),
            (SYMBOLIC_CONVERT, partial(torch_graphs.watch_draws, self._lost_effects.record)),
            (
                torch_graphs.OUTPUT_GRAPH,
                partial(torch_graphs.watch_misread_draws, self._lost_effects.record),
            ),
            (
                SYMBOLIC_CONVERT,
                partial(torch_graphs.watch_left_out_writes, self._lost_effects.record),
            ),
            (
                torch_graphs.PARTITIONERS,
                partial(torch_graphs.watch_merged_draws, self._lost_effects.record),
            ),
            (SYMBOLIC_CONVERT, partial(torch_logs.watch_graph_breaks, safe(logs.record_break))),
            (
                torch_logs.CUDAGRAPH_UTILS,
                partial(torch_logs.watch_cudagraph_skips, safe(logs.record_cudagraph_skip)),
            ),
            (torch_cudagraphs.TREES, self._watch_trees),
            (torch_caches.CODECACHE, caches.watch_graph_loads),
            (torch_caches.CODECACHE, partial(torch_caches.watch_writes, FX_GRAPH, written)),
            (torch_caches.AOT_CACHE, partial(torch_caches.watch_writes, AOT_AUTOGRAD, written)),
        ]

    def _watch_metrics(self) -> Removers:
        """Watch every row of torch's metrics, which needs no end, and its timing of phases."""
        torch_compiles.watch_metrics_rows(self._compiles.record_row)
        self._counted_before = torch_compiles.read_totals()
        phases = self._compiles.phases
        removers = torch_compiles.watch_phases(phases.begin_phase, phases.end_phase)
        self._compiles.phases_seen = bool(removers)
        return removers

    def _lift_limit(self) -> Remover | None:
        self._session.emit(EnvironmentRead(self._session.now(), {"past_limit": True}))
        return torch_compiles.lift_recompile_limit()

    def _watch_trees(self) -> None:
        self._cudagraphs = CudagraphCollector(self._session)
        self._session.step_listeners.append(self._cudagraphs.handle_step_end)

    def handle_compile_start(self, trigger: str, compile_id: str) -> None:
        """A compile begins: no synchronisation is sampled in its step."""
        with self._session.catch_faults("compile start"):
            # Invariant: first, so that Dynamo meets `torch.Tensor` as torch made it.
            self.syncs.stop()
            if self._write_tracer is not None:
                self._write_tracer.pause_for_compile()
            # Again at each compile: `set_compilation_metrics_limit` may have replaced torch's list.
            torch_compiles.watch_metrics_rows(self._compiles.record_row)
            self._compiles.record_start(trigger, compile_id)

    def handle_recompile(self, entries: list[Any], frame: Any, reasons: list[str]) -> None:
        with self._session.catch_faults("torch's messages"):
            self.logs.write_recompile(frame.f_code, reasons)
        with _pause_gc():
            self.recompiles.record_recompile(entries, frame, reasons)
        self._served.watch(frame.f_code, torch_compiles.get_compile_id())

    def handle_guards_built(
        self, code: Any, compile_id: str, scope: dict[str, Any], guards: Any, manager: Any
    ) -> None:
        """Guarded code exists: store what it was compiled with, measure what its guards cost."""
        session = self._session
        with session.charge_block("guards built"), _pause_gc():
            self._baselines.remember(code, compile_id, scope, guards)
            self._unguarded_changes.take_snapshots(code, scope)
            self._lost_effects.report(compile_id)
            if self._write_tracer is not None:
                self._write_tracer.watch_guards(code, compile_id, scope, guards)
            guards_in_use.record_inputs(session, compile_id, scope, manager)
            spent = guards_in_use.evaluate_guards(session, compile_id, scope, guards, manager)
            self._compiles.leave_out(compile_id, spent)

    def _handle_step_end(self, step: int, compiled: bool) -> None:
        self.syncs.handle_step_end(step, compiled)
        self._recompile_risks.handle_step_end(step, compiled)
        self._unguarded_changes.handle_step_end(step, compiled)
        self.syncs.handle_step_begin(step + 1)

    def list_last_actions(self) -> list[tuple[str, Callable[[], object] | None]]:
        """List what to do when the process ends, in order, with the words for a fault in it."""
        return [
            ("memory", self._memory.read),
            ("CUDA graphs", self._cudagraphs and self._cudagraphs.finish),
            ("last look", self._check_last),
            ("warm calls", self._warm_calls.finish),
            ("write tracing", self._write_tracer and self._write_tracer.finish),
        ]

    def _check_last(self) -> None:
        """Finds what no later step will show."""
        session = self._session
        self._recompile_risks.handle_step_end(session.step, session.compiled_in_step)
        self._unguarded_changes.check_modules(session.step)
        self._sizes.finish()
        dynamo_seen = get_imported(UTILS) is not None
        if dynamo_seen and not torch_compiles.watch_metrics_rows(self._compiles.record_row):
            session.emit_in_step(EvidenceLost, "metrics", "torch keeps no metrics rows")

    def handle_fork(self) -> None:
        """This process is a fork: what was counted before was counted in its parent."""
        self.syncs.handle_fork()
        if self._write_tracer is not None:
            self._write_tracer.stop_in_child()
        self._counted_before = self._read_totals()

    def read_counters(self) -> dict[str, int]:
        """Read torch's own totals since they were first looked at, and ours to compare."""
        before = self._counted_before
        return {name: total - before.get(name, 0) for name, total in self._read_totals().items()}

    def _read_totals(self) -> dict[str, int]:
        return {
            **torch_compiles.read_totals(),
            "metrics_rows": self._compiles.rows,
            "recompile_calls": self.recompiles.calls,
            "break_records": self.logs.break_records,
        }

    def uninstall(self) -> None:
        """Takes everything out again; nothing is called any more."""
        self._session.step_listeners.clear()
        torch_compiles.forget_metrics_rows(self._compiles.record_row)
        self.logs.close()
        watchers = self.syncs, self._cudagraphs, self._write_tracer, self._unguarded_changes
        for watcher in watchers:
            if watcher is not None:
                watcher.uninstall()
        self._warm_calls.uninstall()
        self._served.uninstall()
