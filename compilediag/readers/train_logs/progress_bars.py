"""Progress bars of tqdm in a log, and how long the steps they count took.

A bar tells whole seconds since it began, and a rate. Of a rate that follows the last few steps no
mean can be made, so the seconds are used where there are enough of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

BAR_MARKER = b"%|"

SECONDS_ENOUGH = 20
"""Whole seconds that are known to a twentieth."""

STRETCHES_LIMIT = 1_000_000
TOTALS_LIMIT = 1000

BAR_CHARS = 1000
"""Longest bar."""

_AFTER = re.compile(
    r"[ \t]{0,16}(?P<done>\d{1,12})/(?P<total>\d{1,12}) "
    r"\[(?:(?P<hours>\d{1,6}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d\d)<[^,\]]{0,24}, {0,4}"
    r"(?P<rate>\d{1,9}(?:\.\d{0,9})?|\?)(?P<unit>it/s|s/it)"
)


class Bar(NamedTuple):
    """One drawing of a bar."""

    before: str
    """What stands before it: "Epoch 3:"; empty where nothing does."""
    done: int
    total: int
    elapsed_s: int
    step_s: float | None
    """Seconds of a step by the rate that it shows."""
    after: str
    """What follows the rate: ", v_num=0, loss=0.31]"."""


def bar_in(text: str) -> Bar | None:
    """The bar that a line is; None where it is none, or counts something else than steps."""
    place = text.find("%|")
    end = text.find("|", place + 2, place + 2 + BAR_CHARS) if place > 0 else -1
    found = _AFTER.match(text, end + 1) if end > 0 else None
    if found is None:
        return None
    done, total, hours, minutes, seconds, spelled, unit = found.groups()
    rate = float(spelled) if spelled != "?" else 0.0
    return Bar(
        before=text[:place].rstrip("0123456789").strip(),
        done=int(done),
        total=int(total),
        elapsed_s=int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds),
        step_s=None if rate <= 0 else rate if unit == "s/it" else 1 / rate,
        after=text[found.end() :],
    )


class Stretch(NamedTuple):
    """Some steps that a bar counted."""

    number: int
    """Of the last step, counted over all bars of the kind."""
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
    stretches: list[Stretch] = field(default_factory=list[Stretch])
    _key: tuple[str, int] = ("", 0)
    _first: Bar | None = None
    """Where the stretch in progress began."""
    _newest: Bar | None = None
    """The first drawing of the most steps: later ones may hold an evaluation."""
    _told: bool = False
    """The bar in progress has told a stretch."""

    @property
    def drawn_steps(self) -> int:
        """Steps that were drawn, those of the bar in progress included."""
        return self.steps + (self._newest.done if self._newest is not None else 0)

    def take(self, bar: Bar) -> None:
        """The next drawing of a bar."""
        newest = self._newest
        if newest is None or (bar.before, bar.total) != self._key or bar.done < newest.done:
            self.end()
            self.begun += 1
            self._key, self._first, self._newest = (bar.before, bar.total), bar, bar
        elif bar.done > newest.done:
            self._newest = bar
            self._stretch(bar)

    def end(self) -> None:
        """The bar in progress is over."""
        bar, self._newest = self._newest, None
        if bar is None:
            return
        enough = len(self.stretches) < STRETCHES_LIMIT
        if self.mean_rate and not self._told and bar.step_s and bar.done and enough:
            self.stretches.append(Stretch(self.steps + bar.done, bar.step_s, bar.done))
        self.steps += bar.done
        self._told = False

    def _stretch(self, bar: Bar) -> None:
        first = self._first
        if first is None or bar.elapsed_s - first.elapsed_s < SECONDS_ENOUGH:
            return
        steps = bar.done - first.done
        seconds = (bar.elapsed_s - first.elapsed_s) / steps
        if len(self.stretches) < STRETCHES_LIMIT:
            self.stretches.append(Stretch(self.steps + bar.done, seconds, steps))
        self._first, self._told = bar, True


@dataclass(slots=True)
class NamelessBars:
    """Bars without a name, told apart by their totals. That of training is the one which is drawn
    again right after a step was logged: an evaluation within it has a bar of its own."""

    mean_rate: bool
    _by_total: dict[int, Bars] = field(default_factory=dict[int, Bars])
    _votes: dict[int, int] = field(default_factory=dict[int, int])
    _logged: bool = False

    def take(self, bar: Bar) -> None:
        """The next drawing of any of them."""
        if self._logged:
            self._votes[bar.total] = self._votes.get(bar.total, 0) + 1
            self._logged = False
        bars = self._by_total.get(bar.total)
        if bars is None and len(self._by_total) < TOTALS_LIMIT:
            bars = self._by_total[bar.total] = Bars(self.mean_rate)
        if bars is not None:
            bars.take(bar)

    def step_logged(self) -> None:
        """A line of a step was printed."""
        self._logged = True

    def of_training(self) -> Bars | None:
        """None where no bar is surely that of training: also where one that began anew may be an
        evaluation of as many steps."""
        if not self._votes:
            return None
        bars = self._by_total.get(max(self._votes, key=lambda total: self._votes[total]))
        return bars if bars is not None and bars.begun == 1 else None
