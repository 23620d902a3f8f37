"""Tracks as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open, and torch's own
timeline, as tlparse wrote it, on the same clock.

Every process has a number of its own and every lane is a thread of it, numbered in the order in
which it is to be drawn. Times are microseconds since the first process attached. The events of
torch's timeline come from the program that ran: one that is malformed is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from compilediag.receipt.sanitize import sanitized
from compilediag.views.perfetto_tracks import ProcessTracks, Slice, Track, lanes_of
from compilediag_harness.redaction.redactor import Redactor

Event = dict[str, Any]

FOREIGN_KINDS = frozenset("BEXiIC")
"""Begin, end, whole, instant (two spellings) and counter: what torch writes."""


MAX_NAME_CHARS = 120
"""Of a slice, in characters."""

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def render_perfetto(
    processes: Sequence[ProcessTracks],
    origins_ns: Sequence[int],
    about: Mapping[str, Any],
    redactor: Redactor,
    foreign: Iterable[Event] = (),
) -> str:
    """The whole file, one event a line.

    Args:
        processes: what each process did.
        origins_ns: when each of them attached, on one common clock.
        about: facts of the run, shown by the viewer as metadata.
        redactor: takes secrets out of texts of the target.
        foreign: events of torch's own timeline, with times that fit ours.
    """
    own = (
        event
        for number, (process, origin_ns) in enumerate(zip(processes, origins_ns, strict=True))
        for event in _process(number, process, origin_ns, redactor)
    )
    lines = [_encode(event) for part in (own, foreign) for event in part]
    head = _encode({"displayTimeUnit": "ms", "otherData": dict(about)})
    return f'{head[:-1]},"traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"


def _process(
    number: int, process: ProcessTracks, origin_ns: int, redactor: Redactor
) -> Iterator[Event]:
    pid = number + 1
    name = redactor.text(process.name)
    yield _named("process_name", pid, 0, name)
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": number}}
    tid = 0
    for track in process.tracks:
        yield from _marks(track, pid, tid + 1, origin_ns, redactor)
        for index, lane in enumerate(lanes_of(track.slices) or [[]]):
            tid += 1
            label = track.name if index == 0 else f"{track.name} ({index + 1})"
            yield _named("thread_name", pid, tid, redactor.text(label))
            order = {"sort_index": tid}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": order}
            yield from _slices(lane, pid, tid, origin_ns, redactor)
    for reading in process.readings:
        name, at = redactor.text(reading.name), _micros(origin_ns + reading.at_ns)
        yield {
            "ph": "C",
            "name": name,
            "pid": pid,
            "tid": 0,
            "ts": at,
            "args": dict(reading.values),
        }


def _slices(
    lane: Iterable[Slice], pid: int, tid: int, origin_ns: int, redactor: Redactor
) -> Iterator[Event]:
    for item in lane:
        name = _name_and_args(item.name, item.args, redactor)
        yield {
            "ph": "X",
            **name,
            "cat": item.category,
            "pid": pid,
            "tid": tid,
            "ts": _micros(origin_ns + item.start_ns),
            "dur": _micros(item.end_ns - item.start_ns),
        }


def _marks(track: Track, pid: int, tid: int, origin_ns: int, redactor: Redactor) -> Iterator[Event]:
    """Moments stand on the first lane of their track."""
    for mark in track.marks:
        name = _name_and_args(mark.name, mark.args, redactor)
        at = _micros(origin_ns + mark.at_ns)
        where = {"pid": pid, "tid": tid, "ts": at}
        yield {"ph": "i", "s": "t", **name, "cat": mark.category, **where}


def _micros(nanoseconds: int) -> float:
    return nanoseconds / 1000


def _named(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _name_and_args(name: str, args: Mapping[str, Any], redactor: Redactor) -> Event:
    """Name and arguments; a name that is cut stands whole among the arguments."""
    whole, shown = redactor.text(name), sanitized(args, redactor)[0]
    if len(whole) <= MAX_NAME_CHARS:
        return {"name": whole, "args": shown}
    return {"name": f"{whole[: MAX_NAME_CHARS - 1]}…", "args": {**shown, "name": whole}}


# --- torch's own timeline ------------------------------------------------------------------------


class Foreign(NamedTuple):
    """Events that fit beside ours, and how many did not."""

    events: list[Event]
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
    found = [_foreign_event(item, pid, first_ns, redactor) for item in items]
    events = [event for event in found if event is not None]
    left_out = len(found) - len(events)
    if events:
        events.insert(0, {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
    return Foreign(events, left_out)


def _foreign_event(raw: object, pid: int, first_ns: int, redactor: Redactor) -> Event | None:
    if not isinstance(raw, dict):
        return None
    item = cast("dict[str, Any]", raw)
    kind, at = item.get("ph"), _number(item.get("ts"))
    if kind not in FOREIGN_KINDS or at is None:
        return None
    tid = item.get("tid")
    event: Event = {
        "ph": kind,
        "name": redactor.text(str(item.get("name", ""))),
        "cat": redactor.text(str(item.get("cat", ""))),
        "pid": pid,
        "tid": tid if type(tid) is int else 0,
        "ts": at - first_ns / 1000,
    }
    if kind == "X":
        event["dur"] = _number(item.get("dur"))
        if event["dur"] is None:
            return None
    if kind in "iI":
        event["s"] = "t"
    if isinstance(item.get("args"), dict):
        event["args"] = sanitized(item["args"], redactor)[0]
    return event


def _number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
