"""TORCH_LOGS text: counted as a second opinion, and made events where it is the only record.

What it holds is why torch compiled again and where graphs broke: no first compile, no graph, no
seconds. What it lacks is listed, and a run of which nothing else is there is never called clean.
Any bytes are accepted; what looks like a recompile or a break and is not understood is counted as
unknown, never skipped: torch's wording changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from compilediag.readers.journal import ProcessJournal, add_loss, read_processes
from compilediag.readers.lines import decode_plain_text, split_lines
from compilediag.timeline.compiles import LIMIT_WARNING, make_unmeasured
from compilediag.timeline.frames import parse_break_place
from compilediag.timeline.timeline import TextLog
from compilediag_harness import wire

LINE_LIMIT = 65_536
"""Longest line read, in bytes; the rest of a longer one is dropped."""

PROFILE_LIMIT = 64

# [rank0]:V1120 17:12:26.334000 8288 torch/_dynamo/guards.py:5396] [0/1] [__recompiles] text
PREFIX = re.compile(
    r"(?P<key>(?:\[rank(?P<rank>\d{1,9})\]:)?[VDIWECF]\d{4} "
    r"\d\d:\d\d:\d\d\.\d{1,9} (?P<pid>\d{1,20}) "
    r"[^\]\n]{1,4096}:\d{1,9}\](?: \[(?P<id>!?[\d/_]{1,64})\])?(?: \[(?P<tag>__\w{1,64})\])?) ?"
)
_RECOMPILING = re.compile(r"Recompiling function (.{1,4096}) in (.{1,4096}):(\d{1,9})\s{0,4}$")
_BREAK = re.compile(r"Graph break\b")
_NO_BREAK = re.compile(r"WON'T CONVERT ")
"""An error of the backend; its graph break follows as a message of its own."""
_PROFILE = re.compile(r"get_code_state .{0,4096} hit (?:local|remote)\b")
_LEFT_OUT = re.compile(re.escape(wire.LINES_LEFT_OUT).replace(r"\{\}", r"(\d{1,9})") + "$")
_LOOKS_LIKE_OURS = re.compile(
    r"Recompiling function |Graph [Bb]reak (?:\(user stack|in user code)"
    r"|torch\._dynamo hit config\."
)

MAX_MESSAGES = 20_000
"""Most recompiles and breaks stored of one log; later ones are counted as lost."""

MESSAGE_LINES = 400

HOOKS = {"metrics_rows": False, "recompile_reasons": True, "steps": False, "guards": False}

NOT_IN_A_LOG = {
    "metrics_rows": "a text log tells recompiles and graph breaks: compiles, frames and graphs "
    "without one, and seconds, are not in it",
    "guards": "a text log holds the first false guard of each cache entry, and no other",
    "steps": "a text log does not tell steps: nothing can be said per step",
}
"""What cannot be observed in a text log, by hook."""

_CAUSE = re.compile(r"\s{0,16}(?:- ){1,2}(?=!?\d{1,9}/)")
_REPEATED = "user stack suppressed due to duplicate graph break"


def read_text_events(path: str) -> tuple[ProcessJournal, ...]:
    """Read the processes that wrote into the text log at `path`."""
    return read_processes(path, "text_log", parse_text_events)


def read_text_log(chunks: Iterable[bytes]) -> TextLog:
    """Count recompiles, limit warnings and break sites in the bytes of a text log. Never raises for
    what they hold: bad UTF-8 is replaced, escapes are removed, a torn last line sets `torn`. Lines
    without torch's prefix are the program's own and are ignored; those that look like torch's
    words, and whatever else is not understood, are counted in `unknown_lines`."""
    return _read_log(chunks)[0]


def parse_text_events(chunks: Iterable[bytes], name: str) -> tuple[ProcessJournal, ...]:
    """Parse a log's bytes to its processes, which are distinguished by rank and process id."""
    log, processes = _read_log(chunks)
    if not processes:
        events = _Process(None, "0", log).make_opening_events()
        return (ProcessJournal(name, events, log.torn, {"empty": 1}),)
    first, *others = (process.make_journal(name) for process in processes)
    return (replace(first, torn_tail=log.torn), *others)


def _read_log(chunks: Iterable[bytes]) -> tuple[TextLog, list[_Process]]:
    """Read the messages of each process that wrote into a log, and their counts."""
    log = TextLog()
    processes: dict[tuple[str | None, str], _Process] = {}
    for line in split_lines(chunks, LINE_LIMIT, carriage_returns=True):
        log.torn = not line.ended
        text = decode_plain_text(line.raw)
        prefix = PREFIX.search(text)
        if prefix is None:
            log.unknown_lines += _LOOKS_LIKE_OURS.search(text) is not None
            continue
        log.log_lines += 1
        key = (prefix["rank"], prefix["pid"])
        if key in processes or len(processes) < MAX_MESSAGES:
            process = processes.setdefault(key, _Process(*key, log))
            process.take(prefix, text[prefix.end() :])
    for process in processes.values():
        process.end_message()
    return log, [*processes.values()]


@dataclass(slots=True)
class _Process:
    """One process's messages, in order; a message is the lines that share a prefix."""

    rank: str | None
    pid: str
    log: TextLog
    """The counts of all processes."""
    events: list[wire.Event] = field(default_factory=list[wire.Event])
    epoch: int = 0
    lost: int = 0
    _key: str = ""
    _id: str = ""
    _lines: list[str] = field(default_factory=list[str])
    _rows: dict[str, int] = field(default_factory=dict[str, int])
    """Compile ids recompiled in this epoch, with the index of their row among the events."""

    def take(self, prefix: re.Match[str], text: str) -> None:
        """Take one line of the log."""
        tag, compile_id = prefix["tag"], (prefix["id"] or "").partition("_")[0]
        if left_out := _LEFT_OUT.match(text):
            self.log.lines_left_out += int(left_out[1])
        elif text == wire.LOG_OVER_LIMIT:
            self.log.over_limit = True
        elif tag is None:
            if LIMIT_WARNING.match(text):
                self.log.limit_warnings += 1
                self._add_limit(compile_id, text)
            elif _PROFILE.match(text) and len(self.log.profile_uses) < PROFILE_LIMIT:
                self.log.profile_uses += (text[:512],)
        elif tag == "__graph_breaks" or tag.startswith("__recompiles"):
            begins = (_BREAK if tag == "__graph_breaks" else _RECOMPILING).match(text)
            if prefix["key"] != self._key or begins:
                self.end_message()
                self._key, self._id = prefix["key"], compile_id
            if len(self._lines) < MESSAGE_LINES:
                self._lines.append(text)

    def _add_limit(self, compile_id: str, text: str) -> None:
        """Add a warning that a limit was hit: the recompile that was assumed made failed."""
        self.end_message()
        warning = wire.clip(text, 4096)
        self.events.append(wire.WarningSeen(self._t, 0, compile_id, "torch._dynamo", warning))
        index = self._rows.get(compile_id)
        row = None if index is None else self.events[index]
        if index is not None and isinstance(row, wire.Compiled):
            failed = {"fail_type": "RecompileLimit", "fail_reason": text}
            self.events[index] = replace(row, guarded=False, **failed)

    @property
    def _t(self) -> float:
        """A log has no clock that a run has: the place among the events stands for the time."""
        return float(len(self.events))

    def make_opening_events(self) -> tuple[wire.Event, ...]:
        """Make the events that say what is known of the process itself."""
        pid = int(self.pid) if len(self.pid) < 16 else 0
        rank = None if self.rank is None else int(self.rank)
        return (
            wire.ProcessStarted(0.0, wire.WIRE_VERSION, pid, 0, rank, None, (), "", "", "", ""),
            wire.TorchSeen(0.0, "", None, dict(HOOKS), dict(NOT_IN_A_LOG)),
        )

    def make_journal(self, name: str) -> ProcessJournal:
        """Make the journal of the process, of all its events."""
        journal = ProcessJournal(name, (*self.make_opening_events(), *self.events))
        if not self.lost:
            return journal
        journal = replace(journal, lost={"over_limit": self.lost})
        return add_loss(journal, "text_log", f"{self.lost} messages over the limit")

    def end_message(self) -> None:
        """End the message whose lines came last: its place is known only then."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        full = len(self.events) >= 2 * MAX_MESSAGES
        if match := _RECOMPILING.match(lines[0]):
            self.log.recompiling_lines += 1
            others = (line for line in lines[1:] if line.strip())
            self.log.unknown_lines += sum(not line.startswith("    ") for line in others)
            if not full:
                frame = wire.Location(match[2], int(match[3]), match[1])
                self._add_recompile(frame, lines[1:])
        elif _BREAK.match(lines[0]):
            text, repeated = wire.clip("\n".join(lines)), _REPEATED in lines[0]
            if (place := parse_break_place(text)) is not None:
                self.log.break_sites.add((place.file, place.line))
            if not full:
                at = (self._t, 0, self._id, self.epoch)
                self.events.append(wire.GraphBroke(*at, text, repeated))
        elif not _NO_BREAK.match(lines[0]):
            full = False
            self.log.unknown_lines += len(lines)
        self.lost += full

    def _add_recompile(self, frame: wire.Location, lines: Iterable[str]) -> None:
        """Add a recompile that torch was about to make: assumed made unless a limit is hit."""
        if self._id in self._rows:
            self.epoch += 1
            self._rows.clear()
        # Each line with a compile id begins a reason, other lines are its stack.
        raw_reasons: list[str] = []
        for line in lines:
            cause = _CAUSE.match(line)
            if cause is not None:
                raw_reasons.append(line[cause.end() :])
            elif raw_reasons and line.lstrip().startswith("- "):
                raw_reasons[-1] += "\n" + line.lstrip().removeprefix("- ")
        reasons = tuple(wire.clip(text, 4096) for text in raw_reasons[:8])
        at = (self._t, 0, self._id, self.epoch, frame)
        self.events.append(wire.Recompiled(*at, reasons, (), 0.0))
        # Invariant: its row is the next event, at this index.
        self._rows[self._id] = len(self.events)
        reason = reasons[0] if reasons else None
        self.events.append(replace(make_unmeasured(*at), guarded=True, recompile_reason=reason))
