"""Receipts by lane, and a label for each lane that distinguishes it from the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from compilediag.extensions.fleet.entry import Entry, Lane
from compilediag.extensions.fleet.measures import THROUGHPUTS

NO_PRESET = "(no preset)"


class Choice(NamedTuple):
    """Which receipts are wanted; an empty choice is all of them."""

    lanes: tuple[str, ...] = ()
    """Names of lanes, or patterns such as "gpt-*"."""
    presets: tuple[str, ...] = ()
    since_s: float | None = None
    until_s: float | None = None

    def wants(self, lane: str, created_s: float | None) -> bool:
        """Whether a receipt of this lane and time may be one of them."""
        if self.lanes and not _fits(lane, self.lanes):
            return False
        if self.since_s is None and self.until_s is None:
            return True
        if created_s is None:
            return False
        after = self.since_s is None or created_s >= self.since_s
        return after and (self.until_s is None or created_s < self.until_s)

    def of(self, entries: Iterable[Entry]) -> tuple[Entry, ...]:
        """The wanted receipts, in their order."""
        return tuple(
            entry
            for entry in entries
            if self.wants(entry.lane.name, entry.created_s)
            and (not self.presets or _fits(entry.lane.preset or "", self.presets))
        )


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def as_presets(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The receipts with all lanes of one preset taken as one lane."""
    return tuple(
        entry._replace(lane=Lane(entry.lane.preset or NO_PRESET, None, None, ()))
        for entry in entries
    )


def by_lane(entries: Iterable[Entry]) -> dict[Lane, list[Entry]]:
    """The receipts of each lane, in their order; lanes in the order of their names."""
    found: dict[Lane, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.lane, []).append(entry)
    return {lane: found[lane] for lane in sorted(found, key=_order)}


def _order(lane: Lane) -> tuple[str, str, str, tuple[tuple[str, str], ...]]:
    return lane.name, lane.preset or "", lane.precision or "", lane.flags


def labels_of(lanes: Iterable[Lane]) -> dict[Lane, str]:
    """A text for each lane: name, preset, precision, and the flags in which lanes of the same three
    differ."""
    alike: dict[tuple[str | None, ...], list[Lane]] = {}
    for lane in lanes:
        alike.setdefault(lane[:3], []).append(lane)
    return {
        lane: " ".join([*filter(None, common), *_distinct_flags(lane, group)])
        for common, group in alike.items()
        for lane in group
    }


def _distinct_flags(lane: Lane, group: Sequence[Lane]) -> list[str]:
    """The flags of a lane that not all of the group have, or not with this value."""
    flags = [dict(other.flags) for other in group]
    names = dict.fromkeys(name for other in flags for name in other)
    own = dict(lane.flags)
    return [
        f"{name.rpartition('.')[2]}={own.get(name, 'unknown').strip(chr(34))}"
        for name in names
        if len({other.get(name) for other in flags}) > 1
    ]


def throughput_of(values: Sequence[Mapping[str, float]]) -> str | None:
    """The measure that is the throughput of these receipts: the best one that at least half of the
    receipts with any throughput have; None where none has any."""
    having = [item for item in values if any(name in item for name in THROUGHPUTS)]
    for name in THROUGHPUTS:
        if having and 2 * sum(name in item for item in having) >= len(having):
            return name
    return None
