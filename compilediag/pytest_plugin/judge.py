"""Judges a whole test by its markers, on its receipt. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compilediag.compare.gate.expression import Limit
from compilediag.pytest_plugin.blindness import blind
from compilediag.pytest_plugin.judged_part import JudgedPart
from compilediag.pytest_plugin.marks import Requirements
from compilediag.pytest_plugin.problems import Problem, counted
from compilediag.receipt.schema.compiles import CompileEvent
from compilediag.runs.watch import WatchResult
from compilediag.views.format import count

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
