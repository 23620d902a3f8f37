"""Frames that torch compiles apart, with guards of their own, only because of a graph break: what
is left of a function after it, and functions that the broken function calls, else inlined."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from compilediag.diagnosis.codes import REGISTER
from compilediag.diagnosis.findings import Cause
from compilediag.timeline.compiles import Compile, CompileId, FrameId
from compilediag.timeline.frames import BreakLine
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.base.resumed_frames import find_resumed_function, get_whole_function
from compilediag_harness.wire import UserCall


@dataclass(frozen=True, slots=True)
class BehindBreaks:
    """The compiles of a run that a graph break made frames of their own."""

    breaks: Mapping[CompileId, BreakLine] = field(default_factory=dict[CompileId, BreakLine])
    """The break of each."""
    broken: Mapping[CompileId, CompileId] = field(default_factory=dict[CompileId, CompileId])
    """The compile that met it."""
    broke: frozenset[CompileId] = frozenset()
    """The compiles in which torch met a break."""
    compiles: Mapping[CompileId, Compile] = field(default_factory=dict[CompileId, Compile])
    direct: frozenset[CompileId] = frozenset()
    """Recompiles of frames that only the broken function had called, the first of another caller:
    without the break each is its frame's first compile."""

    def is_between_calls(self, recompile: Recompile, entry: str) -> bool:
        """True if the recompile is of a call that an earlier call of the same step differs from,
        for which the cache entry `entry` was compiled: both are made by a broken function, and
        without the break they were parts of one graph."""
        earlier = self.compiles.get(CompileId(recompile.process, recompile.epoch, entry))
        if earlier is None or recompile.id not in self.breaks or earlier.id not in self.breaks:
            return False
        one, other = earlier.entered_at, recompile.entered_at
        if one is None or other is None or earlier.step != recompile.step:
            return False
        within = (one.file, one.function) == (other.file, other.function)
        return within and (one.line, one.text) != (other.line, other.text)

    def list_above(self, compiled: CompileId) -> list[CompileId]:
        """List the compiles that broke above one: of the function that goes on to it, and so on."""
        above: list[CompileId] = []
        while (broken := self.broken.get(compiled)) is not None:
            above.append(broken)
            compiled = broken
        return above

    def is_made_inside(self, cause: Cause, recompile: Recompile) -> bool:
        """True if what changed is what a frame is called with only because of a break, made inside
        of the broken function. False for the program's state, and for what may be passed on, by its
        name, from what that function is called with: they change with and without the break."""
        if recompile.id in self.direct:
            return True
        if any(REGISTER[part.rule].owner not in _PASSED for part in cause.parts or (cause,)):
            return False
        at: Compile | Recompile = recompile
        names = {*_NAME.findall(cause.variable)}
        while (above := self.broken.get(at.id)) is not None:
            broken, call = self.compiles[above], at.entered_at
            if find_resumed_function(at.frame.function) is None:
                names = {*_NAME.findall("" if call is None else call.text)}
            given = broken.entered_at.arguments if broken.entered_at is not None else ()
            if not names or not given:
                return False
            if names.isdisjoint(name for name, _ in given):
                return True
            at = broken
        return False


_PASSED = ("argument", "instance")
_NAME = re.compile(r"[^\W\d]\w*")


def find_behind_breaks(timeline: Timeline) -> BehindBreaks:
    """Find the break behind each frame, taking compiles in their time order."""
    # The break that a compile met, the last of several.
    sites = {attempt: site.at for site in timeline.breaks for attempt in site.attempts}
    broken: dict[Hashable, dict[FrameId, tuple[BreakLine, Compile]]] = defaultdict(dict)
    behind: dict[FrameId, tuple[BreakLine, CompileId]] = {}
    breaks: dict[CompileId, BreakLine] = {}
    above: dict[CompileId, CompileId] = {}
    broke: set[CompileId] = set()
    direct: dict[FrameId, CompileId] = {}
    begins: dict[FrameId, int | None] = {}  # first lines of the whole functions
    for event in sorted(timeline.compiles, key=lambda event: event.t) if sites else ():
        if not event.forward:
            continue
        thread, whole = (event.process, event.epoch), get_whole_function(event.frame.function)
        # What must have broken for the frame to be one of its own: the function that it is the
        # rest of, else the one that calls it.
        where, call = (event.frame.file, whole), event.entered_at
        is_rest = whole != event.frame.function
        caller = where if is_rest else call and (call.file, call.function)
        before = next(
            (
                (at, met)
                for at, met in reversed(broken[(*thread, caller)].values())
                if is_rest or (call is not None and _may_hold(met, call, begins.get(met.key)))
            ),
            None,
        )
        of_whole = None if before is None else begins[before[1].key]
        begins[event.key] = of_whole if is_rest else event.frame.line
        if before is not None and event.kind == "first":
            behind.setdefault(event.key, (before[0], before[1].id))
        apart = before is None or direct.get(before[1].key) == before[1].id
        if event.key in behind and not (apart and event.key in direct):
            breaks[event.id], above[event.id] = behind[event.key]
            if apart and event.kind != "first":
                direct[event.key] = event.id
        site = sites.get(event.id)
        if site is not None:
            broke.add(event.id)
            of_name = broken[(*thread, where)]
            of_name.pop(event.key, None)
            of_name[event.key] = site, event
    compiles = {event.id: event for event in timeline.compiles if event.forward} if breaks else {}
    return BehindBreaks(breaks, above, frozenset(broke), compiles, frozenset(direct.values()))


def _may_hold(broken: Compile, call: UserCall, begins: int | None) -> bool:
    """True if a call by a function of that name may be in the broken one: both begin at one line,
    or it is not above that line, nor as far down as the call that entered the broken one."""
    if call.defined_at and begins is not None:
        return call.defined_at == begins
    own, first = broken.entered_at, broken.frame.line
    if find_resumed_function(broken.frame.function) is not None:
        return True  # its line is that of the break
    if own is not None and (own.file, own.function) == (call.file, call.function):
        return first <= call.line and not first < own.line <= call.line
    return first <= call.line
