"""Interleaved comparisons: pairs of CPU seconds, their median ratio and its bootstrap interval."""

from __future__ import annotations

import math
import os
import random
import re
import shutil
import statistics
import subprocess
import time
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


@dataclass(frozen=True, slots=True)
class Used:
    """What a child process took, with the processes it waited for."""

    cpu_s: float
    """User and system."""
    wall_s: float
    peak_bytes: int
    """Most memory of any one process at any time; never less than what this process had."""


def cpu_seconds(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """CPU seconds, user and system, of a child process that must succeed."""
    return used(command, environment).cpu_s


def used(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Used:
    """What a child process takes that must succeed."""
    begin = time.perf_counter()
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
    wall_s = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stderr.close()
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}:\n{said}")
    return Used(taken.ru_utime + taken.ru_stime, wall_s, taken.ru_maxrss * 1024)


def instructions(command: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Instructions of a program that must succeed, its calls of the system not counted; None
    without valgrind.

    They tell what seconds cannot: two runs of one program differ by a millionth.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return None
    counted = [valgrind, "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    done = subprocess.run(
        [*counted, *command],
        env={**environment, "PYTHONHASHSEED": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"I +refs: +([0-9,]+)", done.stderr)
    assert found is not None
    return int(found[1].replace(",", ""))
