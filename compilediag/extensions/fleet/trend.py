"""Finds the measures of a configuration that took a lasting step, and the receipt it began with.

Exact counts change when they stay at another value; what varies by itself is tested, and all tests
of a trend together have one false alarm in twenty trends at most. Timings and memory are compared
on one machine only. See docs/reference/stats.md for the statistics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import groupby, pairwise
from statistics import fmean, median
from typing import NamedTuple

from compilediag.extensions.fleet import noisy_steps
from compilediag.extensions.fleet.changes import FactChange, LevelChange, Series, Trend, make_mark
from compilediag.extensions.fleet.entry import (
    SOFTWARE,
    Entry,
    choose_throughput,
    group_by_config,
    label_configs,
)
from compilediag.extensions.fleet.measures import CHECKS, MEASURES, THROUGHPUTS, Measure

POINTS = 24
"""Of the picture of a series."""

_OTHER_LENGTH = 1.5
"""A run with so many times the steps, or so many times fewer, is reported as another length."""


class Rules(NamedTuple):
    """Settings of a trend: what it follows, and what it reports."""

    last: int | None = 1000
    """Only so many receipts of each configuration, the newest; None for all."""
    at_least: float | None = None
    """Smaller changes of noisy measures are left out, as a share; None: as each measure has it."""
    any_status: bool = False
    """Whether runs that did not end well are followed as well."""
    measures: tuple[str, ...] = ()
    """Only these; all for none."""
    chance: float = 0.05
    """Highest probability of any false alarm in the whole trend."""


DEFAULT = Rules()


class _Part(NamedTuple):
    """The receipts of one series."""

    measure: Measure
    machine: str | None
    entries: list[Entry]

    @property
    def values(self) -> list[float]:
        return [entry.values[self.measure.name] for entry in self.entries]


def compute_trends(entries: Sequence[Entry], rules: Rules = DEFAULT) -> tuple[Trend, ...]:
    """Compute each configuration's trend: its series and their changes; `entries` in time order."""
    last = slice(-rules.last if rules.last else None, None)
    groups = {config: members[last] for config, members in group_by_config(entries).items()}
    parts = {config: list(_split_series(members, rules)) for config, members in groups.items()}
    tests = sum(_is_tested(part) for series in parts.values() for part in series)
    chance = rules.chance / max(tests, 1)  # Bonferroni: over all tests of the trend together
    labels = label_configs(groups)
    sizes = Counter(entry.configuration for entry in entries)
    needed = noisy_steps.compute_min_values(chance)
    trends: list[Trend] = []
    for config, members in groups.items():
        reasons = Counter(reason for entry in members if (reason := _explain_unused(entry, rules)))
        trends.append(
            Trend(
                lane=config,
                label=labels[config],
                receipts=len(members),
                first=members[0].created,
                last=members[-1].created,
                older=sizes[config] - len(members),
                left_out=dict(reasons.most_common()),
                needed=needed,
                series=tuple(_build_series(part, rules, chance, needed) for part in parts[config]),
            )
        )
    return tuple(trends)


def _explain_unused(entry: Entry, rules: Rules) -> str | None:
    """Explain why a receipt is not followed; None where it is."""
    if entry.created_s is None:
        return "without a time"
    return None if rules.any_status or entry.status == "complete" else entry.status


def _split_series(members: Sequence[Entry], rules: Rules) -> Iterable[_Part]:
    """Split one configuration into series: one a measure, and of noisy ones one a machine."""
    timed = [entry for entry in members if entry.created_s is not None]
    used = [entry for entry in timed if _explain_unused(entry, rules) is None]
    throughput = choose_throughput([entry.values for entry in used])
    for measure in MEASURES:
        if rules.measures and measure.name not in rules.measures:
            continue
        if measure.name in THROUGHPUTS and measure.name != throughput and not rules.measures:
            continue
        source = timed if measure.name == CHECKS else used
        having = [entry for entry in source if measure.name in entry.values]
        if measure.kind == "noisy":
            for machine in dict.fromkeys(entry.machine for entry in having):
                yield _Part(measure, machine, [e for e in having if e.machine == machine])
        elif having:
            yield _Part(measure, None, having)


def _is_tested(part: _Part) -> bool:
    """True if a series is noisy; one that never moves is not, whatever its measure."""
    if len(part.entries) < 2 * noisy_steps.SHORTEST or len(set(part.values)) == 1:
        return False
    return part.measure.kind != "count" or find_levels(list(map(int, part.values))) is None


def _build_series(part: _Part, rules: Rules, chance: float, needed: int) -> Series:
    values, shares = part.values, part.measure.kind == "share"
    centre = fmean if shares else median
    levels = find_levels(list(map(int, values))) if part.measure.kind == "count" else None
    noise: float | None = 0.0
    if levels is not None:
        changes = list(_list_count_changes(part, levels))
        level: float = levels.levels[-1].value
    else:
        # The steps of a noisy series, the level behind the last one, and the noise around it.
        least = part.measure.min_change if rules.at_least is None else rules.at_least
        steps: tuple[noisy_steps.LevelStep, ...] = ()
        if _is_tested(part) and len(values) >= needed:
            # Equal values in an order that has nothing to do with time.
            ids = [entry.receipt_id.encode("utf-8", "replace") for entry in part.entries]
            ties = [int(blake2b(one, digest_size=8).hexdigest(), 16) for one in ids]
            rule = noisy_steps.StepRule(chance, least, shares)
            steps = noisy_steps.find_steps(values, ties, rule)
        ends = [*(step.at for step in steps[1:]), len(values)]
        spans = zip(steps, ends, strict=False)
        changes = [_build_change(part, step, end - step.at) for step, end in spans]
        rest = values[steps[-1].at if steps else 0 :]
        level, noise = centre(rest), None
        if level and not shares:
            noise = median([abs(value - level) for value in rest]) / abs(level)
    # Each change with the one that took it back, if any did: its level is at or beyond the one
    # before, but for differences too small to be reported.
    ended: list[LevelChange] = []
    for index, change in enumerate(changes):
        slack = part.measure.min_change * (1.0 if shares else abs(change.before))
        later = [other for other in changes[index + 1 :] if other.lasting]
        if change.after > change.before:
            back = (other for other in later if other.after <= change.before + slack)
        else:
            back = (other for other in later if other.after >= change.before - slack)
        end = next(back, None)
        ended.append(change if end is None else change._replace(undone=end.first))
    size = max(1, -(-len(values) // POINTS))
    pieces = (values[start : start + size] for start in range(0, len(values), size))
    return Series(
        measure=part.measure.name,
        machine=part.machine,
        receipts=len(values),
        level=level,
        noise=noise,
        points=tuple(centre(piece) for piece in pieces),
        changes=tuple(ended),
        enough=levels is not None or len(values) >= needed,
    )


def _list_count_changes(part: _Part, levels: Levels) -> Iterable[LevelChange]:
    known = levels.levels
    for old, new in pairwise(known):
        places = noisy_steps.LevelStep(new.start, old.stop, new.start, old.value, new.value, 0.0)
        yield _build_change(part, places, new.stop - new.start)._replace(chance=None)
    if levels.began is not None:
        at, number = levels.began, len(part.entries)
        after = part.values[-1]
        places = noisy_steps.LevelStep(at, at, at, known[-1].value, after, 0.0)
        yield _build_change(part, places, number - at)._replace(chance=None, lasting=False)


def _build_change(part: _Part, step: noisy_steps.LevelStep, receipts: int) -> LevelChange:
    entries = part.entries
    before, behind = entries[step.earliest - 1], entries[step.latest]
    return LevelChange(
        measure=part.measure.name,
        machine=part.machine,
        before=step.before,
        after=step.after,
        worse=(step.after < step.before) == part.measure.higher_is_better,
        lasting=True,
        last_before=make_mark(before),
        first=make_mark(entries[step.at]),
        earliest=make_mark(entries[step.earliest]),
        latest=make_mark(behind),
        candidates=step.latest - step.earliest + 1,
        receipts=receipts,
        undone=None,
        chance=step.chance,
        also=tuple(_list_fact_changes(before, behind, with_machine=part.machine is None)),
    )


def _list_fact_changes(before: Entry, behind: Entry, *, with_machine: bool) -> Iterable[FactChange]:
    for name in SOFTWARE:
        old, new = dict(before.software).get(name), dict(behind.software).get(name)
        if old != new:
            yield FactChange(name, old, new)
    if with_machine and before.machine != behind.machine:
        yield FactChange("machine", before.machine, behind.machine)
    shorter, longer = sorted((before.steps or 0, behind.steps or 0))
    if shorter and longer >= _OTHER_LENGTH * shorter:
        yield FactChange("steps of the run", str(before.steps), str(behind.steps))


# --- exact counts, which have no noise: a count that stays at another value has changed ----------

SHORTEST_LEVEL = 3
STRAY_CHANCE = 0.01

MAX_STRAYS = 0.1
"""Share of receipts beside their level, above which there are no levels; one is always allowed."""


class Level(NamedTuple):
    """A count that lasted: from `start` to before `stop`, some single receipts left out."""

    start: int
    stop: int
    value: int


class Levels(NamedTuple):
    """A series of counts as levels."""

    levels: tuple[Level, ...]
    strays: int
    """Receipts beside their level, or before the first one."""
    began: int | None
    """Index from which on the newest receipts left the last level, too few to call it lasting; None
    where they are at it, or where that many strays are nothing new."""


def find_levels(counts: Sequence[int]) -> Levels | None:
    """Find the levels of a series; None where it has none, or strays from them too often.

    A level is a value that several receipts in a row have. How many: at least `SHORTEST_LEVEL`;
    where single receipts stray from the levels, so many that strays are the same value in a row,
    anywhere in the series, with a probability of `STRAY_CHANCE` at most (the number of receipts
    times the share of strays to the power of that number). A series that strays often is no series
    of levels: see `noisy_steps`.
    """
    length = SHORTEST_LEVEL
    for _ in range(len(counts)):
        result = _build_levels(counts, length)
        if not result.levels or result.strays > max(MAX_STRAYS * len(counts), 1):
            return None
        # Strays in a row that are no accident: size * (strays / size) ** runs <= STRAY_CHANCE.
        longer, size = SHORTEST_LEVEL, len(counts)
        if result.strays:
            runs = math.log(size / STRAY_CHANCE) / math.log(size / result.strays)
            longer = max(SHORTEST_LEVEL, math.ceil(runs))
        if longer <= length:
            return result
        length = longer
    return None


def _build_levels(counts: Sequence[int], length: int) -> Levels:
    runs: list[Level] = []
    stop = 0
    for value, members in groupby(counts):
        start, stop = stop, stop + sum(1 for _ in members)
        if stop - start < length:
            continue
        if runs and runs[-1].value == value:
            runs[-1] = runs[-1]._replace(stop=stop)
        else:
            runs.append(Level(start, stop, value))
    if not runs:
        return Levels((), len(counts), None)
    end = _find_end(counts, runs[-1], len(counts))
    begins = [*(run.start for run in runs[1:]), end]
    levels = tuple(
        run._replace(stop=_find_end(counts, run, begin))
        for run, begin in zip(runs, begins, strict=True)
    )
    at_level = sum(counts[level.start : level.stop].count(level.value) for level in levels)
    newest, strays = len(counts) - end, end - at_level
    if (strays / end) ** newest > STRAY_CHANCE:  # no more than strays do here
        return Levels(levels, strays + newest, None)
    return Levels(levels, strays, end if newest else None)


def _find_end(counts: Sequence[int], run: Level, end: int) -> int:
    """Find the index behind the last receipt before `end` that is at the level of the run."""
    while counts[end - 1] != run.value:
        end -= 1
    return end
