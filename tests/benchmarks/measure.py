"""Interleaved comparisons: pairs of CPU seconds, their median ratio and its bootstrap interval."""

import math
import os
import random
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

RESAMPLES = 10_000
CONFIDENCE = 0.95

Measurement = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Change:
    """How much more B takes than A, as a share of A (0.01 is one percent)."""

    base: float
    """Median of A, in its own unit."""
    median: float
    low: float
    high: float

    def against(self, goal: float) -> str:
        """Whether B stays within `goal`; noise wider than the goal settles nothing."""
        if self.high <= goal:
            return "holds"
        return "fails" if self.low > goal else "not resolved"


def interleave(a: Measurement, b: Measurement, rounds: int) -> list[tuple[float, float]]:
    """Measures A and B in turn, so that a drift of the machine meets both; one round is dropped."""
    a(), b()
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        if number % 2:
            second = b()
            pairs.append((a(), second))
        else:
            pairs.append((a(), b()))
    return pairs


def change(pairs: Sequence[tuple[float, float]]) -> Change:
    """Median of the paired log ratios with its bootstrap interval."""
    ratios = [math.log(b / a) for a, b in pairs]
    low, high = bootstrap(ratios)
    base = statistics.median(a for a, _ in pairs)
    return Change(base, *(math.expm1(x) for x in (statistics.median(ratios), low, high)))


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """Percentile interval of the median; the same values give the same interval."""
    chance = random.Random(0)
    medians = sorted(
        statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    tail = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return medians[tail], medians[-tail - 1]


def cpu_seconds(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """CPU seconds, user and system, of a child process that must succeed, and of those it waited
    for."""
    child = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, taken = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}:\n{said}")
    return taken.ru_utime + taken.ru_stime
