"""The live view of a running program: a line for each recompile, recompile limit, and long compile,
which clears what it is written over: a progress bar is drawn again below it. Pure: events in, text
out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from compilediag.timeline.timeline import fold
from compilediag.views.text import clean
from compilediag_harness import wire

LONG_COMPILE_S = 10.0
LINE_LIMIT = 500
"""Characters of one line."""
CLEAR_LINE = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class _OpenCompile:
    """A compile in progress."""

    since: float
    compile_id: str
    frame: wire.Location | None = None
    why: str | None = None


@dataclass(slots=True)
class Progress:
    """One process, as far as its journal has been read. Times are of the caller's clock."""

    steps: int = 0
    rate: float | None = None
    """Steps a second over the newest batch."""
    compile_s: float = 0.0
    _is_over: bool = False
    """The program has ended, and its calls are made again."""
    _compiles: list[wire.Event] = field(default_factory=list[wire.Event])
    """The events that `fold` makes compiles of."""
    _recompiles: int | None = 0
    """None where `_compiles` has events that are not counted yet."""
    _open: dict[str, _OpenCompile] = field(default_factory=dict[str, _OpenCompile])
    _triggers: dict[str, wire.Recompiled] = field(default_factory=dict[str, wire.Recompiled])
    """The recompile events of the compiles in progress, by compile id."""
    _frames: dict[str, wire.Location] = field(default_factory=dict[str, wire.Location])
    """By compile id, for the backward that is compiled later."""
    _first: dict[str, wire.Compiled] = field(default_factory=dict[str, wire.Compiled])
    """The first compile of each frame, which has the limit in force."""

    @property
    def recompiles(self) -> int:
        """Recompiles so far, as a receipt counts them."""
        if self._recompiles is None:
            self._recompiles = fold([self._compiles]).counts.recompiles
        return self._recompiles

    def apply(self, event: wire.Event, now: float) -> tuple[wire.Event, ...]:
        """Takes one event in; gives the events of a recompile that has ended, or of a frame that
        was given up at the recompile limit, after those of its first compile."""
        if isinstance(event, wire.StepsEnded):
            self.steps = event.first + len(event.ends)
            wall = sum(event.list_walls())
            self.rate = len(event.ends) / wall if wall > 0 else None
        elif isinstance(event, wire.CompileStarted):
            if event.frame is not None:
                self._frames[event.compile_id] = event.frame
            frame = self._frames.get(event.compile_id)
            self._open[event.compile_id] = _OpenCompile(now, event.compile_id, frame)
        elif isinstance(event, wire.Recompiled):
            self._compiles.append(replace(event, entries=()))
            self._triggers[event.compile_id] = event
            begun = self._open.get(event.compile_id)
            self._frames[event.compile_id] = event.frame
            self._open[event.compile_id] = _OpenCompile(
                now if begun is None else begun.since,
                event.compile_id,
                event.frame,
                _format_reason(event),
            )
        elif isinstance(event, wire.Compiled):
            self._open.pop(event.compile_id, None)
            self.compile_s += event.seconds
            self._compiles.append(event)
            self._recompiles = None
            first = self._first.setdefault(event.compile_id.partition("/")[0], event)
            before = () if first is event else (first,)
            trigger = self._triggers.pop(event.compile_id, None)
            if trigger is not None:
                return (*before, trigger, event)
            return (*before, event) if event.forward and event.recompile_reason else ()
        elif isinstance(event, wire.GraphBroke | wire.TorchSeen):
            self._compiles.append(event)
        elif isinstance(event, wire.RandomStateRead):  # the last that is recorded of a program
            self._is_over = True
        elif isinstance(event, wire.DynamoReset):
            # `torch._dynamo.reset()` sets its frame counter to 0: compile ids repeat afterwards.
            for known in (self._open, self._triggers, self._frames, self._first):
                known.clear()
        return ()

    def format_line(self, now: float) -> str:
        """Format step, rate, what is compiling and why, and what compiling has cost so far."""
        parts = [f"step {self.steps}"]
        if self.rate is not None:
            parts.append(f"{self.rate:.3g} steps/s")
        if self._is_over:
            parts.append("over; calls with other inputs, which Ctrl-C leaves out")
        elif self._open:
            newest = list(self._open.values())[-1]
            parts.append(_describe_compile(newest, now))
        if self.recompiles:
            parts.append(f"{self.recompiles} recompile{'s' if self.recompiles != 1 else ''}")
        if self.compile_s:
            parts.append(f"compiles cost {self.compile_s:.1f} s")
        return " · ".join(parts)

    def list_long_compiles(self, now: float) -> list[tuple[str, int, str]]:
        """List id, how many times ten seconds, and a sentence, for each compile that long."""
        return [
            (
                pending.compile_id,
                int((now - pending.since) // LONG_COMPILE_S),
                _describe_compile(pending, now),
            )
            for pending in self._open.values()
            if now - pending.since >= LONG_COMPILE_S
        ]


def _describe_compile(pending: _OpenCompile, now: float) -> str:
    what, frame = pending.compile_id, pending.frame
    if frame is not None:
        what = f"{frame.function or 'a frame'} {PurePath(frame.file).name}:{frame.line}"
    again = f" again ({pending.why})" if pending.why else ""
    return f"compiling {what}{again} {max(now - pending.since, 0.0):.0f} s"


def _format_reason(event: wire.Recompiled) -> str:
    for entry in event.entries:
        for guard in entry.guards:
            if guard.expected is not None and guard.actual is not None:
                named = guard.source or guard.text
                return f"{clean(named, limit=60)} {guard.expected[:40]} → {guard.actual[:40]}"
            return clean(guard.text, limit=100)
    return clean(event.reasons[0], limit=100) if event.reasons else "torch gave no reason"


def find_lead(processes: Iterable[Progress]) -> Progress:
    """Find the process with most steps, among several."""
    return max(processes, key=lambda process: (process.steps, process.compile_s))


def format_screen_line(text: str) -> str:
    """Format a line above whatever bar is drawn next."""
    return f"{CLEAR_LINE}compilediag · {clean(text, limit=LINE_LIMIT)}\n"
