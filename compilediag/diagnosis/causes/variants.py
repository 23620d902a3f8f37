"""Recompiles that make a wanted variant, that can be avoided, or of which neither was seen.

A wanted variant was compiled once, its guards held in a later call, and the program is through with
compiling for what changed. A value that the program's objects hold must come back, too: one that
moves on for good, as a table that grows, is no variant of anything. Of a mode, a bool argument and
one that may be None there is no third value: the program is through at once, in its last call too;
and so it is with both sides of a size that torch or the code sets apart, once both were used again.
Where a frame met its recompile limit for anything but a size, none is wanted: how many variants it
has is not known, and some of its calls run eager.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from typing import NamedTuple

from compilediag.diagnosis.causes.cause_group import ALWAYS_CONSTANT, PARAMETER, find_changed_dims
from compilediag.diagnosis.causes.run_causes import BlamedCause, RunCauses
from compilediag.diagnosis.codes import REGISTER, SIZES
from compilediag.diagnosis.findings import Cause, CauseId
from compilediag.receipt.schema.compiles import Need
from compilediag.timeline.compiles import CompileId, FrameId, Recompile, get_compile_id
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import EntryServed

_PASSED = ("argument", "instance", "process")
"""Owners of what a call is made with and in: it need not come back, as a prompt before its tokens.
"""

_FILLED = ("CD102", "CD103")
"""Codes of what the program makes or grows by itself, and could have made before."""


_TWO_VALUED = frozenset(("grad_mode", "inference_mode", "train_eval", "requires_grad", "view"))
"""Kinds of what is on or off, or is there or not."""

_TWO_SIDED = frozenset(("zero_one", "constant", "equal", "unequal"))
"""Kinds of conditions on sizes that set one size, or a relation of two, apart from all others."""


class _Family(NamedTuple):
    """The recompiles that share a cause."""

    late: int | None
    """How many are in the second half of the run; None where that is not known."""
    times: Sequence[float]
    """Ascending."""
    refused: bool
    """Whether the recompile limit refused one: that none comes later shows nothing then."""


class JudgedRecompiles(NamedTuple):
    """The recompiles that count, judged."""

    needs: Mapping[CompileId, Need]
    """"undecided" but where the run shows what it is."""
    apart: Mapping[CompileId, frozenset[CauseId]]
    """The causes that have no third value, of those whose graph no reset threw away. Of a process
    that compiles in each of its calls, as a test of two calls, nothing is known."""


def judge_recompiles(timeline: Timeline, causes: RunCauses) -> JudgedRecompiles:
    """Judge each recompile that counts."""
    families = _group_by_cause(timeline, causes)
    epochs: dict[Hashable, set[int]] = defaultdict(set)
    for attempt in timeline.compiles:
        epochs[attempt.process, attempt.frame].add(attempt.epoch)
    often = Counter(map(_identify_values, timeline.counted_recompiles))
    clock, served, full = _Clock(timeline), _Served(timeline), _find_full(timeline, causes)
    known: dict[tuple[int, frozenset[CauseId]], _Family] = {}

    def find_family(event: Recompile) -> _Family:
        """Find the recompiles that share a cause with one; once for those that have the same."""
        key = event.process, frozenset(cause.id for cause in causes.get_causes(event))
        if key not in known:
            own = {other.id: other for cause in key[1] for other in families[event.process, cause]}
            late = [clock.is_late(other) for other in own.values()]
            known[key] = _Family(
                None if None in late else sum(map(bool, late)),
                sorted(other.t for other in own.values()),
                not all(other.produced for other in own.values()),
            )
        return known[key]

    def was_reset(event: Recompile) -> bool:
        return len(epochs[event.process, event.frame]) > 1

    def find_apart(event: Recompile) -> set[CauseId]:
        again, own = event.id in kept and served.is_again(event), causes.get_causes(event)
        once = {cause.id for cause in own if sides[event.id.frame, cause.id] == 1}
        return _find_apart(own, once, again=again)

    def judge(event: Recompile) -> Need:
        own, frame = causes.get_causes(event), event.id.frame
        if was_reset(event):
            return "avoidable" if often[_identify_values(event)] > 1 else "undecided"
        if {cause.id for cause in own} == find_apart(event):
            return "wanted" if event.id in kept else "undecided"
        family = find_family(event)
        if family.late is None:
            return "undecided"
        if 1 < family.late < len(family.times):
            return "avoidable"  # it went on and on
        if family.refused and len(family.times) > 2 and not served.is_alternating(event):
            return "avoidable"
        if served.is_again(event) and not family.late:
            stays = any(map(_is_held, own)) and not served.is_alternating(event)
            filled = stays and any(cause.rule in _FILLED for cause in own)
            return "avoidable" if filled else "undecided" if stays or frame in full else "wanted"
        gone = clock.is_whole(event.process) and served.is_once(event)
        newer = len(family.times) - bisect_right(family.times, event.t)
        return "avoidable" if gone and (newer > 1 or not clock.is_late(event)) else "undecided"

    events = timeline.counted_recompiles
    made = (event for event in events if event.produced and clock.has_quiet_calls(event.process))
    lasting = (event for event in made if not was_reset(event) and event.id.frame not in full)
    kept = frozenset(event.id for event in lasting)
    guarded = ((event.id.frame, its.id) for event in events for its in causes.get_causes(event))
    sides = Counter(guarded)
    apart = {event.id: frozenset(find_apart(event)) for event in events if event.id in kept}
    return JudgedRecompiles({event.id: judge(event) for event in events}, apart)


def _find_full(timeline: Timeline, causes: RunCauses) -> set[FrameId]:
    """Find the frames that met their recompile limit for anything but a size: how many variants
    there are is known of sizes alone."""
    limited = {frame.key for frame in timeline.frames if frame.limit_hit_step is not None}
    refused = (
        event for event in timeline.recompiles if event.id.frame in limited and not event.produced
    )
    return {
        event.id.frame
        for event in refused
        if not {cause.rule for cause in causes.get_causes(event)} <= SIZES
    }


def _group_by_cause(
    timeline: Timeline, causes: RunCauses
) -> Mapping[tuple[int, CauseId], list[Recompile]]:
    """Group the recompiles of each process by their causes."""
    families: dict[tuple[int, CauseId], list[Recompile]] = defaultdict(list)
    for event in timeline.recompiles:
        for cause in dict.fromkeys(cause.id for cause in causes.get_causes(event)):
            families[event.process, cause].append(event)
    return families


def _find_apart(
    causes: Collection[BlamedCause], once: Set[CauseId], *, again: bool
) -> set[CauseId]:
    """Find the causes of which there is no third value, or no third side; all, where one is a mode
    whose first call this is, which needs a graph whatever else is new in it. `once`: those that a
    frame was compiled again for once alone; `again`: its graph served a later call."""
    is_first = any(cause.id in once and is_two_valued(cause) for cause in causes)
    return {
        cause.id
        for cause in causes
        if is_first or is_two_valued(cause) or (again and cause.id in once and is_set_apart(cause))
    }


def _identify_values(event: Recompile) -> Hashable:
    """Make equal for recompiles of a frame that met the same values."""
    guards = (guard for entry in event.entries for guard in entry.guards)
    values = frozenset((guard.source, guard.actual) for guard in guards)
    return event.process, event.frame, values


def _is_held(cause: BlamedCause) -> bool:
    """True if an object, a closure or a module holds a value that changed."""
    parts: Sequence[Cause] = cause.parts or (cause,)
    return any(
        REGISTER[part.rule].owner not in _PASSED or PARAMETER in part.source for part in parts
    )


def is_two_valued(cause: Cause) -> bool:
    """True if what the program passes, or sets for its calls, cannot take a third value. Not of a
    module's parameters: where layers are frozen one by one, each is another cause."""
    return all(
        (part.kind in _TWO_VALUED and PARAMETER not in part.source)
        or part.rule == "CD114"
        or (part.rule == "CD107" and {part.expected, part.actual} == {"True", "False"})
        for part in cause.parts or (cause,)
    )


def is_set_apart(cause: Cause) -> bool:
    """True if a size has only two sides there: 0 or 1 and all others, or what a condition of the
    code sets apart."""
    if cause.rule == "CD118":
        return cause.kind in _TWO_SIDED
    changed = find_changed_dims(cause.expected, cause.actual) if cause.rule == "CD105" else ()
    return bool(changed) and all({before, after} & ALWAYS_CONSTANT for _, before, after in changed)


class _Clock:
    """Progress of each process: in calls where each was seen, else in steps."""

    def __init__(self, timeline: Timeline) -> None:
        self._steps = Counter(step.process for step in timeline.steps)
        self._unsampled = {step.process for step in timeline.steps if step.unsampled}
        self._calls: dict[int, list[float]] = defaultdict(list)
        self._totals = Counter[int]()
        for calls in timeline.invocations:
            self._calls[calls.process] += calls.at
            self._totals[calls.process] += calls.calls
        for moments in self._calls.values():
            moments.sort()
        self._compiling: dict[int, set[int]] = defaultdict(set)
        for event in timeline.compiles:
            self._compiling[event.process].add(bisect_right(self._calls[event.process], event.t))

    def is_whole(self, process: int) -> bool:
        """True if every call was seen: no step went unsampled."""
        return process not in self._unsampled

    def has_quiet_calls(self, process: int) -> bool:
        """True if some calls compiled nothing."""
        return len(self._compiling[process]) < self._totals[process]

    def is_late(self, event: Recompile) -> bool | None:
        """True if the recompile is in the second half of the run; None where that is not known."""
        process = event.process
        if self._totals[process] and self.is_whole(process):
            begun = bisect_right(self._calls[process], event.t)
            return 2 * (begun - 1) >= self._totals[process]
        return 2 * event.step >= self._steps[process] if self._steps[process] > 1 else None


class _Served:
    """The entries that were seen to serve calls, by frame."""

    def __init__(self, timeline: Timeline) -> None:
        self._runs: dict[FrameId, list[EntryServed]] = defaultdict(list)
        for run in timeline.served:
            self._runs[get_compile_id(run).frame].append(run)
        self._asked = {event.id: event.t for event in timeline.recompiles}
        self._times: dict[FrameId, list[float]] = defaultdict(list)
        """When each frame was compiled again, ascending."""
        for event in sorted(timeline.recompiles, key=lambda event: event.t):
            self._times[event.id.frame].append(event.t)

    def _list_runs(self, event: Recompile) -> Sequence[EntryServed]:
        return self._runs.get(event.id.frame, ())

    def is_again(self, event: Recompile) -> bool:
        """True if its entry served a later call."""
        runs = self._list_runs(event)
        return any(run.again and run.compile_id == event.compile_id for run in runs)

    def is_once(self, event: Recompile) -> bool:
        """True if its entry served the call that it was compiled in, and no other."""
        own = [run.again for run in self._list_runs(event) if run.compile_id == event.compile_id]
        return own == [False]

    def is_alternating(self, event: Recompile) -> bool:
        """True if an older entry served a call after it, or its own one after a newer compile: the
        values alternate."""
        runs = [run for run in self._list_runs(event) if run.again and run.t > event.t]
        # The first entry of a frame was compiled before all others.
        if any(self._asked.get(get_compile_id(run), 0.0) < event.t for run in runs):
            return True
        own = max((run.t for run in runs if run.compile_id == event.compile_id), default=event.t)
        times = self._times[event.id.frame]
        newer = bisect_right(times, event.t)
        return newer < len(times) and times[newer] < own
