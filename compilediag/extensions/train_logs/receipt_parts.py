"""Builds parts of a receipt from a trainer's own output: steps and throughput.

The first steps compile, allocate and fill caches, and where work is handed to a device without
waiting for it, one of them may look a hundred times too fast: figures are of the steady steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from msgspec.structs import replace

from compilediag.diagnosis.figures.steps import UNEXPLAINED, build_sketch, find_spikes
from compilediag.receipt.schema.invocations import Throughput
from compilediag.receipt.schema.running import Spike, StepsSection
from compilediag.timeline.recorded import TrainLog

STEADY_RATIO = 1.5
"""A step is like the later ones when it takes at most so many times as long, or as short."""

STEADY_RUN = 3
"""So many steps in a row that are like the later ones end the warm-up."""

MIN_STEADY = 2
"""Fewer lines than this after warm-up give no rate: a single early step is never trusted."""


def build_steps(log: TrainLog, warmup: int | None) -> StepsSection | None:
    """Build the steps section of what the trainer printed; None where it printed none, or no number
    of them. `warmup`: steps that the user configured, None to infer them."""
    steps = list(iterate_timed(log))
    count = log.ended_steps if log.ended_steps is not None else len(steps)
    if not count:
        return None
    if not steps:
        return StepsSection(count=count)
    covered = sum(weight for _, weight in steps)
    ordered = sorted(steps)
    # The steps of the leading lines: by their numbers, where they have them.
    lines = count_warmup_lines(log, warmup)
    numbers = log.numbers[: lines + 1]
    warmup_steps = max(1, int(sum(log.covered[:lines]))) if lines else 0
    if lines and len(numbers) > lines and numbers[lines] > numbers[0]:
        before = log.covered[0] if log.clock != "timestamps" else 1
        warmup_steps = max(1, int(numbers[lines] - log.covered[lines] - numbers[0] + before))
    # Lines whose steps took long; the cause is unknown: it may have been an evaluation.
    walls = [seconds if seconds > 0 else 0.0 for seconds in log.seconds]
    spikes = tuple(
        Spike(
            step=int(log.numbers[position]),
            wall_s=walls[position],
            compile_s=None,
            metric_s=None,
            sync_s=None,
            why=UNEXPLAINED,
        )
        for position in find_spikes(walls, lines)
        if not math.isnan(log.numbers[position])
    )
    return StepsSection(
        count=count,
        timed=int(covered) if int(covered) != count else None,
        warmup=warmup_steps,
        clock=log.clock,
        mean=sum(seconds * weight for seconds, weight in steps) / covered,
        median=compute_quantile(ordered, 0.5),
        min=ordered[0][0],
        max=ordered[-1][0],
        p90=compute_quantile(ordered, 0.9),
        p99=compute_quantile(ordered, 0.99),
        sketch=build_sketch((seconds, int(covered)) for seconds, covered in steps),
        spikes=spikes,
    )


def complete_throughput(given: Throughput | None, log: TrainLog, warmup: int | None) -> Throughput:
    """Complete the throughput by figures the trainer printed; what was measured is not replaced."""
    base = given if given is not None else Throughput()
    # After warm-up; of the whole run where the trainer printed its rates only at the end.
    lines = count_warmup_lines(log, warmup)
    step_s = compute_step_s(log, lines)
    steps_per_s = 1 / step_s if step_s else _get_run_rate(log, "steps_per_s")
    samples_per_s = compute_rate(log, "samples_per_s", lines)
    batch = compute_rate(log, "samples_per_step", lines)
    if samples_per_s is None and batch is not None and step_s:
        samples_per_s = batch / step_s
    own = ("tokens_per_s", "tokens_per_s_per_device", "tflops_per_s_per_device", "mfu")
    rates = {name: compute_rate(log, name, lines) for name in own}
    printed = {
        **rates,
        "steps_per_s": steps_per_s,
        "samples_per_s": samples_per_s or _get_run_rate(log, "samples_per_s"),
        "tokens_per_s": rates["tokens_per_s"] or _get_run_rate(log, "tokens_per_s"),
        "loss": _filter_finite(log.last.get("loss")),
        "grad_norm": _filter_finite(log.last.get("grad_norm")),
        "train_s": _get_run_rate(log, "train_s"),
    }
    missing = {name: value for name, value in printed.items() if getattr(base, name) is None}
    known = {name: value for name, value in missing.items() if value is not None}
    return replace(base, reported_by=log.trainer, **known)


def _get_run_rate(log: TrainLog, name: str) -> float | None:
    value = _filter_finite(log.whole.get(name))
    return value if value is not None and value > 0 else None


def _filter_finite(value: float | None) -> float | None:
    """Filter what is not finite: NaN is reported by the checks, and would be lost as a number."""
    return value if value is not None and math.isfinite(value) else None


def count_warmup_lines(log: TrainLog, steps: int | None) -> int:
    """Count the leading lines that belong to warm-up: those of the first `steps` steps, where that
    is given; else those before the first few that are like the second half of the run.

    The first line is always warm-up, unless it is the only one.
    """
    if steps is not None:
        # The lines of the first so many steps.
        passed = 0.0
        for index, (number, covered) in enumerate(zip(log.numbers, log.covered, strict=True)):
            begun = number - covered - (log.numbers[0] - log.covered[0])
            if (passed if math.isnan(begun) else begun) >= steps:
                return index
            passed += covered
        return len(log.covered)
    signal = _get_signal(log)
    known = [value for value in signal if value > 0]
    if len(known) < 2:
        return 0
    usual = median(known[len(known) // 2 :])
    run = 0
    for index, value in enumerate(signal):
        run = run + 1 if usual / STEADY_RATIO <= value <= usual * STEADY_RATIO else 0
        if run == STEADY_RUN:
            return max(1, index + 1 - STEADY_RUN)
    return max(1, len(signal) // 2)


def _get_signal(log: TrainLog) -> Sequence[float]:
    """Get the seconds of each line, or where there are none the reciprocal of a rate."""
    if any(value > 0 for value in log.seconds):
        return log.seconds
    for series in log.rates.values():
        if any(value > 0 for value in series):
            return [1 / value if value > 0 else math.nan for value in series]
    return ()


def iterate_timed(log: TrainLog, first: int = 0) -> Iterator[tuple[float, float]]:
    """Iterate (seconds of a step, steps that they are the mean of) of every line that has them."""
    for seconds, covered in zip(log.seconds[first:], log.covered[first:], strict=True):
        if seconds > 0:
            yield seconds, covered


def compute_step_s(log: TrainLog, warmup: int) -> float | None:
    """Compute the median wall seconds of a step after warm-up; None with too few lines.

    No mean: a trainer that prints every tenth step prints just those that evaluate or save.
    """
    steady = sorted(iterate_timed(log, warmup))
    return compute_quantile(steady, 0.5) if len(steady) >= MIN_STEADY else None


def compute_quantile(ordered: Sequence[tuple[float, float]], share: float) -> float:
    """Compute the seconds at nearest rank `share` of (seconds, steps), each for its steps."""
    rank, counted = share * sum(steps for _, steps in ordered), 0.0
    for seconds, steps in ordered:
        counted += steps
        if counted >= rank:
            return seconds
    return ordered[-1][0]


def compute_rate(log: TrainLog, name: str, warmup: int) -> float | None:
    """Compute the median of a rate after warm-up; None with too few lines."""
    known = [value for value in log.rates.get(name, ())[warmup:] if value > 0]
    return median(known) if len(known) >= MIN_STEADY else None
