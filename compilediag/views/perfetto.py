"""Tracks as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

Every process has a number of its own and every lane is a thread of it, numbered in the order in
which it is to be drawn. Times are microseconds since the first process attached.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from compilediag.receipt.redact import Redactor
from compilediag.receipt.sanitize import sanitized
from compilediag.views.perfetto_lanes import Slice, lanes_of
from compilediag.views.perfetto_tracks import ProcessTracks, Track

Event = dict[str, Any]

LONGEST_NAME = 120
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
    name = redactor.text(process.name, is_name=True)
    yield _named("process_name", pid, 0, name)
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": number}}
    tid = 0
    for track in process.tracks:
        yield from _marks(track, pid, tid + 1, origin_ns, redactor)
        for place, lane in enumerate(lanes_of(track.slices) or [[]]):
            tid += 1
            label = track.name if place == 0 else f"{track.name} ({place + 1})"
            yield _named("thread_name", pid, tid, redactor.text(label))
            order = {"sort_index": tid}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": order}
            yield from _slices(lane, pid, tid, origin_ns, redactor)
    for reading in process.readings:
        yield {
            "ph": "C",
            "name": redactor.text(reading.name),
            "pid": pid,
            "tid": 0,
            "ts": (origin_ns + reading.at_ns) / 1000,
            "args": dict(reading.values),
        }


def _slices(
    lane: Iterable[Slice], pid: int, tid: int, origin_ns: int, redactor: Redactor
) -> Iterator[Event]:
    for item in lane:
        yield {
            "ph": "X",
            **_told(item.name, item.args, redactor),
            "cat": item.category,
            "pid": pid,
            "tid": tid,
            "ts": (origin_ns + item.start_ns) / 1000,
            "dur": (item.end_ns - item.start_ns) / 1000,
        }


def _marks(track: Track, pid: int, tid: int, origin_ns: int, redactor: Redactor) -> Iterator[Event]:
    """Moments stand on the first lane of their track."""
    for mark in track.marks:
        yield {
            "ph": "i",
            "s": "t",
            **_told(mark.name, mark.args, redactor),
            "cat": mark.category,
            "pid": pid,
            "tid": tid,
            "ts": (origin_ns + mark.at_ns) / 1000,
        }


def _named(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _told(name: str, args: Mapping[str, Any], redactor: Redactor) -> Event:
    """Name and arguments; a name that is cut stands whole among the arguments."""
    whole, shown = redactor.text(name), sanitized(args, redactor)[0]
    if len(whole) <= LONGEST_NAME:
        return {"name": whole, "args": shown}
    return {"name": f"{whole[: LONGEST_NAME - 1]}…", "args": {**shown, "name": whole}}
