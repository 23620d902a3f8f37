"""A test, or a block of it, judged on its receipt: counts, the lines behind them, markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compilediag.compare.gate.limits import Limit, count_of
from compilediag.compare.run_baseline import run_baseline
from compilediag.pytest_plugin import details
from compilediag.pytest_plugin.marks import Requirements
from compilediag.pytest_plugin.problems import Problem, blind, counted
from compilediag.receipt.schema.compiles import CompileEvent
from compilediag.runs.watch import WatchResult
from compilediag.views.format import count


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


Intervals = Sequence[tuple[float, float]]
"""In which compiling is expected: begin and end of each."""


def judge(run: WatchResult, required: Requirements, warmups: Intervals) -> list[Problem]:
    """Everything that the markers forbid, and first whatever makes the counts worth nothing."""
    part = JudgedPart(run, own_code_only=required.own_code_only)
    problems = blind(run.receipt, run.calls)
    if required.own_code_only and not problems and not part.count("graphs"):
        only = "nothing of your own code was compiled, only code of libraries"
        problems = [Problem.of_blindness(only)]
    if required.warmup is not None:
        problems += _after_warmup(run, part, required, warmups)
    problems += over_limits(part, required.limits)
    return problems


def _after_warmup(
    run: WatchResult, part: JudgedPart, required: Requirements, warmups: Intervals
) -> Iterable[Problem]:
    allowed = {
        tuple(item.id)
        for item in run.timeline.recompiles
        if any(start <= item.t <= end for start, end in warmups)
    }
    warmup = required.warmup or 0
    made, failed = (
        tuple(item for item in items if (item.step or 0) >= warmup and _id(item) not in allowed)
        for items in (part.recompiles, part.failed_recompiles)
    )
    if made or failed:
        after = f" after a warm-up of {count(warmup, 'step')}" if warmup else ""
        happened = [count(len(made), "recompile")] if made else []
        if failed:
            happened.append(f"{count(len(failed), 'attempt')} to recompile that left no code")
        headline = f"{' and '.join(happened)}{after}; zero_recompiles allows none"
        yield Problem(headline, tuple(part.causes((*made, *failed))))


def _id(event: CompileEvent) -> tuple[int, int, str]:
    return event.process, event.epoch, event.compile_id


def over_limits(part: JudgedPart, limits: Mapping[str, int]) -> list[Problem]:
    """Each count above its limit, and each that was not measured."""
    problems: list[Problem] = []
    for name, bound in limits.items():
        number = part.count(name)
        if number is None:
            problems.append(Problem.of_unmeasured(name))
        elif Limit(name, ">", bound).is_broken_by(number):
            headline = f"{counted(name, number)}, the budget is {bound}"
            problems.append(Problem(headline, tuple(part.behind(name))))
    covered = "eager_fallbacks" in limits or not {"recompiles", "compiles"} & set(limits)
    if part.failed_recompiles and not covered:
        headline = (
            "torch gave up compiling again: what runs eager from then on is in no count of "
            "recompiles"
        )
        problems.append(Problem(headline, tuple(part.causes(part.failed_recompiles))))
    return problems
