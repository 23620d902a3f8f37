"""What `stats --json` and `trend --json` print."""

from typing import NamedTuple

from compilediag.extensions.fleet.changes import LaneTrend, LevelChange, Mark, State
from compilediag.extensions.fleet.entry import BadFile
from compilediag.extensions.fleet.stats import LaneStats
from compilediag.json_document import Document


class FleetDocument(Document, frozen=True, kw_only=True):
    """Which receipts were read."""

    folder: str
    receipts: int
    not_counted: tuple[BadFile, ...]
    """Files that are no usable receipts."""
    notes: tuple[str, ...]
    files_read: int


class StatsDocument(FleetDocument, frozen=True, kw_only=True):
    """Each lane summed up."""

    lanes: tuple[LaneStats, ...]


class TrendEvent(NamedTuple):
    """Changes of one lane that began together."""

    lane: str
    first: Mark
    changes: tuple[LevelChange, ...]
    state: State


class TrendDocument(FleetDocument, frozen=True, kw_only=True):
    """Each lane over time, and the changes by the receipt in which they began."""

    lanes: tuple[LaneTrend, ...]
    events: tuple[TrendEvent, ...]
