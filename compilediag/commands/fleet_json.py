"""`stats --json` and `trend --json`: everything that was found, by the names of its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from compilediag.fleet.changes import LaneTrend, events_of
from compilediag.fleet.folder import Fleet
from compilediag.fleet.stats import LaneStats


def stats_as_json(lanes: Sequence[LaneStats], fleet: Fleet) -> str:
    """The figures of each lane, and the files that are no receipts."""
    return _text({"lanes": [_plain(lane) for lane in lanes], **_about(fleet)})


def trend_as_json(lanes: Sequence[LaneTrend], fleet: Fleet) -> str:
    """Every series with its changes, and the changes by the receipt in which they began."""
    events = [
        {**_plain(event._replace(lane=lane.label)), "state": event.state}
        for lane in lanes
        for event in events_of(lane)
    ]
    return _text({"lanes": [_plain(lane) for lane in lanes], "events": events, **_about(fleet)})


def _about(fleet: Fleet) -> dict[str, Any]:
    return {
        "folder": fleet.root,
        "receipts": len(fleet.entries),
        "not_counted": [_plain(problem) for problem in fleet.problems],
        "notes": list(fleet.notes),
        "files_read": fleet.files_read,
    }


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """A value, recursively: named tuples as objects."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, tuple):
        names = getattr(cast(object, value), "_fields", None)
        items = [_plain(item) for item in cast(tuple[Any, ...], value)]
        return items if names is None else dict(zip(names, items, strict=True))
    return value
