"""TORCH_LOGS text made into events, where it is the only record of a run.

A text log tells why torch compiled again and where graphs broke, and nothing else: no first
compile, no graph, no seconds. What it does not tell is said, and such a run is never called clean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from compilediag.readers.compression import Opened
from compilediag.readers.journal import Journal
from compilediag.readers.torch_logs.counts import ANSI, LIMIT, PREFIX, RECOMPILING, text_lines
from compilediag_harness.wire import (
    WIRE_VERSION,
    Compiled,
    Event,
    EvidenceLost,
    GraphBroke,
    Location,
    ProcessStarted,
    Recompiled,
    TorchSeen,
    WarningSeen,
    clip,
)

MESSAGES_KEPT = 20_000
"""Most recompiles and breaks kept of one log; later ones are counted as lost."""

MESSAGE_LINES = 400
"""Most lines kept of one message."""

HOOKS = {"metrics_rows": False, "recompile_reasons": True, "steps": False, "guards": False}

NOT_IN_A_LOG = {
    "metrics_rows": "a text log tells recompiles and graph breaks: compiles, frames and graphs "
    "without one, and seconds, are not in it",
    "guards": "a text log holds the first false guard of each cache entry, and no other",
    "steps": "a text log does not tell steps: nothing can be said per step",
}
"""What cannot be observed in a text log, by hook."""

_CAUSE = re.compile(r"\s{0,16}(?:- ){1,2}(?=!?\d{1,9}/)")
_BREAK = re.compile(r"Graph break\b")
_REPEATED = "user stack suppressed due to duplicate graph break"
_PLACE = re.compile(r"Recompiling function (.{1,4096}) in (.{1,4096}):(\d{1,9})\s{0,4}$")


def read_text_events(path: str) -> tuple[Journal, ...]:
    """The processes that wrote into the text log at `path`."""
    opened = Opened(path)
    found = events_of_text(opened.pieces(), os.path.basename(path))
    if opened.problem is None:
        return found
    lost = EvidenceLost(0.0, 0, "text_log", f"{os.path.basename(path)}: {opened.problem}")
    return (Journal(found[0].name, (*found[0].events, lost), True, found[0].lost), *found[1:])


def events_of_text(pieces: Iterable[bytes], name: str) -> tuple[Journal, ...]:
    """The same of a log's bytes. Processes share one log: they are told apart by rank and id."""
    processes: dict[tuple[str | None, str], _Process] = {}
    torn = False
    for raw, ended in text_lines(pieces):
        torn = not ended
        line = ANSI.sub("", raw.decode("utf-8", "replace"))
        prefix = PREFIX.search(line)
        if prefix is None:
            continue
        key = (prefix["rank"], prefix["pid"])
        if key not in processes:
            if len(processes) >= MESSAGES_KEPT:
                continue
            processes[key] = _Process(key[0], key[1])
        processes[key].take(prefix, line[prefix.end() :])
    made = [process.finished(name) for process in processes.values()]
    if not made:
        return (Journal(name, _Process(None, "0").opening(), torn, {"empty": 1}),)
    return (Journal(name, made[0].events, torn, made[0].lost), *made[1:])


@dataclass(slots=True)
class _Process:
    """One process's messages, in order; a message is the lines that share a prefix."""

    rank: str | None
    pid: str
    events: list[Event] = field(default_factory=list[Event])
    epoch: int = 0
    lost: int = 0
    _key: str = ""
    _id: str = ""
    _lines: list[str] = field(default_factory=list[str])
    _asked: dict[str, int] = field(default_factory=dict[str, int])
    """Compile ids of this epoch that were asked about, with the place of their row."""

    def take(self, prefix: re.Match[str], text: str) -> None:
        """One line of the log."""
        tag = prefix["tag"] or ""
        begins = RECOMPILING.match(text) or (tag == "__graph_breaks" and _BREAK.match(text))
        if prefix["key"] != self._key or begins:
            self._end()
            self._key, self._id = prefix["key"], (prefix["id"] or "").partition("_")[0]
        if tag.startswith("__recompiles") or tag == "__graph_breaks":
            if len(self._lines) < MESSAGE_LINES:
                self._lines.append(text)
        elif not tag and LIMIT.match(text):
            self._limit(text)

    def opening(self) -> tuple[Event, ...]:
        """What can be said of the process itself."""
        pid = int(self.pid) if len(self.pid) < 16 else 0
        rank = None if self.rank is None else int(self.rank)
        return (
            ProcessStarted(0.0, WIRE_VERSION, pid, 0, rank, None, (), "", "", "", ""),
            TorchSeen(0.0, "", None, dict(HOOKS), dict(NOT_IN_A_LOG)),
        )

    def finished(self, name: str) -> Journal:
        """All events of the process."""
        self._end()
        lost = {"over_limit": self.lost} if self.lost else {}
        told = [EvidenceLost(0.0, 0, "text_log", f"{name}: {self.lost} messages over the limit")]
        return Journal(name, (*self.opening(), *self.events, *told[: len(lost)]), lost=lost)

    def _end(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        if len(self.events) >= 2 * MESSAGES_KEPT:
            self.lost += 1
        elif place := _PLACE.match(lines[0]):
            frame = Location(place[2], int(place[3]), place[1])
            self._recompile(frame, _reasons(lines[1:]))
        elif _BREAK.match(lines[0]):
            text = "\n".join(lines)
            t = float(len(self.events))
            self.events.append(
                GraphBroke(t, 0, self._id, self.epoch, clip(text), _REPEATED in lines[0])
            )

    def _recompile(self, frame: Location, reasons: tuple[str, ...]) -> None:
        """torch asked; that it compiled is taken for granted unless it says that a limit is hit."""
        if self._id in self._asked:
            self.epoch += 1
            self._asked.clear()
        t = float(len(self.events))
        self.events.append(Recompiled(t, 0, self._id, self.epoch, frame, reasons, (), 0.0))
        self._asked[self._id] = len(self.events)
        self.events.append(_row(t, self._id, self.epoch, frame, reasons))

    def _limit(self, text: str) -> None:
        self.events.append(
            WarningSeen(float(len(self.events)), 0, self._id, "torch._dynamo", clip(text, 4096))
        )
        place = self._asked.get(self._id)
        row = self.events[place] if place is not None else None
        if place is not None and isinstance(row, Compiled):
            reasons = (row.recompile_reason,) if row.recompile_reason else ()
            self.events[place] = _row(
                row.t, row.compile_id, row.epoch, row.frame, reasons, limit=text
            )


def _reasons(lines: Iterable[str]) -> tuple[str, ...]:
    """The printed reasons: each line with a compile id begins one, other lines are its stack."""
    found: list[str] = []
    for line in lines:
        cause = _CAUSE.match(line)
        if cause is not None:
            found.append(line[cause.end() :])
        elif found and line.lstrip().startswith("- "):
            found[-1] += "\n" + line.lstrip().removeprefix("- ")
    return tuple(clip(text, 4096) for text in found[:8])


def _row(
    t: float,
    compile_id: str,
    epoch: int,
    frame: Location,
    reasons: tuple[str, ...],
    limit: str | None = None,
) -> Compiled:
    return Compiled(
        t=t,
        step=0,
        compile_id=compile_id,
        epoch=epoch,
        frame=frame,
        forward=True,
        guarded=limit is None,
        seconds=0.0,
        backend_s=None,
        graph_ops=None,
        guards=None,
        cache_size=None,
        recompile_reason=reasons[0] if reasons else None,
        fail_type=None if limit is None else "RecompileLimit",
        fail_reason=limit,
    )
