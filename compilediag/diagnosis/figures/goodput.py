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
from compilediag.timeline.timeline import Compile, Step, Timeline, find_lead_process, select_spans

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


def compute_account(
    timeline: Timeline,
    wall_s: float | None,
    *,
    orderly: bool = True,
    settled: Settled | None = None,
) -> Account | None:
    """Compute the account of the lead process, in whole nanoseconds; None when there is neither a
    wall time nor an event. What `wall_s`, the parent's measure of the whole run, has beyond the
    process's own events is startup; idle, where the run did not end in an orderly way. Of a
    timeline without what is `settled`, the same account as of the whole one."""
    process, floor = timeline.lead, settled.until_ns if settled is not None else 0
    compiles = _list_compiles_after(timeline, process, settled)
    steps = [step for step in timeline.steps if step.process == process]
    spans = _list_span_intervals(timeline, process)
    lead = find_lead_process(timeline)
    ends = [lead.ended.t] if lead is not None and lead.ended is not None else []
    ends += [*(event.t for event in compiles), *(event.end for event in steps)]
    observed = max([floor, *map(_round_ns, ends), *(span.end for span in spans)])
    if wall_s is None and observed == 0:
        return None
    wall = max(observed, _round_ns(wall_s or 0.0))
    covered = flatten_intervals([*_list_compile_intervals(timeline, compiles), *spans], wall)
    charged: dict[str, int] = dict.fromkeys(CATEGORIES, 0)
    if settled is not None:
        charged.update(settled.charged_ns)
    for interval in covered:
        taken = interval.end - interval.start
        charged[interval.category] = charged.get(interval.category, 0) + taken
    good, waited = _measure_inside_steps(steps, covered, wall, floor)
    good += settled.goodput_ns if settled is not None else 0
    charged["data_wait"] += waited
    outside = wall - sum(charged.values()) - good
    before = settled.startup_ns if settled else _measure_startup(compiles, steps, observed, covered)
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
    compiles = _list_compiles_after(timeline, process, before)
    intervals = _list_compile_intervals(timeline, compiles)
    intervals += _list_span_intervals(timeline, process)
    if any(interval.start < floor or interval.end > until_ns for interval in intervals):
        return None
    account = compute_account(timeline, until_ns / 1e9, orderly=False, settled=before)
    if account is None or account.goodput_ns is None or account.wall_ns != until_ns:
        return None
    charged = {name: taken for name, taken in account.badput_ns.items() if taken}
    startup = charged.pop("startup", 0)
    charged.pop("idle", None)
    return Settled(until_ns, account.goodput_ns, startup, charged)


def _list_compiles_after(timeline: Timeline, process: int, before: Settled | None) -> list[Compile]:
    return [
        attempt
        for attempt in timeline.compiles
        if attempt.process == process and (before is None or _round_ns(attempt.t) > before.until_ns)
    ]


def build_goodput_section(
    timeline: Timeline, wall_s: float | None, *, complete: bool
) -> GoodputSection | None:
    """Build the goodput section, in seconds; None when there was neither a wall time nor an event.
    `complete`: the parent saw the run end in an orderly way."""
    if not timeline.can_observe("steps"):
        return None  # a trace of compiles does not show where the rest of the time went
    ended = find_lead_process(timeline)
    orderly = complete or (ended is not None and ended.ended is not None)
    account = compute_account(timeline, wall_s, orderly=orderly)
    if account is None:
        return None
    # Categories that may hold time nobody measured: zero there would be a claim.
    unmeasured = {"cudagraph_capture"} if has_gpu(timeline) is not False else set[str]()
    return GoodputSection(
        wall_s=account.wall_ns / 1e9,
        goodput_s=None if account.goodput_ns is None else account.goodput_ns / 1e9,
        badput_s={
            name: None if not taken and name in unmeasured else taken / 1e9
            for name, taken in account.badput_ns.items()
        },
        fraction=account.fraction,
    )


def make_recompile_test(timeline: Timeline) -> Callable[[Compile], bool]:
    """Make a test of a compile: its seconds are the cost of a failed guard. Those of the attempt
    that hits the limit are, which is no recompile. The backward of a recompiled graph is compiled
    under the id of its forward."""

    def get_plain_id(attempt: Compile) -> tuple[int, int, str]:
        return attempt.process, attempt.epoch, attempt.compile_id.partition("_")[0]

    ids = {
        get_plain_id(attempt)
        for attempt in timeline.compiles
        if attempt.kind in ("recompile", "limit") or attempt.recompile is not None
    }
    return lambda attempt: get_plain_id(attempt) in ids


def _round_ns(seconds: float) -> int:
    return max(0, round(seconds * 1e9)) if math.isfinite(seconds) else 0


def _list_compile_intervals(timeline: Timeline, compiles: Iterable[Compile]) -> list[Interval]:
    """List each attempt, and our own analysis inside it, which is not part of its seconds."""
    is_again = make_recompile_test(timeline)
    intervals: list[Interval] = []
    for attempt in compiles:
        category = "recompile" if is_again(attempt) else "compile_first"
        again = attempt.recompile
        analysis_s = again.analysis_s if again is not None else 0.0
        begin = attempt.t - attempt.seconds
        if again is not None and again.t >= begin:
            begin -= analysis_s
        intervals.append(Interval(_round_ns(begin), _round_ns(attempt.t), _COMPILE_DEPTH, category))
        if again is not None and analysis_s:
            begin, end = _round_ns(again.t - analysis_s), _round_ns(again.t)
            intervals.append(Interval(begin, end, _COMPILE_DEPTH + 1, MEASURING))
    return intervals


def _list_span_intervals(timeline: Timeline, process: int) -> list[Interval]:
    """List the spans of the process's main thread as intervals."""
    return [
        Interval(
            _round_ns(span.start),
            _round_ns(span.start + span.wall_s),
            span.depth,
            CATEGORY_OF.get(span.name, span.name),
        )
        for span in select_spans(timeline, process)
        if span.thread == MAIN_THREAD and span.name not in PRODUCTIVE
    ]


def _measure_inside_steps(
    steps: Sequence[Step], covered: Sequence[Interval], wall: int, floor: int = 0
) -> tuple[int, int]:
    """Measure uncovered nanoseconds in the steps after `floor`: (productive, waiting for data)."""
    good = waited = first = 0
    last_end = floor
    for step in steps:
        end = min(_round_ns(step.end), wall)
        start = max(_round_ns(step.end - step.wall_s), last_end)
        free, marked = end - start, 0
        while first < len(covered) and covered[first].end <= start:
            first += 1
        index = first
        while index < len(covered) and covered[index].start < end:
            interval = covered[index]
            inside = max(0, min(interval.end, end) - max(interval.start, start))
            free -= inside
            # A span for data is in the step's wait for data too.
            marked += inside if interval.category == "data_wait" else 0
            index += 1
        if free > 0:
            waiting = min(max(0, _round_ns(step.data_wait_s or 0.0) - marked), free)
            waited += waiting
            good += free - waiting
        last_end = max(last_end, end)
    return good, waited


def _measure_startup(
    compiles: Sequence[Compile], steps: Sequence[Step], observed: int, covered: Sequence[Interval]
) -> int:
    """Measure uncovered nanoseconds before the work began: before the first step or compile."""
    begins = [attempt.t - attempt.seconds for attempt in compiles]
    begins += [step.end - step.wall_s for step in steps]
    begin = min((_round_ns(begin) for begin in begins if math.isfinite(begin)), default=observed)
    return max(0, begin - sum(max(0, min(part.end, begin) - part.start) for part in covered))


def flatten_intervals(intervals: Iterable[Interval], wall: int) -> list[Interval]:
    """Flatten to disjoint intervals in time order: of overlapping ones the deepest, then latest."""
    waiting = sorted(intervals, key=lambda part: part.start)
    edges = sorted({min(edge, wall) for part in waiting for edge in (part.start, part.end)})
    flat: list[Interval] = []
    active: list[tuple[int, int, int, Interval]] = []
    place = 0
    for start, end in itertools.pairwise(edges):
        while place < len(waiting) and waiting[place].start <= start:
            part = waiting[place]
            heapq.heappush(active, (-part.depth, -part.start, place, part))
            place += 1
        while active and active[0][3].end <= start:
            heapq.heappop(active)
        if active:
            top = active[0][3]
            flat.append(Interval(start, end, top.depth, top.category))
    return flat
