"""The collectors of one session: which of them is called at what, and in which order."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from compilediag_harness.base.session import Session
from compilediag_harness.collectors import hazards, warm_calls
from compilediag_harness.collectors.caches import CacheCollector, PrecompiledCollector
from compilediag_harness.collectors.compiles import CompileCollector
from compilediag_harness.collectors.cudagraphs import CudagraphCollector
from compilediag_harness.collectors.guard_facts import Baselines
from compilediag_harness.collectors.hazards import HazardCollector, UnguardedCollector
from compilediag_harness.collectors.logs import LogCollector
from compilediag_harness.collectors.memory import DeviceMemory
from compilediag_harness.collectors.recompiles import RecompileCollector
from compilediag_harness.collectors.signals import InterruptWatch
from compilediag_harness.collectors.size_guards import SizeGuardCollector
from compilediag_harness.collectors.syncs import SyncCollector
from compilediag_harness.collectors.warm_calls import WarmCalls
from compilediag_harness.torch_internals import (
    torch_api,
    torch_compiles,
    torch_guards,
    torch_names,
    torch_sizes,
)
from compilediag_harness.torch_internals.torch_compiles import PhaseTimes
from compilediag_harness.wire import EvidenceLost

if TYPE_CHECKING:
    from compilediag_harness.blame.witness import Witness


@contextlib.contextmanager
def _without_collections() -> Generator[None]:
    """A block that sets off no collection of the program's whole heap by what it reads."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class CollectorSet:
    """Each is None until what it looks at has been imported, and stays so where making it failed:
    the others go on."""

    def __init__(self, session: Session) -> None:
        self.recompiles: RecompileCollector | None = None
        self.compiles: CompileCollector | None = None
        self.sizes: SizeGuardCollector | None = None
        self.memory: DeviceMemory | None = None
        self.cudagraphs: CudagraphCollector | None = None
        self.witness: Witness | None = None
        self.logs: LogCollector | None = None
        self.caches = CacheCollector(session)
        self.warm_calls: WarmCalls | None = None
        self.precompiled = PrecompiledCollector(session)
        self._session = session
        self._phases = PhaseTimes()
        self._baselines: Baselines | None = None
        self._hazards: HazardCollector | None = None
        self._unguarded: UnguardedCollector | None = None
        self._syncs: SyncCollector | None = None
        self._interrupts: InterruptWatch | None = None
        self._module_type: type = object
        self._counted_before: dict[str, int] = {}

    # --- created when what they look at is imported ------------------------------------------

    def torch_imported(self, torch: Any) -> None:
        """Creates those that look at the program's tensors, modules and logs."""
        session = self._session
        self._baselines = baselines = Baselines(torch.Tensor)
        if session.options.witness is not None:
            from compilediag_harness.blame.witness import Witness

            self.witness = Witness(session, session.options.witness)
        self.recompiles = RecompileCollector(session, baselines, self.witness, self._phases)
        self.sizes = SizeGuardCollector(session)
        self.compiles = CompileCollector(session, self.recompiles, self.sizes, self._phases)
        self._hazards = HazardCollector(session, baselines, self.witness)
        self._module_type = torch.nn.Module
        self._unguarded = UnguardedCollector(session, torch.nn.Module)
        self._syncs = SyncCollector(session, torch)
        self.logs = LogCollector(session, session.text_log)
        if session.text_log is not None:  # of a run, which passes Ctrl-C on
            folder = os.path.dirname(os.path.abspath(torch.__file__))
            self._interrupts = InterruptWatch(session, folder)

    def steps_installed(self) -> None:
        """Looks at the end of each step from now on, after those that measure it."""
        if self.compiles is not None:  # the last at the begin of a call: none but torch's is in it
            compiles, module_type = self.compiles, self._module_type
            self.warm_calls = WarmCalls(self._session, module_type, lambda: compiles.rows)
        # Invariant: those that count run before `_step_ended`, which looks at the guards.
        self.memory = DeviceMemory(self._session, torch_api.device_memory)
        self._session.step_listeners.append(self.memory.step_ended)
        self._session.step_listeners.append(self._step_ended)

    # Each returns what ends the watching.

    def symbolic_shapes_imported(self) -> torch_names.Removers:
        """Watches conditions on sizes."""
        sizes = self.sizes
        return () if sizes is None else (torch_sizes.on_conditions(sizes.added, sizes.fixed),)

    def convert_frame_imported(self) -> torch_names.Removers:
        """Watches recompiles, and frames that torch gives up."""
        messages = () if self.logs is None else self.logs.convert_frame_imported()
        return (torch_guards.on_recompile_reasons(self.recompiled), *messages)

    def translator_imported(self) -> torch_names.Removers:
        """Watches graph breaks."""
        return () if self.logs is None else self.logs.translator_imported()

    def cudagraph_utils_imported(self) -> torch_names.Removers:
        """Watches what runs without CUDA graphs."""
        return () if self.logs is None else self.logs.cudagraphs_imported()

    def dynamo_imported(self) -> torch_names.Removers:
        """Watches the begin and end of compiles, and resets."""
        if self.compiles is None:
            return ()
        return (
            torch_compiles.on_compile_start(self.compile_started),
            torch_compiles.on_compile_end(self.compile_ended),
            torch_compiles.on_reset(self.compiles.reset),
        )

    def metrics_imported(self) -> torch_names.Removers:
        """Watches every row of torch's metrics, which needs no end, and its timing of phases."""
        if self.compiles is not None:
            torch_compiles.on_metrics_row(self.compiles.row)
            self._counted_before = torch_compiles.totals()
        removers = torch_compiles.on_phases(self._phases.began, self._phases.ended)
        self._phases.seen = bool(removers)
        return removers

    def trees_imported(self) -> None:
        """Watches CUDA-graph trees."""
        self.cudagraphs = CudagraphCollector(self._session)
        self.cudagraphs.install()
        self._session.step_listeners.append(self.cudagraphs.step_ended)

    # --- called by the hooks -----------------------------------------------------------------

    def compile_started(self, trigger: str, compile_id: str) -> None:
        """A compile begins: no synchronisation is sampled in its step."""
        self.stop_sampling()
        if self.witness is not None:
            self.witness.compile_started()
        if self.compiles is not None:
            # Again at each compile: `set_compilation_metrics_limit` may have replaced torch's list.
            torch_compiles.on_metrics_row(self.compiles.row)
            self.compiles.started(trigger, compile_id)

    def recompiled(self, entries: list[Any], frame: Any, reasons: list[str]) -> None:
        """torch has determined why no cache entry of a frame fits."""
        try:
            if self.logs is not None:
                self.logs.recompiling(frame.f_code, reasons)
        except Exception as error:
            self._session.fault("torch's messages", error)
        if self.recompiles is not None:
            with _without_collections():
                self.recompiles.recompiled(entries, frame, reasons)

    def guards_built(
        self, code: Any, compile_id: str, scope: dict[str, Any], guards: Any, manager: Any
    ) -> None:
        """Guarded code exists: what it was compiled with is kept, and what its guards cost."""
        started = time.monotonic()
        try:
            with _without_collections():
                if self._baselines is not None:
                    self._baselines.remember(code, compile_id, scope, guards)
                if self._unguarded is not None:
                    self._unguarded.compiled(code, scope)
                if self.witness is not None:
                    self.witness.guards_built(code, compile_id, scope, guards)
                if self.compiles is not None:
                    spent = warm_calls.evaluate_guards(
                        self._session, compile_id, scope, guards, manager
                    )
                    self.compiles.leave_out(compile_id, spent)
        except Exception as error:
            self._session.fault("guards built", error)
        self._session.charge(time.monotonic() - started)

    def compile_ended(self) -> None:
        """No compile is in progress any more."""
        if self.witness is not None:
            self.witness.compile_ended()

    def stop_sampling(self) -> None:
        """No synchronisation is counted any more in this step."""
        if self._syncs is not None:
            self._syncs.stop()

    def _step_ended(self, step: int, compiled: bool) -> None:
        if self._syncs is not None:
            self._syncs.step_ended(step, compiled)
        if self._interrupts is not None:
            self._interrupts.look()
        if self._hazards is not None:
            self._hazards.step_ended(step, compiled)
        if self._unguarded is not None:
            self._unguarded.step_ended(step, compiled)
        if self._syncs is not None:
            self._syncs.step_begins(step + 1)

    # --- ending ------------------------------------------------------------------------------

    def last_actions(self) -> list[tuple[str, Callable[[], object]]]:
        """What to do when the process ends, in this order, with the words for a fault in it."""
        last = (
            ("memory", self.memory and self.memory.read),
            ("CUDA graphs", self.cudagraphs and self.cudagraphs.finish),
            ("last look", self._look_last),
            ("warm calls", self.warm_calls and self.warm_calls.finish),
            ("witness", self.witness and self.witness.finish),
            ("hooks", self._report_hooks),
        )
        return [(what, action) for what, action in last if action is not None]

    def _look_last(self) -> None:
        """Finds what no later step will show."""
        session = self._session
        if self._hazards is not None:
            self._hazards.step_ended(session.step, session.compiled_in_step)
        if self._unguarded is not None:
            self._unguarded.look(session.step)
        if self.sizes is not None:
            self.sizes.finish()
        dynamo_seen = torch_names.loaded(torch_names.UTILS) is not None
        if dynamo_seen and self.compiles and not torch_compiles.on_metrics_row(self.compiles.row):
            lost = "torch keeps no metrics rows"
            session.emit(EvidenceLost(session.now(), session.step, "metrics", lost))

    def _report_hooks(self) -> None:
        """Reports the program's hooks on its compiled modules."""
        if self._unguarded is not None:
            found = hazards.hooks_of(self._unguarded.modules, self._session.now())
            if found is not None:
                self._session.emit(found)

    def forked(self) -> None:
        """This process is a fork: what was counted before was counted in its parent."""
        self._counted_before = self._totals()
        self._session.collector_s = 0.0

    def counters(self) -> dict[str, int]:
        """torch's own totals since they were first looked at, and ours to hold them against."""
        before = self._counted_before
        return {name: total - before.get(name, 0) for name, total in self._totals().items()}

    def _totals(self) -> dict[str, int]:
        counters = torch_compiles.totals()
        if self.compiles is not None:
            counters["metrics_rows"] = self.compiles.rows
        if self.recompiles is not None:
            counters["recompile_calls"] = self.recompiles.calls
        if self.logs is not None:
            counters["break_records"] = self.logs.break_records
        return counters

    def uninstall(self) -> None:
        """Takes everything out again; nothing is called any more."""
        self._session.step_listeners.clear()
        if self.compiles is not None:
            torch_compiles.forget_metrics_rows(self.compiles.row)
        if self.logs is not None:
            self.logs.close()
        if self._interrupts is not None:
            self._interrupts.uninstall()
        if self._syncs is not None:
            self._syncs.uninstall()
        if self.cudagraphs is not None:
            self.cudagraphs.uninstall()
        if self.witness is not None:
            self.witness.uninstall()
        if self.warm_calls is not None:
            self.warm_calls.uninstall()
