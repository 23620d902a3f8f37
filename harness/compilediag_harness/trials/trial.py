"""The trial in this process: its plan is read when the process starts, what needs no torch is put
in place then, the rest when torch is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from compilediag_harness.base.post_import import PostImport
from compilediag_harness.base.session import Session
from compilediag_harness.shapes.side_effects import RandomStates
from compilediag_harness.torch_internals import torch_calls, torch_names
from compilediag_harness.torch_internals.torch_graphs import OUTPUT_GRAPH
from compilediag_harness.torch_internals.torch_names import Remover
from compilediag_harness.trials import settings
from compilediag_harness.trials.lines import LineWatcher
from compilediag_harness.trials.outputs import CallSeconds, OutputWatcher
from compilediag_harness.trials.plan import Notes
from compilediag_harness.trials.program_output import ProgramOutput, WrittenFiles
from compilediag_harness.trials.redirected_writes import RedirectedWrites
from compilediag_harness.trials.settings import OVERRIDDEN, PlannedArguments, PlannedSettings
from compilediag_harness.trials.sources import ReplacedSources
from compilediag_harness.trials.varied_calls import vary_calls
from compilediag_harness.wire import RandomStateRead, RecordingPlan, TrialPlan, describe_stance


class ActiveTrial:
    """The trial that this process is part of; made, and what needs no torch put in place, when the
    process starts, before the program does."""

    def __init__(self, chosen: TrialPlan) -> None:
        self._plan = chosen
        self._notes = Notes()
        self._imports = PostImport()
        self._undo: list[Remover] = []
        self._settings = PlannedSettings(chosen.settings, self._notes)
        self._session: Session | None = None
        self._pid = os.getpid()
        self._torch: Any = None
        self._outputs: OutputWatcher | None = None
        self._last: list[Callable[[Session], None]] = []
        """What emits at the end of the process."""
        self._writes: RedirectedWrites | None = None
        self._is_device_broken = False
        if chosen.protection is not None:  # before what else stands in place of `open`
            self._writes = RedirectedWrites(chosen.protection)
            self._writes.install(self._imports)
        self._sources = ReplacedSources(self._plan, self._notes)
        self._sources.install(self._imports)
        recording = self._plan.recording
        self.makes_calls_at_end = recording is not None and recording.vary_s > 0
        if self._plan.seed is not None:
            settings.seed_after_import(self._plan.seed, self._notes, self._imports)
        self._output: ProgramOutput | None = None
        if recording is not None:
            self._begin_recording(recording)
        self._settings.install(self._imports)
        if self._plan.stance is not None:
            self._imports.run_after_import(torch_names.DYNAMO, lambda _: self._set_stance())

    def _begin_recording(self, recording: RecordingPlan) -> None:
        """Record what is written, and seed the generators that are not torch's."""
        if recording.hides_hash_seed:
            os.environ.pop("PYTHONHASHSEED", None)
        if recording.lines:
            self._last.append(LineWatcher(recording.lines, self._imports).finish)
        settings.seed_after_import(recording.seed, self._notes, self._imports)
        files = WrittenFiles(self._writes)
        files.install()
        self._output = output = ProgramOutput()
        output.install(self._imports)
        self._undo.append(output.uninstall)
        self._last.append(lambda _: output.finish())
        self._last.append(files.finish)

    def torch_imported(self, session: Session, torch: Any) -> None:
        """Put in place what needs torch, once the program has imported it."""
        chosen, notes = self._plan, self._notes
        self._session, self._torch = session, torch
        notes.attach(session)
        seed = chosen.seed if chosen.recording is None else chosen.recording.seed
        if seed is not None:
            settings.seed_generators(torch.manual_seed, seed, notes)  # CUDA's once it is in use
        files = {change.file for change in chosen.sources}
        remover = settings.change_compile(torch, chosen, files, notes)
        if remover is not None:
            self._undo.append(remover)
        if chosen.looks_at_calls:  # else no step would go unsampled
            arguments = PlannedArguments(chosen.arguments, files, notes)
            watcher = OutputWatcher(session, torch, chosen, arguments)
            self._outputs, recorder = watcher, watcher.recorder
            self._undo.append(watcher.uninstall)
            if watcher.keeper is not None:
                self._undo.append(watcher.keeper.uninstall)
            if recorder is not None:
                graphs = recorder.graphs
                self._imports.run_after_import(OUTPUT_GRAPH, lambda _: graphs.install())
                self._undo.append(recorder.uninstall)
                self._last.append(lambda _: recorder.finish())
        if self._output is not None:
            self._output.attach(session, torch)
        if chosen.call_seconds:  # last of all: nothing else of ours is then in the time of a call
            seconds = CallSeconds(session, torch)
            self._undo.append(seconds.uninstall)
            self._last.append(lambda _: seconds.finish())

    def _set_stance(self) -> None:
        label = describe_stance(str(self._plan.stance))
        torch: Any = torch_names.get_imported("torch")
        with self._notes.record_errors(label):
            torch.compiler.set_stance(self._plan.stance)
            self._notes.record_change(label)

    def finish(self) -> None:
        """Emit what the process holds at its end, and which changes are not in force any more."""
        session, stance = self._session, torch_calls.get_stance()
        if session is None:
            return
        self._settings.finish()
        self._sources.emit_loaded(session)
        if self._plan.stance is not None and stance not in (None, self._plan.stance):
            self._notes.record_change(describe_stance(self._plan.stance), OVERRIDDEN)
        for finish in self._last:
            finish(session)
        # A forked child, such as a data loader's worker, holds what its parent does.
        is_fork = os.getpid() != self._pid
        if self._outputs is not None and self._plan.recording is not None and not is_fork:
            self._outputs.finish()
            session.emit(RandomStateRead(session.now(), RandomStates.read(self._torch).digests))

    def vary_calls(self, t: float, uninstall: Callable[[], None]) -> None:
        """Make calls of the program again, with other inputs, once nothing else is left to do.
        Their events are of the time `t`; `uninstall` ends all watching of calls and compiles."""
        session, outputs, recording = self._session, self._outputs, self._plan.recording
        if session is None or outputs is None or outputs.keeper is None or recording is None:
            return
        if self.makes_calls_at_end and os.getpid() == self._pid:
            uninstall()
            broken = vary_calls(session, self._torch, outputs.keeper, recording.vary_s, t)
            self._is_device_broken = broken

    def end_process_if_broken(self) -> None:
        """End the process as the program did, without finalizers, where a call of ours has broken
        the device, as by an index out of range: those of tensors would abort it."""
        if self._is_device_broken:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
            os._exit(0 if error is None else 1)

    def uninstall(self) -> None:
        """Look at no call any more. Settings and texts stay: code was compiled with them."""
        self._imports.withdraw()
        while self._undo:
            self._undo.pop()()
