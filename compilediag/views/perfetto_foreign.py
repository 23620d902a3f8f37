"""torch's own timeline, as tlparse wrote it, put on the clock of a run.

What the file holds was written by the program that ran, so an event that is none is left out, and
process numbers are given anew.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

from compilediag.receipt.redact import Redactor
from compilediag.receipt.sanitize import sanitized

KINDS = frozenset("BEXiIC")
"""Begin, end, whole, instant (two spellings) and counter: what torch writes."""


class Foreign(NamedTuple):
    """Events that fit beside ours, and how many did not."""

    events: list[dict[str, Any]]
    left_out: int


def foreign_events(raw: object, pid: int, name: str, first_ns: int, redactor: Redactor) -> Foreign:
    """The events of one file.

    Args:
        raw: the decoded file: a list of events with times in microseconds since the epoch.
        pid: the number of the process that they are to stand under.
        name: the name of that process.
        first_ns: nanoseconds since the epoch at which the run's own timeline begins.
        redactor: takes secrets out of names and arguments.
    """
    items = cast("list[object]", raw) if isinstance(raw, list) else []
    found = [_event(item, pid, first_ns, redactor) for item in items]
    events = [event for event in found if event is not None]
    left_out = len(found) - len(events)
    if events:
        events.insert(0, {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
    return Foreign(events, left_out)


def _event(raw: object, pid: int, first_ns: int, redactor: Redactor) -> dict[str, Any] | None:
    if not isinstance(raw, dict):
        return None
    item = cast("dict[str, Any]", raw)
    kind, at = item.get("ph"), _number(item.get("ts"))
    if kind not in KINDS or at is None:
        return None
    event: dict[str, Any] = {
        "ph": kind,
        "name": redactor.text(str(item.get("name", ""))),
        "cat": redactor.text(str(item.get("cat", ""))),
        "pid": pid,
        "tid": _thread(item.get("tid")),
        "ts": at - first_ns / 1000,
    }
    if kind == "X":
        length = _number(item.get("dur"))
        if length is None:
            return None
        event["dur"] = length
    if kind in "iI":
        event["s"] = "t"
    if isinstance(item.get("args"), dict):
        event["args"] = sanitized(item["args"], redactor)[0]
    return event


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def _thread(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
