"""Wall time taken apart into goodput and badput, in whole nanoseconds.

Invariant: goodput plus all badput is the wall time, exactly. Every nanosecond is charged once: to
the compile it fell into, else to the innermost span, else to the step, else to startup or idle.
Recompiles are badput, apart from first compiles; unknown span names keep their own name.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compilediag.diagnosis.figures.devices import has_gpu
from compilediag.receipt.schema.running import GoodputSection
from compilediag.timeline.timeline import Compile, Step, Timeline, lead_process, spans_of

CATEGORIES = (
    "compile_first",
    "recompile",
    "cudagraph_capture",
    "data_wait",
    "checkpoint",
    "eval",
    "metrics",
    "startup",
    "wasted",
    "idle",
)
"""Always present in `badput_s`, in this order; span names that are none of them follow."""

CATEGORY_OF = {
    "data": "data_wait",
    "dataloader": "data_wait",
    "checkpointing": "checkpoint",
    "save_checkpoint": "checkpoint",
    "evaluation": "eval",
    "evaluate": "eval",
    "validation": "eval",
    "validate": "eval",
    "metric": "metrics",
    "wasted_progress": "wasted",
}
"""Other names a span may have for a category."""

PRODUCTIVE = frozenset({"step", "train", "train_step", "forward", "backward", "optimizer"})
"""Spans of these names are the work itself: what is inside them decides, not they."""

MEASURING = "measuring"
"""Our own analysis of recompiles; a category only in runs where there was some."""

MAIN_THREAD = 0
"""Spans of other threads run beside the steps: they cost no wall time of their own."""

_COMPILE_DEPTH = 1 << 30
"""Compiles lie inside every span: their time is not the span's."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Time that belongs to a category; a deeper interval lies inside a shallower one."""

    start: int
    end: int
    depth: int
    category: str


@dataclass(frozen=True, slots=True)
class Account:
    """An account of the wall time, in nanoseconds. `goodput_ns` is None when no step was seen."""

    wall_ns: int
    goodput_ns: int | None
    badput_ns: dict[str, int]

    @property
    def fraction(self) -> float | None:
        """Goodput as a share of the wall time."""
        if self.goodput_ns is None or self.wall_ns == 0:
            return None
        return self.goodput_ns / self.wall_ns


@dataclass(frozen=True, slots=True)
class Settled:
    """The time before a moment, accounted for already: its events need not be stored. No interval
    and no step lies across the moment, which is the end of a step."""

    until_ns: int
    goodput_ns: int
    startup_ns: int
    charged_ns: Mapping[str, int]
    """Badput by category, but for startup and idle."""


def account(
    timeline: Timeline,
    wall_s: float | None,
    *,
    orderly: bool = True,
    settled: Settled | None = None,
) -> Account | None:
    """Compute the account of the lead process, in whole nanoseconds.

    `wall_s` is the parent's measure of the whole run. What it has beyond the process's own events
    is the start of the interpreter and its end (startup); when the run did not end in an orderly
    way (`orderly` False) what it did after its last event is unknown: idle. None when neither a
    wall time nor an event is there. Of a timeline without what is `settled`, the same account as of
    the whole one; compiles from before are left out here.
    """
    process, floor = timeline.lead, settled.until_ns if settled is not None else 0
    compiles = _compiles_after(timeline, process, settled)
    steps = [item for item in timeline.steps if item.process == process]
    spans = _spans(timeline, process)
    ends = [item.ended.t for item in timeline.processes if item.index == process and item.ended]
    ends += [*(item.t for item in compiles), *(item.end for item in steps)]
    observed = max([floor, *map(_ns, ends), *(span.end for span in spans)])
    if wall_s is None and observed == 0:
        return None
    wall = max(observed, _ns(wall_s or 0.0))
    covered = flatten_intervals([*_compile_intervals(timeline, compiles), *spans], wall)
    charged: dict[str, int] = dict.fromkeys(CATEGORIES, 0)
    if settled is not None:
        charged.update(settled.charged_ns)
    for item in covered:
        taken = item.end - item.start
        charged[item.category] = charged.get(item.category, 0) + taken
    good, waited = _inside_steps(steps, covered, wall, floor)
    good += settled.goodput_ns if settled is not None else 0
    charged["data_wait"] += waited
    outside = wall - sum(charged.values()) - good
    before = settled.startup_ns if settled else _startup(compiles, steps, observed, covered)
    before = min(before + (wall - observed if orderly else 0), outside)
    charged["startup"] += before
    charged["idle"] += outside - before
    has_steps = bool(steps) or settled is not None
    if not has_steps:
        # Without a step there is no productive time to speak of, and it is not zero either.
        charged["idle"] += good
    return Account(wall, good if has_steps else None, charged)


def settle(timeline: Timeline, until_ns: int, before: Settled | None = None) -> Settled | None:
    """Settle a timeline up to the end of a step, after what was settled before it. None where a
    span or a compile lies across one of the two moments: their time cannot be parted there."""
    process, floor = timeline.lead, before.until_ns if before is not None else 0
    compiles = _compiles_after(timeline, process, before)
    intervals = [*_compile_intervals(timeline, compiles), *_spans(timeline, process)]
    if any(item.start < floor or item.end > until_ns for item in intervals):
        return None
    found = account(timeline, until_ns / 1e9, orderly=False, settled=before)
    if found is None or found.goodput_ns is None or found.wall_ns != until_ns:
        return None
    charged = {name: taken for name, taken in found.badput_ns.items() if taken}
    startup = charged.pop("startup", 0)
    charged.pop("idle", None)
    return Settled(until_ns, found.goodput_ns, startup, charged)


def _compiles_after(timeline: Timeline, process: int, settled: Settled | None) -> list[Compile]:
    return [
        item
        for item in timeline.compiles
        if item.process == process and (settled is None or _ns(item.t) > settled.until_ns)
    ]


def goodput_section(
    timeline: Timeline, wall_s: float | None, *, complete: bool
) -> GoodputSection | None:
    """Build the section of goodput, in seconds; None when there was neither a wall time nor an
    event.

    Args:
        timeline: the run.
        wall_s: the parent's measure of the whole run.
        complete: the parent saw it end in an orderly way.
    """
    if not timeline.observes("steps"):
        return None  # a trace of compiles does not show where the rest of the time went
    ended = lead_process(timeline)
    orderly = complete or (ended is not None and ended.ended is not None)
    found = account(timeline, wall_s, orderly=orderly)
    if found is None:
        return None
    # Categories that may hold time nobody measured: zero there would be a claim.
    unmeasured = {"cudagraph_capture"} if has_gpu(timeline) is not False else set[str]()
    return GoodputSection(
        wall_s=found.wall_ns / 1e9,
        goodput_s=None if found.goodput_ns is None else found.goodput_ns / 1e9,
        badput_s={
            name: None if not taken and name in unmeasured else taken / 1e9
            for name, taken in found.badput_ns.items()
        },
        fraction=found.fraction,
    )


def recompile_time(timeline: Timeline) -> Callable[[Compile], bool]:
    """Make a test of a compile: its seconds are the cost of a failed guard. Those of the attempt
    that hits the limit are, which is no recompile. The backward of a recompiled graph is compiled
    under the id of its forward."""

    def plain_id(item: Compile) -> tuple[int, int, str]:
        return item.process, item.epoch, item.compile_id.partition("_")[0]

    ids = {
        plain_id(item)
        for item in timeline.compiles
        if item.kind in ("recompile", "limit") or item.recompile is not None
    }
    return lambda item: plain_id(item) in ids


def _ns(seconds: float) -> int:
    return max(0, round(seconds * 1e9)) if math.isfinite(seconds) else 0


def _compile_intervals(timeline: Timeline, compiles: Iterable[Compile]) -> list[Interval]:
    """List each attempt, and our own analysis inside it, which is not part of its seconds."""
    is_again = recompile_time(timeline)
    intervals: list[Interval] = []
    for item in compiles:
        category = "recompile" if is_again(item) else "compile_first"
        again = item.recompile
        analysis_s = again.analysis_s if again is not None else 0.0
        begin = item.t - item.seconds
        if again is not None and again.t >= begin:
            begin -= analysis_s
        intervals.append(Interval(_ns(begin), _ns(item.t), _COMPILE_DEPTH, category))
        if again is not None and analysis_s:
            begin, end = _ns(again.t - analysis_s), _ns(again.t)
            intervals.append(Interval(begin, end, _COMPILE_DEPTH + 1, MEASURING))
    return intervals


def _spans(timeline: Timeline, process: int) -> list[Interval]:
    """List the spans of the process's main thread as intervals."""
    return [
        Interval(
            _ns(span.start),
            _ns(span.start + span.wall_s),
            span.depth,
            CATEGORY_OF.get(span.name, span.name),
        )
        for span in spans_of(timeline, process)
        if span.thread == MAIN_THREAD and span.name not in PRODUCTIVE
    ]


def _inside_steps(
    steps: Sequence[Step], covered: Sequence[Interval], wall: int, floor: int = 0
) -> tuple[int, int]:
    """Measure uncovered nanoseconds inside the steps after `floor`: (productive, waiting for
    data)."""
    good = waited = first = 0
    last_end = floor
    for step in steps:
        end = min(_ns(step.end), wall)
        start = max(_ns(step.end - step.wall_s), last_end)
        free, marked = end - start, 0
        while first < len(covered) and covered[first].end <= start:
            first += 1
        index = first
        while index < len(covered) and covered[index].start < end:
            item = covered[index]
            inside = max(0, min(item.end, end) - max(item.start, start))
            free -= inside
            # A span for data is in the step's wait for data too.
            marked += inside if item.category == "data_wait" else 0
            index += 1
        if free > 0:
            waiting = min(max(0, _ns(step.data_wait_s or 0.0) - marked), free)
            waited += waiting
            good += free - waiting
        last_end = max(last_end, end)
    return good, waited


def _startup(
    compiles: Sequence[Compile], steps: Sequence[Step], observed: int, covered: Sequence[Interval]
) -> int:
    """Measure uncovered nanoseconds before the work began: before the first step or compile."""
    begins = [item.t - item.seconds for item in compiles]
    begins += [item.end - item.wall_s for item in steps]
    begin = min((_ns(begin) for begin in begins if math.isfinite(begin)), default=observed)
    return max(0, begin - sum(max(0, min(item.end, begin) - item.start) for item in covered))


def flatten_intervals(intervals: Iterable[Interval], wall: int) -> list[Interval]:
    """Flatten to disjoint intervals in time order; of those that overlap the deepest, then latest,
    wins."""
    waiting = sorted(intervals, key=lambda item: item.start)
    edges = sorted({min(edge, wall) for item in waiting for edge in (item.start, item.end)})
    flat: list[Interval] = []
    active: list[tuple[int, int, int, Interval]] = []
    place = 0
    for start, end in itertools.pairwise(edges):
        while place < len(waiting) and waiting[place].start <= start:
            item = waiting[place]
            heapq.heappush(active, (-item.depth, -item.start, place, item))
            place += 1
        while active and active[0][3].end <= start:
            heapq.heappop(active)
        if active:
            top = active[0][3]
            flat.append(Interval(start, end, top.depth, top.category))
    return flat
