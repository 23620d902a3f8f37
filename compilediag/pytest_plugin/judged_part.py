"""A test, or a block of it, as its receipt shows it: its counts and the lines behind them."""

from __future__ import annotations

from compilediag.compare.gate.limits import count_of
from compilediag.compare.run_baseline import run_baseline
from compilediag.pytest_plugin import details
from compilediag.receipt.schema.compiles import CompileEvent
from compilediag.runs.watch import WatchResult


class JudgedPart:
    """With `own_code_only`, without what lies in libraries and in torch: a recompile is the user's
    own when the line of a guard, the compiled frame or the call that led there is."""

    def __init__(self, run: WatchResult, *, own_code_only: bool = False) -> None:
        self.receipt = run.receipt
        self._run = run_baseline(run.receipt, own_code_only=own_code_only)
        self.failed_recompiles = tuple(filter(self._has, details.failed_recompiles(run)))
        """Attempts to compile again that left no code: in no count of recompiles, and worse."""

    def count(self, name: str) -> int | None:
        """One count by its name; None where it was not measured."""
        return count_of(self.receipt, self._run, name)

    @property
    def recompiles(self) -> tuple[CompileEvent, ...]:
        """The recompiles that count."""
        events = self.receipt.compile.events
        return tuple(item for item in events if item.kind == "recompile" and self._has(item))

    def behind(self, name: str) -> list[str]:
        """What a count counts, line by line."""
        part = self.receipt.compile
        frames = [item for item in part.frames_detail if self._run.counts_file(item.frame.file)]
        if name == "recompiles":
            return self.causes((*self.recompiles, *self.failed_recompiles))
        if name == "graph_breaks":
            sites = [site for found in self._run.breaks.values() for site in found]
            return details.breaks(self.receipt, sites)
        if name == "frames":
            return details.frames(frames)
        if name == "compiles":
            compiled = [item for item in part.events if self._run.counts_file(item.frame.file)]
            return [*details.compiles(compiled), *self.causes(self.recompiles)]
        if name == "eager_fallbacks":
            return details.eager(self.receipt, [item for item in frames if item.ran_eager])
        return []

    def causes(self, events: tuple[CompileEvent, ...]) -> list[str]:
        """Every cause of these recompiles."""
        return details.causes(self.receipt, events)

    def cause(self, rule: str, variable: str | None) -> list[str]:
        """The lines of one cause; none where no recompile has it."""
        events = (*self.recompiles, *self.failed_recompiles)
        return details.causes(self.receipt, events, only=(rule, variable))

    def _has(self, event: CompileEvent) -> bool:
        return self._run.counts_recompile(event)
