"""The step lines of one trainer in one rank, put together to series."""

from __future__ import annotations

import math
from array import array
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from functools import lru_cache
from statistics import median

from compilediag.readers.train_logs.patterns import LAST, PEAKS, RATES, SECONDS, LinePattern, Told
from compilediag.readers.train_logs.progress_bars import Bars, NamelessBars

LINES_LIMIT = 5_000_000
"""Most step lines kept of one rank."""

REPEATED_WITHIN = 8
"""A step among the last so many is the same one, told again: by a rank without a name."""

_SERIES = {name: "mfu" if name.startswith("mfu") else name for name in RATES}
"""Field to the name of its series."""

_NOTED = frozenset({*LAST, *PEAKS, "nan_steps"})

_ROLES = {
    **{name: (_SERIES[name], factor) for name, factor in RATES.items()},
    **dict.fromkeys(_NOTED, (None, Decimal(1))),
    **{name: (None, factor) for name, factor in PEAKS.items()},
}
"""Field to the name of its series and the factor that makes it its unit; None where there is no
series."""

_PEAK_KINDS = {name: f"{name.partition('_peak')[0]}_peak_bytes" for name in PEAKS}


def _floats() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Stream:
    """State between the lines."""

    shape: LinePattern
    rank: str | None
    lines: int = 0
    repeated: int = 0
    over_limit: int = 0
    backwards: int = 0
    """Times that the step number or the clock went back."""
    numbers: array[float] = field(default_factory=_floats)
    seconds: array[float] = field(default_factory=_floats)
    rates: dict[str, array[float]] = field(default_factory=dict[str, "array[float]"])
    last: dict[str, float] = field(default_factory=dict[str, float])
    peaks: dict[str, float] = field(default_factory=dict[str, float])
    losses: int = 0
    losses_not_finite: int = 0
    grad_norms_not_finite: int = 0
    bars: Bars | None = None
    nameless: NamelessBars | None = None
    _recent: deque[int] = field(default_factory=lambda: deque(maxlen=REPEATED_WITHIN))
    _stamp: float | None = None

    def take(self, told: Told) -> None:
        """One line of a step."""
        self.lines += 1
        spelled = told.get("step")
        number = None if spelled is None else int(spelled.replace(",", ""))
        if number in self._recent:
            self.repeated += 1
            return
        if len(self.numbers) >= LINES_LIMIT:
            self.over_limit += 1
            return
        self.seconds.append(self._seconds(told, number))
        place = len(self.numbers)
        if number is None:
            self.numbers.append(math.nan)
        else:
            self._recent.append(number)
            self.numbers.append(number)
        for name, spelled in told.items():
            role = _ROLES.get(name)
            if role is None:
                continue
            key, factor = role
            value = number_of(spelled, factor)
            if key is None:
                if name == "grad_norm" and -math.inf < value < math.inf:
                    self.last[name] = value
                else:
                    self._note(name, value)
                continue
            series = self.rates.get(key)
            if series is None or len(series) != place:
                series = self._series(key, place)
            series.append(value if 0 < value < math.inf else math.nan)
        if self.nameless is not None:
            self.nameless.step_logged()

    def note(self, told: Told) -> None:
        """What a line tells that is no series: the last loss, the highest peak."""
        for name, spelled in told.items():
            if name in _NOTED:
                self._note(name, number_of(spelled, PEAKS.get(name, Decimal(1))))

    def _note(self, name: str, value: float) -> None:
        if name in LAST:
            self.last[name] = value
            if name == "loss":
                self.losses += 1
                if not -math.inf < value < math.inf:
                    self.losses_not_finite += 1
            elif not -math.inf < value < math.inf:
                self.grad_norms_not_finite += 1
        elif name in PEAKS:
            kind = _PEAK_KINDS[name]
            if self.peaks.get(kind, 0.0) < value < math.inf:
                self.peaks[kind] = value
        elif value > 0:
            # Megatron leaves a loss that is NaN out of its mean, and counts such steps.
            self.losses_not_finite += 1

    def _series(self, name: str, place: int) -> array[float]:
        """The series of a rate, as long as there were lines before this one."""
        series = self.rates.setdefault(name, _floats())
        del series[place:]
        series.extend([math.nan] * (place - len(series)))
        return series

    def padded_rates(self) -> dict[str, array[float]]:
        """The series, each with one place a line."""
        lines = len(self.numbers)
        for series in self.rates.values():
            series.extend([math.nan] * (lines - len(series)))
        return self.rates

    def _seconds(self, told: Told, number: int | None) -> float:
        if self.shape.seconds == "between":
            return self._between(told.get("time"), number)
        for name, factor in SECONDS.items():
            if name in told:
                value = number_of(told[name], factor)
                return value if 0 < value < math.inf else math.nan
        return math.nan

    def _between(self, spelled: str | None, number: int | None) -> float:
        """Seconds of a step since the line before, by the clock of both lines."""
        stamp = None if spelled is None else timestamp(spelled)
        before, self._stamp = self._stamp, stamp
        if stamp is None or before is None or number is None or not self._recent:
            return math.nan
        steps = number - self._recent[-1]
        if steps <= 0 or stamp <= before:
            self.backwards += 1
            return math.nan
        return (stamp - before) / steps


def number_of(spelled: str, factor: Decimal = Decimal(1)) -> float:
    """A figure as it is printed (with commas, with an exponent, or no number at all), times a
    factor. The product is decimal, as the figure is: 12.3 % is 0.123, not 0.12300000000000001."""
    text = spelled.replace(",", "")
    return float(text) if factor == 1 else float(Decimal(text) * factor)


def timestamp(spelled: str) -> float | None:
    """Seconds of a time as logging prints it, without its zone; None where it is no time."""
    minute = _minute(spelled[:16])
    return None if minute is None else minute + float(spelled[17:].replace(",", "."))


@lru_cache(maxsize=64)
def _minute(spelled: str) -> float | None:
    """Seconds of a whole minute: lines come in their order, and many in one minute."""
    try:
        return datetime.fromisoformat(spelled).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def covered_by(stream: Stream) -> array[float]:
    """Of how many steps the seconds of each line are the mean.

    A mean is over the trainer's own interval, which is the usual distance of its lines; the time
    between two lines is of all steps between them.
    """
    if stream.shape.seconds == "own":
        return array("d", [1.0]) * len(stream.numbers)
    steps = [
        after - before for before, after in zip(stream.numbers, stream.numbers[1:], strict=False)
    ]
    usual = median([each for each in steps if each > 0] or [1.0])
    if stream.shape.seconds == "mean":
        steps = [min(each, usual) for each in steps]
    return array(
        "d", [usual, *(each if each > 0 else usual for each in steps)][: len(stream.numbers)]
    )


def ended_steps(stream: Stream) -> int | None:
    """Steps that ended, attempt by attempt; None where lines bear no number.

    The first line of an attempt tells of one step, or of as many as its mean is over.
    """
    known = [number for number in stream.numbers if not math.isnan(number)]
    if not known:
        return None
    first = int(covered_by(stream)[0]) if stream.shape.seconds == "mean" else 1
    total, began, before = 0, known[0], known[0]
    for number in known[1:]:
        if number <= before:
            total += int(before - began) + first
            began = number
        before = number
    return total + int(before - began) + first
