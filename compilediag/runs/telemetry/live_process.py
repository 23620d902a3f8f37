"""One process of a run that goes on: its events added up, in memory that does not grow with steps.

Steps and spans are kept until their time can be settled (`goodput.settle`); after that the account
of the time goes on from there and is the same as that of all events.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from compilediag.diagnosis.figures.goodput import (
    MAIN_THREAD,
    PRODUCTIVE,
    Account,
    Settled,
    account,
    settle,
)
from compilediag.timeline.process import unbatch
from compilediag.timeline.timeline import Compile, Step, Timeline
from compilediag_harness.wire import (
    Compiled,
    Event,
    GraphBroke,
    ProcessEnded,
    ProcessStarted,
    Recompiled,
    RunTracked,
    SpanEnded,
    StepsEnded,
    TorchSeen,
)

STEPS_KEPT = 10_000
"""Newest steps whose time is not settled yet: a span may end late and cover many of them."""

MOST_UNSETTLED = 100_000
"""Steps and spans that are kept when they cannot be settled; beyond, the account is given up."""

_NS = 1_000_000_000


@dataclass(slots=True)
class LiveProcess:
    """The events of one process, as far as they were read."""

    name: str
    """Of its journal."""
    events: list[Event] = field(default_factory=list[Event])
    """Those that `fold` makes compiles of, and the process's start and end."""
    steps: list[Step] = field(default_factory=list[Step])
    newest: Step | None = None
    spans: list[SpanEnded] = field(default_factory=list[SpanEnded])
    settled: Settled | None = None
    ended_steps: int = 0
    newest_s: float = 0.0
    newest_steps: int = 0
    """Sum and number of the steps that ended since `rest_told`."""
    tracked: RunTracked | None = None
    """What a `tracker()` of the program told last."""
    lost_track: bool = False
    """A span or a compile reached back into settled time: the account cannot be told any more."""

    def take(self, events: Iterable[Event]) -> None:
        """Adds what the journal told since the last time."""
        for event in unbatch(events):
            match event:
                case StepsEnded():
                    self._take_steps(event)
                case SpanEnded():
                    self._take_span(event)
                case RunTracked():
                    self.tracked = event
                case Recompiled():
                    self.events.append(replace(event, entries=()))
                case Compiled() | GraphBroke() | ProcessStarted() | ProcessEnded() | TorchSeen():
                    self.events.append(event)
                case _:
                    pass
        if len(self.steps) + len(self.spans) > MOST_UNSETTLED:
            self.give_up()

    def _take_steps(self, batch: StepsEnded) -> None:
        walls = batch.every_wall()
        for offset, (end, wall_s) in enumerate(zip(batch.ends, walls, strict=False)):
            waited = batch.data_wait[offset] if offset < len(batch.data_wait) else None
            step = Step(0, batch.first + offset, end, wall_s, waited, None, None, 0.0)
            self.ended_steps += 1
            self.newest_s += wall_s
            self.newest_steps += 1
            self.newest = step
            if not self.lost_track:
                self.steps.append(step)

    def _take_span(self, span: SpanEnded) -> None:
        if span.thread != MAIN_THREAD or span.name in PRODUCTIVE or self.lost_track:
            return
        if self.settled is not None and round(span.start * _NS) < self.settled.until_ns:
            self.give_up()
        else:
            self.spans.append(span)

    def give_up(self) -> None:
        """The account is not told from now on: rather none than a wrong one."""
        self.lost_track = True
        self.steps, self.spans, self.settled = [], [], None

    def rest_told(self) -> float | None:
        """Mean seconds of the steps since this was asked the last time; None where none ended."""
        mean = self.newest_s / self.newest_steps if self.newest_steps else None
        self.newest_s, self.newest_steps = 0.0, 0
        return mean

    def account(self, folded: Timeline, wall_s: float | None, *, orderly: bool) -> Account | None:
        """Where the time went; None where that is not known.

        Args:
            folded: `events` of this process alone, folded.
            wall_s: the parent's measure, once the run has ended.
            orderly: as in `compilediag.diagnosis.figures.goodput.account`.
        """
        if self._reaches_back(folded.compiles):
            self.give_up()
        if self.lost_track:
            return None
        self._settle_old(folded)
        timeline = replace(folded, steps=tuple(self.steps), spans=tuple(self.spans))
        return account(timeline, wall_s, orderly=orderly, settled=self.settled)

    def _reaches_back(self, compiles: Iterable[Compile]) -> bool:
        """A compile ended after the settled time and began in it."""
        if self.settled is None:
            return False
        until = self.settled.until_ns
        return any(round(_begin_s(item) * _NS) < until < round(item.t * _NS) for item in compiles)

    def _settle_old(self, folded: Timeline) -> None:
        """Settles the time of the older half, when there are twice as many steps as are kept."""
        if len(self.steps) < 2 * STEPS_KEPT:
            return
        cut = self.steps[len(self.steps) - STEPS_KEPT - 1].end
        cut_ns, place = round(cut * _NS), bisect_right(self.steps, cut, key=lambda step: step.end)
        old = [span for span in self.spans if _end_ns(span) <= cut_ns]
        young = [span for span in self.spans if _end_ns(span) > cut_ns]
        compiles = [item for item in folded.compiles if round(item.t * _NS) <= cut_ns]
        later = [round(_begin_s(item) * _NS) for item in folded.compiles[len(compiles) :]]
        if min([round(span.start * _NS) for span in young] + later, default=cut_ns) < cut_ns:
            return  # not here: the next reading cuts elsewhere
        before = Timeline(
            processes=tuple(replace(item, ended=None) for item in folded.processes),
            compiles=tuple(compiles),
            steps=tuple(self.steps[:place]),
            spans=tuple(old),
        )
        done = settle(before, cut_ns, self.settled)
        if done is not None:
            self.settled, self.spans = done, young
            del self.steps[:place]


def _end_ns(span: SpanEnded) -> int:
    return round((span.start + span.wall_s) * _NS)


def _begin_s(item: Compile) -> float:
    analysis_s = item.recompile.analysis_s if item.recompile is not None else 0.0
    return item.t - item.seconds - analysis_s
