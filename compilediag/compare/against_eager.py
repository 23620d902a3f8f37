"""A comparison of compiled with eager runs, in pairs: whether compiling pays, for steps and for
callables, and the findings of what does not.

Both runs of a pair do the same work step by step, so that steps of one number are compared. The
interval is that of `intervals.py`, over stretches of steps of every pair. Stretches of one process
have more in common than two processes: so it is never narrower than that of the pairs themselves.
No step in which something compiles is steady, nor the one after it, which runs the new code for the
first time; nor is the first step, nor one that only the end of the process ended.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from statistics import fmean, median, stdev
from typing import NamedTuple

from msgspec.structs import replace

from compilediag.compare.intervals import LEVEL, SLOWER, compute_intervals, require_scipy
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.comparisons import (
    AgainstEagerSection,
    AgainstEagerVerdict,
    BreakEvenSteps,
    CallableAgainstEager,
    EagerRatio,
)
from compilediag.receipt.schema.record import make_record
from compilediag.rules.make_finding import format_count, make_finding
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

ENDED_BY_CALLS = "call"  #: Source of steps whose last one nothing ends but the process.


@dataclass(frozen=True, slots=True)
class Work:
    """Something that took time, once or several times: a step, or a callable's calls in one."""

    seconds: float  #: Of all of it.
    count: int = 1


@dataclass(frozen=True, slots=True)
class Arm:
    """One run, compiled or eager; seconds are wall time of the lead process."""

    steps: Mapping[int, Work]  #: The steady ones by number.
    unsampled: frozenset[int] = frozenset()  #: Those not looked into: nothing of ours is in them.
    #: By callable and steady step; empty on a device: a call may return before its work is done.
    calls: Mapping[Location, Mapping[int, Work]] = field(
        default_factory=dict[Location, "dict[int, Work]"]
    )
    finished: int = 0  #: Steps in all.
    compiles: int = 0  #: Attempts; a backward compile is one too.
    compiled_steps: tuple[int, ...] = ()  #: Steps in which something compiles.
    compile_s: float | None = None
    on_device: bool = False  #: A CUDA device was in use.
    whole: bool = True  #: It ended by itself.


def build_arm(timeline: Timeline, *, whole: bool = True) -> Arm:
    """Build the arm of one run; `whole`: it ended by itself."""
    lead = timeline.lead
    steps = [step for step in timeline.steps if step.process == lead]
    compiles = [compile_ for compile_ in timeline.compiles if compile_.process == lead]
    compiled = {compile_.step for compile_ in compiles}
    # Of two kinds of steps, such as single calls and then whole updates, the last kind is meant.
    kind = [step for step in steps if step.source == steps[-1].source]
    left_out = {step.number for step in kind[:1]} | compiled | {step + 1 for step in compiled}
    if kind and kind[-1].source == ENDED_BY_CALLS:
        left_out.add(kind[-1].number)
    steady = [step for step in kind if step.number not in left_out and step.wall_s > 0]
    on_device = any(call.on_device for call in timeline.timed_calls)
    numbers = {step.number for step in steady}
    calls: dict[Location, dict[int, Work]] = {}
    for call in timeline.timed_calls:
        if call.process == lead and call.step in numbers and call.seconds > 0 and not on_device:
            calls.setdefault(call.function, {})[call.step] = Work(call.seconds, call.count)
    return Arm(
        steps={step.number: Work(step.wall_s) for step in steady},
        unsampled=frozenset(step.number for step in steady if step.unsampled),
        calls=calls,
        finished=len(steps),
        compiles=len(compiles),
        compiled_steps=tuple(sorted(compiled)),
        compile_s=sum(compile_.seconds for compile_ in compiles)
        if timeline.can_observe("metrics_rows")
        else None,
        on_device=on_device,
        whole=whole,
    )


MIN_STEPS = 4  #: Steady steps of a pair below which nothing is compared, as in the cadence probe.
STRETCHES = 15
"""Parts of a pair's steps: where a busy machine spoils a few, the median and its interval stay."""

ALONE = 2.5
"""A single pair shows nothing about chance: a busy machine may make one of two equal runs take more
than twice as long. Its interval is wider by this factor, to both sides."""

MAX_CALLABLES = 20

MEASURED_S = 0.005
"""A step as brief as this is made notably longer by looking into it, in both arms: up to 0.2 ms."""


class ArmPair(NamedTuple):
    """A compiled and an eager run, neighbours in time."""

    compiled: Arm
    eager: Arm


def decide_verdict(ratio: EagerRatio) -> AgainstEagerVerdict:
    """Decide what follows from the interval of the ratio: eager over compiled seconds."""
    if ratio.low > 1 + SLOWER:
        return "pays"
    if ratio.high < 1 - SLOWER:
        return "does_not_pay"
    return "same" if ratio.low >= 1 - SLOWER and ratio.high <= 1 + SLOWER else "not_resolved"


def make_not_concluded(problem: str) -> AgainstEagerSection:
    """Build the section of a comparison with nothing to compare."""
    return AgainstEagerSection(verdict="not_concluded", problem=problem)


def conclude(pairs: Sequence[ArmPair], difference: str | None = None) -> AgainstEagerSection:
    """Conclude from the pairs, in the order in which they ran: the section without the runs. A pair
    whose steps cannot be compared counts for none; `difference` is the first one that is known
    between the outputs of both arms, in words.

    Raises:
        UsageError: scipy is not installed.
    """
    problems = [find_problem(pair) for pair in pairs]
    usable = [pair for pair, problem in zip(pairs, problems, strict=True) if problem is None]
    if not usable:
        return make_not_concluded(next(filter(None, problems), "no pair of runs was made"))
    rows = [_PairWork(pair.eager.steps, pair.compiled.steps, _find_common(pair)) for pair in usable]
    measured = _measure(rows)
    verdict = decide_verdict(measured.ratio) if difference is None else "outputs_differ"
    known = [arm.compile_s for arm, _ in usable if arm.compile_s is not None]
    compile_s = median(known) if len(known) == len(usable) else None
    gain_s, break_even = measured.gain_s, None
    if verdict == "pays" and compile_s is not None and gain_s.middle > 0 and gain_s.high > 0:
        break_even = BreakEvenSteps(
            step=math.ceil(compile_s / gain_s.middle),
            low=math.ceil(compile_s / gain_s.high),
            high=math.ceil(compile_s / gain_s.low) if gain_s.low > 0 else None,
        )
    functions = dict.fromkeys(function for pair in usable for function in pair.compiled.calls)
    costs = [cost for key in functions if (cost := _compare_callable(key, usable)) is not None]
    costs.sort(key=lambda cost: -cost.calls * cost.compiled_s)
    return AgainstEagerSection(
        verdict=verdict,
        problem=difference,
        ratio=measured.ratio,
        compiled_step_s=measured.compiled_s,
        eager_step_s=measured.eager_s,
        compile_s=compile_s,
        break_even=break_even,
        pairs=len(usable),
        steps=sum(len(_find_common(pair)) for pair in usable),
        finished=max(pair.compiled.finished for pair in usable),
        callables=tuple(costs[:MAX_CALLABLES]),
        notes=tuple(
            _list_notes(usable, [problem for problem in problems if problem], measured.compiled_s)
        ),
    )


def find_problem(pair: ArmPair) -> str | None:
    """Find why the steps of a pair cannot be compared; None where they can."""
    compiled, eager = pair
    if eager.compiles:
        return (
            f"the eager run compiled {format_count(eager.compiles, 'time')}: the program sets "
            "the stance of torch.compile itself"
        )
    for name, arm in (("compiled", compiled), ("eager", eager)):
        if not arm.finished:
            ended = "" if arm.whole else " until it was ended at its time limit"
            return f"no step was seen in the {name} run{ended}: mark steps with `cd.step()`"
    if compiled.whole and eager.whole and abs(compiled.finished - eager.finished) > 1:
        return (
            f"the compiled run has {format_count(compiled.finished, 'step')} and the eager one "
            f"{eager.finished}, so they are not the same steps: mark them with `cd.step()`"
        )
    if len(_find_common(pair)) < MIN_STEPS:
        return (
            f"{format_count(len(_find_common(pair)), 'steady step')} in both runs, and {MIN_STEPS} "
            f"are needed: the compiled run has {format_count(compiled.finished, 'step')}, "
            f"{len(compiled.compiled_steps)} of them with a compile, the eager one "
            f"{eager.finished}{'' if eager.whole else ' until its time limit'}"
        )
    return None


def _find_common(pair: ArmPair) -> list[int]:
    """Find steps steady in both runs; where there are enough, those not looked into in either."""
    compiled, eager = pair
    unsampled = sorted(compiled.unsampled & eager.unsampled)
    if len(unsampled) >= MIN_STEPS * STRETCHES:
        return unsampled
    return sorted(compiled.steps.keys() & eager.steps.keys())


class _PairWork(NamedTuple):
    """The work of one pair by step, and the steps to compare."""

    eager: Mapping[int, Work]
    compiled: Mapping[int, Work]
    steps: Sequence[int]


class _Measurement(NamedTuple):
    # Invariant: `make_record` copies these fields by name into `CallableAgainstEager`.
    ratio: EagerRatio
    gain_s: EagerRatio  #: Eager seconds less compiled ones.
    compiled_s: float
    eager_s: float


def _measure(rows: Sequence[_PairWork]) -> _Measurement:
    """Measure by the median stretch of steps: within one, steps of any length count by what they
    take, and one slow step of a busy machine spoils one stretch."""
    by_pair: list[list[tuple[float, float]]] = []
    for row in rows:
        parts = min(STRETCHES, len(row.steps))
        bounds = pairwise(len(row.steps) * index // parts for index in range(parts + 1))
        stretches = [row.steps[begin:end] for begin, end in bounds]
        by_pair.append([(_average(row.compiled, s), _average(row.eager, s)) for s in stretches])
    logs = [[math.log(eager / compiled) for compiled, eager in parts] for parts in by_pair]
    gains = [[eager - compiled for compiled, eager in parts] for parts in by_pair]
    every = [part for parts in by_pair for part in parts]
    low, high = compute_intervals([[*chain.from_iterable(logs)], [*chain.from_iterable(gains)]])
    log, gain_s = _widen_interval(low[0], high[0], logs), _widen_interval(low[1], high[1], gains)
    times = EagerRatio(middle=math.exp(log.middle), low=math.exp(log.low), high=math.exp(log.high))
    compiled_s = median(compiled for compiled, _ in every)
    if len(rows) == 1:
        times = replace(times, low=times.low / ALONE, high=times.high * ALONE)
        bounds = sorted(compiled_s * (bound - 1) for bound in (times.low, times.high))
        gain_s = replace(gain_s, low=bounds[0], high=bounds[1])
    return _Measurement(times, gain_s, compiled_s, median(eager for _, eager in every))


def _average(works: Mapping[int, Work], steps: Sequence[int]) -> float:
    """Compute the seconds of one piece of work on average."""
    chosen = [works[step] for step in steps]
    return sum(work.seconds for work in chosen) / sum(work.count for work in chosen)


def _widen_interval(low: float, high: float, by_pair: Sequence[Sequence[float]]) -> EagerRatio:
    """Widen the interval to hold that of the pairs, each for one value (Student's t)."""
    middles = [median(values) for values in by_pair]
    whole = median(value for values in by_pair for value in values)
    if len(middles) > 1:
        stats, _ = require_scipy()
        error = stdev(middles) / math.sqrt(len(middles))
        reach = float(stats.t.ppf((1 + LEVEL) / 2, len(middles) - 1)) * error
        low, high = min(low, fmean(middles) - reach), max(high, fmean(middles) + reach)
    bounds = {"low": min(low, *middles, whole), "high": max(high, *middles, whole)}
    return EagerRatio(middle=whole, **bounds)


def _compare_callable(function: Location, pairs: Sequence[ArmPair]) -> CallableAgainstEager | None:
    """Compare a callable; None unless it was timed in both runs of every pair, in enough steps."""
    rows: list[_PairWork] = []
    counts: list[int] = []
    for pair in pairs:
        compiled, eager = (arm.calls.get(function, {}) for arm in pair)
        # As often called in both, or it is not the same work.
        steps = [
            step
            for step in sorted(compiled.keys() & eager.keys())
            if compiled[step].count == eager[step].count
        ]
        if len(steps) < MIN_STEPS:
            return None
        counts += [compiled[step].count for step in steps]
        rows.append(_PairWork(eager, compiled, steps))
    return make_record(CallableAgainstEager, _measure(rows), function=function, calls=fmean(counts))


def _list_notes(
    pairs: Sequence[ArmPair], problems: Sequence[str], compiled_s: float
) -> Iterable[str]:
    if problems:
        count = len(pairs) + len(problems)
        yield f"{len(problems)} of {format_count(count, 'pair')} left out: {problems[0]}"
    if len(pairs) == 1:
        yield (
            f"one pair of runs shows nothing about chance: intervals are {ALONE:g} times as wide "
            "to both sides"
        )
    ended = [pair.eager.finished for pair in pairs if not pair.eager.whole]
    if ended:
        yield (
            f"the eager run was ended at its time limit, after {format_count(min(ended), 'step')}: "
            "the steps until then are compared"
        )
    compiled = pairs[0].compiled
    steady = min(compiled.steps, default=0)
    late = [step for step in compiled.compiled_steps if step > steady]
    if late:
        where = f"step {late[0]}" if len(late) == 1 else f"steps {late[0]} to {late[-1]}"
        yield (
            f"something compiles in {format_count(len(late), 'step')} after the first steady one "
            f"({where}): not steady, and left out; the compile seconds count"
        )
    if compiled_s < MEASURED_S and not all(
        _find_common(pair)[0] in pair.eager.unsampled for pair in pairs
    ):
        yield (
            "steps as brief as these are made longer by measuring them, by up to 0.2 ms in both "
            "arms alike, which draws the ratio towards 1"
        )
    if any(arm.on_device for pair in pairs for arm in pair):
        yield "a CUDA device was in use: single callables are not compared"


# --- findings ------------------------------------------------------------------------------------

MIN_SHARE = 0.05  #: Of a usual compiled step: a callable that loses less is not worth a line.
_ATTEMPT = re.compile(r"_\d+$")  #: Of a compile id: which attempt reported the break.
BRIEF_S = 0.0005
"""A compiled call as brief as this is mostly what torch.compile does around its graph: guards,
wrapper and launch take tens of microseconds."""


def find_slower_than_eager(timeline: Timeline, payoff: AgainstEagerSection) -> Iterable[Finding]:
    """Find CD631: one for each callable that is slower compiled; one for the steps where they are
    and no callable is seen to be why. None where the outputs differ: that is then what to mend."""
    if payoff.verdict in ("outputs_differ", "not_concluded") or payoff.compiled_step_s is None:
        return
    least_s = MIN_SHARE * payoff.compiled_step_s
    slower = [
        row
        for row in payoff.callables
        if decide_verdict(row.ratio) == "does_not_pay"
        and row.calls * (row.compiled_s - row.eager_s) >= least_s
    ]
    for row in slower:
        yield _make_callable_finding(timeline, row)
    if not slower and payoff.verdict == "does_not_pay" and payoff.ratio is not None:
        yield make_finding(
            timeline,
            "CD631",
            f"steps are slower compiled than eager: {payoff.ratio.middle:.2g}x",
            "leave out torch.compile, or compile what the steps spend their time in",
            evidence={
                "ratio": payoff.ratio.middle,
                "compiled_step_s": payoff.compiled_step_s,
                "eager_step_s": payoff.eager_step_s,
            },
        )


def _make_callable_finding(timeline: Timeline, row: CallableAgainstEager) -> Finding:
    # Graph breaks met in compiling the function, or what is left of it after one.
    name = row.function.function
    own, rest = name.rpartition(".")[2], f"torch_dynamo_resume_in_{name.rpartition('.')[2]}_at_"
    ids = {
        compile_.compile_id
        for compile_ in timeline.compiles
        if compile_.frame.file == row.function.file
        and (compile_.frame.function == own or compile_.frame.function.startswith(rest))
    }
    met = ({_ATTEMPT.sub("", compiled) for compiled in s.compile_ids} for s in timeline.breaks)
    breaks = sum(not ids.isdisjoint(compiled) for compiled in met)
    if breaks:
        fix = (
            f"remove its {format_count(breaks, 'graph break')} first: at each one the call goes "
            "back to Python, checks guards and starts another graph"
        )
    elif row.compiled_s < BRIEF_S:
        fix = (
            "compile the function that calls it, so that it becomes part of a larger graph; or do "
            "not compile it"
        )
    else:
        fix = "do not compile it: put torch.compiler.disable on it, or leave out torch.compile"
    return make_finding(
        timeline,
        "CD631",
        f"{name} is slower compiled than eager: {row.ratio.middle:.2g}x",
        fix,
        location=Location(row.function.file, row.function.line, name),
        evidence={
            "ratio": row.ratio.middle,
            "ratio_low": row.ratio.low,
            "ratio_high": row.ratio.high,
            "compiled_call_s": row.compiled_s,
            "eager_call_s": row.eager_s,
            "calls_per_step": row.calls,
            "graph_breaks": breaks,
        },
    )
