"""Progress bars of tqdm in a log, and how long the steps they count took.

A bar shows whole seconds since it began, and a rate. Of a rate that follows the last few steps no
mean can be computed, so the seconds are used where there are enough of them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

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


def bar_in(text: str) -> Bar | None:
    """The bar that a line is; None where it is none, or counts something else than steps."""
    start = text.find(BAR_MARKER)
    end = text.find("|", start + 2, start + 2 + MAX_BAR_CHARS) if start > 0 else -1
    found = _AFTER.match(text, end + 1) if end > 0 else None
    if found is None:
        return None
    rate = float(found["rate"]) if found["rate"] != "?" else 0.0
    return Bar(
        before=text[:start].rstrip("0123456789").strip(),
        done=int(found["done"]),
        total=int(found["total"]),
        elapsed_s=(int(found["hours"] or 0) * 60 + int(found["minutes"])) * 60
        + int(found["seconds"]),
        step_s=None if rate <= 0 else rate if found["unit"] == "s/it" else 1 / rate,
        after=text[found.end() :],
    )


class TimedSteps(NamedTuple):
    """Some steps that a bar counted."""

    step: int
    """The last of them, counted over all bars of the kind."""
    step_s: float
    steps: int


@dataclass(slots=True)
class Bars:
    """All bars of one kind in one rank, in their order: one for each epoch, or one for the run."""

    mean_rate: bool
    steps: int = 0
    """Steps of the bars that are over."""
    begun: int = 0
    """Bars, those that begin anew included."""
    timed: list[TimedSteps] = field(default_factory=list[TimedSteps])
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
        """The next drawing of a bar."""
        newest = self._newest
        same = newest is not None and (bar.before, bar.total) == (newest.before, newest.total)
        if newest is None or not same or bar.done < newest.done:
            self.end()
            self.begun += 1
            self._first = self._newest = bar
        elif bar.done > newest.done:
            self._newest = bar
            self._time(bar)

    def end(self) -> None:
        """The bar in progress is over."""
        bar, self._newest = self._newest, None
        if bar is None:
            return
        if self.mean_rate and not self._is_timed and bar.step_s and bar.done:
            self._add(bar, bar.step_s, bar.done)
        self.steps += bar.done
        self._is_timed = False

    def _time(self, bar: Bar) -> None:
        first = self._first
        if first is None or bar.elapsed_s - first.elapsed_s < SECONDS_ENOUGH:
            return
        steps = bar.done - first.done
        self._add(bar, (bar.elapsed_s - first.elapsed_s) / steps, steps)
        self._first, self._is_timed = bar, True

    def _add(self, bar: Bar, step_s: float, steps: int) -> None:
        if len(self.timed) < TIMED_LIMIT:
            self.timed.append(TimedSteps(self.steps + bar.done, step_s, steps))


@dataclass(slots=True)
class NamelessBars:
    """Bars without a name, distinguished by totals. That of training is the one which is drawn
    again right after a step was logged: an evaluation within it has a bar of its own."""

    mean_rate: bool
    _by_total: dict[int, Bars] = field(default_factory=dict[int, Bars])
    _votes: Counter[int] = field(default_factory=Counter[int])
    _logged: bool = False

    def take(self, bar: Bar) -> None:
        """The next drawing of any of them."""
        if self._logged:
            self._votes[bar.total] += 1
            self._logged = False
        if bar.total in self._by_total or len(self._by_total) < TOTALS_LIMIT:
            self._by_total.setdefault(bar.total, Bars(self.mean_rate)).take(bar)

    def step_logged(self) -> None:
        """A line of a step was printed."""
        self._logged = True

    def of_training(self) -> Bars | None:
        """None where no bar is surely that of training: also where one that began anew may be an
        evaluation of as many steps."""
        winner = self._votes.most_common(1)
        bars = self._by_total.get(winner[0][0]) if winner else None
        return bars if bars is not None and bars.begun == 1 else None
