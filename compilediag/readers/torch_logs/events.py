"""TORCH_LOGS text converted to events, where it is the only record of a run.

A text log holds why torch compiled again and where graphs broke, and nothing else: no first
compile, no graph, no seconds. What it lacks is listed, and such a run is never called clean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from compilediag.readers.journal import Journal, with_loss, with_problem
from compilediag.readers.lines import plain_text, split_lines
from compilediag.readers.storage import open_stream
from compilediag.readers.torch_logs.counts import LIMIT, LINE_LIMIT, PREFIX, RECOMPILING
from compilediag_harness.wire import (
    WIRE_VERSION,
    Compiled,
    Event,
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
_RECOMPILED = re.compile(r"Recompiling function (.{1,4096}) in (.{1,4096}):(\d{1,9})\s{0,4}$")


def read_text_events(path: str) -> tuple[Journal, ...]:
    """The processes that wrote into the text log at `path`."""
    stream = open_stream(path)
    found = events_of_text(stream.chunks(), os.path.basename(path))
    return with_problem(found, "text_log", stream.problem)


def events_of_text(chunks: Iterable[bytes], name: str) -> tuple[Journal, ...]:
    """The same for a log's bytes. Processes that share one log are distinguished by rank and id."""
    processes: dict[tuple[str | None, str], _Process] = {}
    torn = False
    for line in split_lines(chunks, LINE_LIMIT, carriage_returns=True):
        torn = not line.ended
        text = plain_text(line.raw)
        prefix = PREFIX.search(text)
        if prefix is None:
            continue
        key = (prefix["rank"], prefix["pid"])
        if key in processes or len(processes) < MESSAGES_KEPT:
            processes.setdefault(key, _Process(*key)).take(prefix, text[prefix.end() :])
    if not processes:
        return (Journal(name, _Process(None, "0").opening(), torn, {"empty": 1}),)
    first, *others = (process.finished(name) for process in processes.values())
    return (replace(first, torn_tail=torn), *others)


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
    _rows: dict[str, int] = field(default_factory=dict[str, int])
    """Compile ids recompiled in this epoch, with the index of their row among the events."""

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
        journal = Journal(name, (*self.opening(), *self.events))
        if not self.lost:
            return journal
        journal = replace(journal, lost={"over_limit": self.lost})
        return with_loss(journal, "text_log", f"{self.lost} messages over the limit")

    def _end(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        if len(self.events) >= 2 * MESSAGES_KEPT:
            self.lost += 1
        elif found := _RECOMPILED.match(lines[0]):
            frame = Location(found[2], int(found[3]), found[1])
            self._recompile(frame, _reasons(lines[1:]))
        elif _BREAK.match(lines[0]):
            text = "\n".join(lines)
            t = float(len(self.events))
            self.events.append(
                GraphBroke(t, 0, self._id, self.epoch, clip(text), _REPEATED in lines[0])
            )

    def _recompile(self, frame: Location, reasons: tuple[str, ...]) -> None:
        """torch was about to compile; that it did is assumed unless a limit is reported as hit."""
        if self._id in self._rows:
            self.epoch += 1
            self._rows.clear()
        t = float(len(self.events))
        self.events.append(Recompiled(t, 0, self._id, self.epoch, frame, reasons, (), 0.0))
        self._rows[self._id] = len(self.events)
        self.events.append(_row(t, self._id, self.epoch, frame, reasons))

    def _limit(self, text: str) -> None:
        self.events.append(
            WarningSeen(float(len(self.events)), 0, self._id, "torch._dynamo", clip(text, 4096))
        )
        index = self._rows.get(self._id)
        row = None if index is None else self.events[index]
        if index is not None and isinstance(row, Compiled):
            self.events[index] = replace(
                row, guarded=False, fail_type="RecompileLimit", fail_reason=text
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
    t: float, compile_id: str, epoch: int, frame: Location, reasons: tuple[str, ...]
) -> Compiled:
    return Compiled(
        t=t,
        step=0,
        compile_id=compile_id,
        epoch=epoch,
        frame=frame,
        forward=True,
        guarded=True,
        seconds=0.0,
        backend_s=None,
        graph_ops=None,
        guards=None,
        cache_size=None,
        recompile_reason=reasons[0] if reasons else None,
        fail_type=None,
        fail_reason=None,
    )
