"""Series of figures, from the step lines and progress bars of one trainer in one rank."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from compilediag.extensions.train_logs.patterns import (
    EPOCHS,
    LAST,
    PEAKS,
    RATES,
    SECONDS,
    LinePattern,
)

BAR_MARKER = "%|"

SECONDS_ENOUGH = 20
"""Whole seconds that are known to a twentieth."""

TIMED_LIMIT = 1_000_000
TOTALS_LIMIT = 1000

MAX_BAR_CHARS = 1000

_AFTER = re.compile(
    r"[ \t]{0,16}(?P<done>\d{1,12})/(?P<total>\d{1,12}) "
    r"\[(?:(?P<hours>\d{1,6}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d\d)<[^,\]]{0,24}, {0,4}"
    r"(?P<rate>\d{1,9}(?:\.\d{0,9})?|\?)(?P<unit>it/s|s/it)"
)


def _make_floats() -> array[float]:
    return array("d")


class Bar(NamedTuple):
    """One drawing of a bar."""

    before: str
    """The text before it: "Epoch 3:"; empty where there is none."""
    done: int
    total: int
    elapsed_s: int
    step_s: float | None
    """Seconds of a step by the rate that it shows."""
    after: str
    """What follows the rate: ", v_num=0, loss=0.31]"."""


def parse_bar(text: str) -> Bar | None:
    """Parse the bar of a line; None where it is none, or counts something else than steps."""
    start = text.find(BAR_MARKER)
    end = text.find("|", start + 2, start + 2 + MAX_BAR_CHARS) if start > 0 else -1
    match = _AFTER.match(text, end + 1) if end > 0 else None
    if match is None:
        return None
    rate = float(match["rate"]) if match["rate"] != "?" else 0.0
    return Bar(
        before=text[:start].rstrip("0123456789").strip(),
        done=int(match["done"]),
        total=int(match["total"]),
        elapsed_s=(int(match["hours"] or 0) * 60 + int(match["minutes"])) * 60
        + int(match["seconds"]),
        step_s=None if rate <= 0 else rate if match["unit"] == "s/it" else 1 / rate,
        after=text[match.end() :],
    )


@dataclass(slots=True)
class Bars:
    """All bars of one kind in one rank, in their order: one for each epoch, or one for the run."""

    mean_rate: bool
    steps: int = 0
    """Steps of the bars that are over."""
    begun: int = 0
    """Bars, those that begin anew included."""
    numbers: array[float] = field(default_factory=_make_floats)
    """The last of some steps that were timed, counted over all bars of the kind."""
    seconds: array[float] = field(default_factory=_make_floats)
    covered: array[float] = field(default_factory=_make_floats)
    _first: Bar | None = None
    """Where the steps to be timed next began."""
    _newest: Bar | None = None
    """The first drawing of the most steps: later ones may hold an evaluation."""
    _is_timed: bool = False
    """Some steps of the bar in progress are timed."""

    @property
    def drawn_steps(self) -> int:
        """Steps that were drawn, those of the bar in progress included."""
        return self.steps + (self._newest.done if self._newest is not None else 0)

    def take(self, bar: Bar) -> None:
        """Take the next drawing of a bar."""
        newest = self._newest
        same = newest is not None and (bar.before, bar.total) == (newest.before, newest.total)
        if newest is None or not same or bar.done < newest.done:
            self.finish()
            self.begun += 1
            self._first = self._newest = bar
        elif bar.done > newest.done:
            self._newest, first = bar, self._first
            passed_s = bar.elapsed_s - first.elapsed_s if first is not None else 0
            if first is not None and passed_s >= SECONDS_ENOUGH:
                steps = bar.done - first.done
                self._add(bar, passed_s / steps, steps)
                self._first, self._is_timed = bar, True

    def finish(self) -> None:
        """Finish the bar in progress."""
        bar, self._newest = self._newest, None
        if bar is None:
            return
        if self.mean_rate and not self._is_timed and bar.step_s and bar.done:
            self._add(bar, bar.step_s, bar.done)
        self.steps += bar.done
        self._is_timed = False

    def _add(self, bar: Bar, step_s: float, steps: int) -> None:
        if len(self.numbers) < TIMED_LIMIT:
            self.numbers.append(self.steps + bar.done)
            self.seconds.append(step_s)
            self.covered.append(steps)


@dataclass(slots=True)
class NamelessBars:
    """Bars without a name, distinguished by totals. That of training is the one which is drawn
    again right after a step was logged: an evaluation within it has a bar of its own."""

    mean_rate: bool
    _by_total: dict[int, Bars] = field(default_factory=dict[int, Bars])
    _votes: Counter[int] = field(default_factory=Counter[int])
    logged: bool = False
    """A line of a step was printed since the last drawing."""

    def take(self, bar: Bar) -> None:
        """Take the next drawing of any of them."""
        if self.logged:
            self._votes[bar.total] += 1
            self.logged = False
        if bar.total in self._by_total or len(self._by_total) < TOTALS_LIMIT:
            self._by_total.setdefault(bar.total, Bars(self.mean_rate)).take(bar)

    def find_training(self) -> Bars | None:
        """Find the bars of training; None where none is surely that: also where one that began anew
        may be an evaluation of as many steps."""
        winner = self._votes.most_common(1)
        bars = self._by_total.get(winner[0][0]) if winner else None
        return bars if bars is not None and bars.begun == 1 else None


# --- progress bars -------------------------------------------------------------------------------

LINES_LIMIT = 5_000_000
"""Most step lines stored of one rank."""

REPEATED_WITHIN = 8
"""A step among the last so many is the same one, printed again by a rank without a name."""


@dataclass(slots=True)
class Stream:
    """State between the lines."""

    pattern: LinePattern
    rank: str | None
    lines: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Why, to the number of lines of which something was left out."""
    numbers: array[float] = field(default_factory=_make_floats)
    seconds: array[float] = field(default_factory=_make_floats)
    rates: dict[str, array[float]] = field(default_factory=dict[str, "array[float]"])
    last: dict[str, float] = field(default_factory=dict[str, float])
    peaks: dict[str, float] = field(default_factory=dict[str, float])
    losses: int = 0
    losses_not_finite: int = 0
    bars: Bars | None = None
    nameless: NamelessBars | None = None
    _recent: deque[int] = field(default_factory=lambda: deque(maxlen=REPEATED_WITHIN))
    _stamp: float | None = None

    def take(self, figures: Mapping[str, str]) -> None:
        """Take one line of a step: its figures by field, as they are printed."""
        self.lines += 1
        step = _parse_step(figures)
        if step in self._recent:
            self.left_out["repeated"] += 1
            return
        if len(self.numbers) >= LINES_LIMIT:
            self.left_out["over_limit"] += 1
            return
        # Invariant: `numbers` grows last; `pad_series` counts the lines before this one by it.
        self.seconds.append(self._read_seconds(figures, step))
        for name, figure in figures.items():
            if name in RATES:
                value = parse_number(figure, RATES[name])
                series = self.pad_series("mfu" if name.startswith("mfu") else name)
                series.append(value if 0 < value < math.inf else math.nan)
        self.numbers.append(math.nan if step is None else step)
        if step is not None:
            self._recent.append(step)
        self.note_figures(figures)
        if self.nameless is not None:
            self.nameless.logged = True

    def note_figures(self, figures: Mapping[str, str]) -> None:
        """Note the figures of a line that are no series: the last loss, the highest peak."""
        for name, figure in figures.items():
            if name in LAST:
                self.last[name] = value = parse_number(figure)
                self.losses += name == "loss"
                self.losses_not_finite += name == "loss" and not math.isfinite(value)
                not_finite = name != "loss" and not math.isfinite(value)
                self.left_out["grad_norms_not_finite"] += not_finite
            elif name in PEAKS:
                kind = f"{name.partition('_peak')[0]}_peak_bytes"
                peak = parse_number(figure, PEAKS[name])
                if self.peaks.get(kind, 0.0) < peak < math.inf:
                    self.peaks[kind] = peak
            elif name == "nan_steps" and parse_number(figure) > 0:
                # Megatron leaves a loss that is NaN out of its mean, and counts such steps.
                self.losses_not_finite += 1

    def pad_series(self, name: str) -> array[float]:
        """Pad the series of a rate to one value for each line before this one."""
        series = self.rates.setdefault(name, _make_floats())
        lines = len(self.numbers)
        del series[lines:]  # a line may hold a rate in two spellings
        series.extend([math.nan] * (lines - len(series)))
        return series

    def _read_seconds(self, figures: Mapping[str, str], step: int | None) -> float:
        if self.pattern.seconds == "between":
            return self._compute_between(figures.get("time"), step)
        for name, factor in SECONDS.items():
            if name in figures:
                value = parse_number(figures[name], factor)
                return value if 0 < value < math.inf else math.nan
        return math.nan

    def _compute_between(self, time: str | None, step: int | None) -> float:
        """Compute seconds of a step since the line before, by both timestamps; NaN if unknown."""
        stamp = None if time is None else parse_timestamp(time)
        before, self._stamp = self._stamp, stamp
        if stamp is None or before is None or step is None or not self._recent:
            return math.nan
        steps = step - self._recent[-1]
        if steps <= 0 or stamp <= before:
            self.left_out["backwards"] += 1
            return math.nan
        return (stamp - before) / steps


def _parse_step(figures: Mapping[str, str]) -> int | None:
    """Parse the number of a step in the run, which some trainers count within each epoch."""
    counted = [parse_number(figures[name]) for name in ("step", *EPOCHS) if name in figures]
    if "step" not in figures or not all(map(math.isfinite, counted)):
        return None
    step, *epoch = map(int, counted)
    return step + epoch[0] * epoch[1] if len(epoch) == len(EPOCHS) else step


def parse_number(figure: str, factor: Decimal = Decimal(1)) -> float:
    """Parse a figure as it is printed (with commas, an exponent, or "nan"), times a factor. The
    product is decimal, as the figure is: 12.3 % is 0.123, not 0.12300000000000001."""
    text = figure.replace(",", "")
    return float(text) if factor == 1 else float(Decimal(text) * factor)


def parse_timestamp(text: str) -> float | None:
    """Parse a time as logging prints it to seconds, without its zone; None where it is no time."""
    try:
        whole = datetime.fromisoformat(text[:19]).replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
    return whole + float(f"0.{text[20:]}")


def compute_covered(stream: Stream) -> array[float]:
    """Compute of how many steps the seconds of each line are the mean.

    A mean is over the trainer's own interval, which is the usual distance of its lines; the time
    between two lines is of all steps between them.
    """
    if stream.pattern.seconds == "own":
        return array("d", [1.0]) * len(stream.numbers)
    steps = [after - before for before, after in pairwise(stream.numbers)]
    usual = median([distance for distance in steps if distance > 0] or [1.0])
    if stream.pattern.seconds == "mean":
        steps = [min(distance, usual) for distance in steps]
    covered = [usual, *(distance if distance > 0 else usual for distance in steps)]
    return array("d", covered[: len(stream.numbers)])


def count_ended_steps(stream: Stream) -> int | None:
    """Count the steps that ended, attempt by attempt; None where lines have no number.

    The first line of an attempt stands for one step, or for as many as its mean is over.
    """
    known = [number for number in stream.numbers if not math.isnan(number)]
    if not known:
        return None
    first = int(compute_covered(stream)[0]) if stream.pattern.seconds == "mean" else 1
    total, began, before = 0, known[0], known[0]
    for number in known[1:]:
        if number <= before:
            total += int(before - began) + first
            began = number
        before = number
    return total + int(before - began) + first
