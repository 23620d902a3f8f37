"""The live line: where the run is, what is compiling and why.

It is shown in the title of the terminal, which no program's output is drawn on: the child has the
screen to itself, and only the child can know where its cursor is. Pure: events in, text out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from compilediag.timeline.fold import fold
from compilediag.views.text import clean, truncate
from compilediag_harness.wire import (
    Compiled,
    CompileStarted,
    DynamoReset,
    Event,
    GraphBroke,
    Location,
    Recompiled,
    StepsEnded,
    TorchSeen,
)

SAVE_TITLE = "\x1b[22;2t"
RESTORE_TITLE = "\x1b[23;2t"
"""The terminal keeps a stack of titles; where it keeps none, the next prompt sets its own."""

LONG_COMPILE_S = 1.0
TITLE_COLUMNS = 120


@dataclass(frozen=True, slots=True)
class _Open:
    """A compile in progress."""

    since: float
    compile_id: str
    frame: Location | None = None
    why: str | None = None


@dataclass(slots=True)
class Progress:
    """One process, as far as its journal has been read. Times are of the caller's clock."""

    steps: int = 0
    rate: float | None = None
    """Steps a second over the newest batch."""
    compile_s: float = 0.0
    _compiles: list[Event] = field(default_factory=list[Event])
    """The events that `fold` makes compiles of."""
    _recompiles: int | None = 0
    """None where `_compiles` has events that are not counted yet."""
    _open: dict[str, _Open] = field(default_factory=dict[str, _Open])

    @property
    def recompiles(self) -> int:
        """Recompiles so far, as a receipt counts them."""
        if self._recompiles is None:
            self._recompiles = fold([self._compiles]).counts.recompiles
        return self._recompiles

    def apply(self, event: Event, now: float) -> str | None:
        """Takes one event in; gives a sentence where it is news by itself (a recompile)."""
        if isinstance(event, StepsEnded):
            self.steps = event.first + len(event.ends)
            wall = sum(event.every_wall())
            self.rate = len(event.ends) / wall if wall > 0 else None
        elif isinstance(event, CompileStarted):
            self._open[event.compile_id] = _Open(now, event.compile_id)
        elif isinstance(event, Recompiled):
            self._compiles.append(replace(event, entries=()))
            return self._again(event, now)
        elif isinstance(event, Compiled):
            self._open.pop(event.compile_id, None)
            self.compile_s += event.seconds
            self._compiles.append(event)
            self._recompiles = None
        elif isinstance(event, GraphBroke | TorchSeen):
            self._compiles.append(event)
        elif isinstance(event, DynamoReset):
            self._open.clear()
        return None

    def _again(self, event: Recompiled, now: float) -> str:
        since = self._open[event.compile_id].since if event.compile_id in self._open else now
        why = _why(event)
        self._open[event.compile_id] = _Open(since, event.compile_id, event.frame, why)
        return f"step {event.step}: {_place(event.frame)} compiles again: {why}"

    def line(self, now: float) -> str:
        """Step, rate, what is compiling and why, and what compiling has cost so far."""
        parts = [f"step {self.steps}"]
        if self.rate is not None:
            parts.append(f"{self.rate:.3g} steps/s")
        if self._open:
            newest = list(self._open.values())[-1]
            parts.append(_compiling(newest, now))
        if self.recompiles:
            parts.append(f"{self.recompiles} recompile{'s' if self.recompiles != 1 else ''}")
        if self.compile_s:
            parts.append(f"compiles cost {self.compile_s:.1f} s")
        return " · ".join(parts)

    def long_compile(self, now: float) -> str | None:
        """The compile that has gone on for over a second, if there is one."""
        for item in self._open.values():
            if now - item.since >= LONG_COMPILE_S:
                return item.compile_id
        return None


def _compiling(item: _Open, now: float) -> str:
    what = _place(item.frame) if item.frame else item.compile_id
    again = f" again ({item.why})" if item.why else ""
    return f"compiling {what}{again} {max(now - item.since, 0.0):.0f} s"


def _place(frame: Location) -> str:
    return f"{frame.function or 'a frame'} {PurePath(frame.file).name}:{frame.line}"


def _why(event: Recompiled) -> str:
    for entry in event.entries:
        for guard in entry.guards:
            if guard.expected is not None and guard.actual is not None:
                named = guard.source or guard.text
                return f"{clean(named, limit=60)} {guard.expected[:40]} → {guard.actual[:40]}"
            return clean(guard.text, limit=100)
    return clean(event.reasons[0], limit=100) if event.reasons else "torch gave no reason"


def status(processes: Sequence[Progress], now: float, elapsed_s: float, label: str = "") -> str:
    """One line for all processes: that of the one with most steps, and the time so far.

    `label` names the run where there are several.
    """
    begin = f"compilediag · {label} · " if label else "compilediag · "
    if not processes:
        return clean(f"{begin}{elapsed_s:.0f} s · starting")
    lead = max(processes, key=lambda item: (item.steps, item.compile_s))
    total = f" · {len(processes)} processes" if len(processes) > 1 else ""
    line = f"{begin}{elapsed_s:.0f} s · {lead.line(now)}{total}"
    return truncate(clean(line, limit=400), TITLE_COLUMNS)


def title(text: str) -> str:
    """The escape sequence that makes `text` the title of the terminal."""
    return f"\x1b]2;{clean(text)}\x07"
