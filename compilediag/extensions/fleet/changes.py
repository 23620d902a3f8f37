"""The results of a trend as values: series of measures, and their lasting steps with receipts."""

from __future__ import annotations

from typing import Literal, NamedTuple

from compilediag.extensions.fleet.entry import ConfigurationKey, Entry
from compilediag.extensions.fleet.measures import BY_NAME

State = Literal["worse", "beginning", "better", "undone"]
STATES: tuple[State, ...] = ("worse", "beginning", "better", "undone")
"""Got worse and still is; the newest receipts are worse, too few to say that it lasts; got better;
a later change took it back."""


class Mark(NamedTuple):
    """A receipt by which a change is described: these fields of its entry."""

    path: str
    receipt_id: str
    created: str
    created_s: float
    commit: str | None
    branch: str | None
    dirty: bool | None
    message: str | None


class FactChange(NamedTuple):
    """Something else that is not the same on both sides of a change."""

    name: str
    before: str | None
    after: str | None


class LevelChange(NamedTuple):
    """A measure stepped to another level."""

    measure: str
    machine: str | None
    """The machine of its receipts; None for what does not depend on the machine."""
    before: float
    after: float
    worse: bool
    lasting: bool
    """False for the last few receipts, too few to say that they stay at the new level."""
    first: Mark
    """The receipt that is most likely the first one at the new level."""
    earliest: Mark
    latest: Mark
    """One of the receipts from here to there is the first, with 95 % confidence."""
    last_before: Mark
    """The receipt before `earliest`."""
    candidates: int
    """Receipts from `earliest` to `latest`."""
    receipts: int
    """How many are at the new level."""
    undone: Mark | None
    """The first receipt of a later level that is as good (or as bad) as the one before."""
    chance: float | None
    """Bound on the probability of such a step where nothing changed; None for exact counts."""
    also: tuple[FactChange, ...]
    """What else changed between `last_before` and `latest`."""

    @property
    def ratio(self) -> float | None:
        """The new level as a multiple of the one before; None from zero."""
        return self.after / self.before if self.before else None

    @property
    def same_commit(self) -> bool:
        """True if the code is known to be the same on both sides: then it is not the cause."""
        left, right = self.last_before, self.latest
        clean = left.dirty is False and right.dirty is False
        return clean and left.commit is not None and left.commit == right.commit


class Series(NamedTuple):
    """One measure of a configuration over time."""

    measure: str
    machine: str | None
    receipts: int
    level: float | None
    """The level since the last lasting step."""
    noise: float | None
    """Half of the receipts are within this share of the level."""
    points: tuple[float, ...]
    """The series in short: medians of equal numbers of receipts."""
    changes: tuple[LevelChange, ...]
    enough: bool
    """Whether there are receipts enough for a step to be seen."""


class Trend(NamedTuple):
    """One configuration over time."""

    lane: ConfigurationKey
    label: str
    receipts: int
    """Receipts that are followed."""
    first: str
    last: str
    older: int
    """Receipts before those, beyond the limit."""
    left_out: dict[str, int]
    """Receipts that are not followed, by the reason."""
    needed: int
    """Receipts that a noisy series needs for a step to be seen at all."""
    series: tuple[Series, ...]

    @property
    def machines(self) -> int:
        """The number of machines on which its timings were taken."""
        return len({series.machine for series in self.series if series.machine is not None})


class ChangeEvent(NamedTuple):
    """Changes of one configuration that began together."""

    trend: Trend
    first: Mark
    changes: tuple[LevelChange, ...]
    """In the order of measures."""

    @property
    def surest(self) -> LevelChange:
        """The change whose beginning is known best."""
        return min(self.changes, key=lambda change: change.candidates)

    @property
    def state(self) -> State:
        """The state in which it is today."""
        standing = [change for change in self.changes if change.undone is None]
        if any(change.worse and change.lasting for change in standing):
            return "worse"
        if any(change.worse for change in standing):
            return "beginning"
        return "better" if standing else "undone"


def make_mark(entry: Entry) -> Mark:
    """Make the mark of an entry that has a time."""
    return Mark(*(getattr(entry, name) for name in Mark._fields))


def group_changes(trend: Trend) -> tuple[ChangeEvent, ...]:
    """Group the changes of a configuration that may have begun with the same receipt.

    The change whose beginning is known best determines the receipt; others join it where that is
    within the range in which they may have begun.
    """
    changes = [change for series in trend.series for change in series.changes]
    groups: list[list[LevelChange]] = []
    for change in sorted(changes, key=lambda change: (change.candidates, -change.first.created_s)):
        since, until = change.earliest.created_s, change.latest.created_s
        fitting = (group for group in groups if since <= group[0].first.created_s <= until)
        group = next(fitting, None)
        if group is None:
            groups.append(group := [])
        group.append(change)
    order = list(BY_NAME)
    events = [
        ChangeEvent(
            trend,
            group[0].first,
            tuple(sorted(group, key=lambda change: order.index(change.measure))),
        )
        for group in groups
    ]
    return tuple(sorted(events, key=get_event_order))


def get_event_order(event: ChangeEvent) -> tuple[int, float]:
    """Get the key that sorts events: the worst state first, of one state the newest."""
    return STATES.index(event.state), -event.first.created_s
