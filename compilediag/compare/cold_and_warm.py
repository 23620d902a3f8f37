"""A comparison of two starts of a program: what the second compiles again, why, and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import NamedTuple

from compilediag.diagnosis.figures.caches import OF_GRAPHS, summarize_caches
from compilediag.diagnosis.figures.compile_costs import sum_compile_seconds
from compilediag.diagnosis.figures.key_difference import (
    KeyChange,
    describe_changes,
    describe_remedy,
    find_key_changes,
)
from compilediag.diagnosis.findings import Finding
from compilediag.receipt.schema.comparisons import (
    ColdAndWarmSection,
    CompiledAgainRecord,
    WhyCompiledAgain,
)
from compilediag.rules.make_finding import make_finding
from compilediag.timeline.compiles import ProcessCaches
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import BYPASS, DISABLED, FAILED, HIT, CacheLookedUp, Location

OUTCOMES = ("hits", "misses", "bypasses", "disabled", "failed")
MAX_AGAIN, MAX_CHANGES = 100, 20  #: Most compiles listed, and components of each.
GUARD_MISS = "guard_miss"

_REFUSED: tuple[tuple[str, WhyCompiledAgain, str], ...] = (
    (BYPASS, "bypass", "torch does not cache it"),
    (DISABLED, "disabled", "its cache is switched off"),
    (FAILED, "failed", "the cache failed"),
)


class CompiledAgain(NamedTuple):
    """A compile of the second start that was not taken from a cache."""

    record: CompiledAgainRecord
    frame: Location | None
    changes: tuple[KeyChange, ...]  #: Components that differ; empty: the same key, or none known.


class ColdAndWarm(NamedTuple):
    """Two starts, compared."""

    section: ColdAndWarmSection
    again: tuple[CompiledAgain, ...] = ()  #: All of them; the section lists the first.


def make_not_concluded(problem: str) -> ColdAndWarm:
    """Build the outcome of starts that cannot be compared."""
    return ColdAndWarm(ColdAndWarmSection(verdict="not_concluded", problem=problem))


def conclude(cold: Timeline, warm: Timeline, folder: str) -> ColdAndWarm:
    """Conclude what the second start pays again, with the caches that the first one left, which
    were empty before. `folder`: where inductor's are to lie; a program may choose another."""
    if problem := _find_problem(cold, warm, folder):
        return make_not_concluded(problem)
    cold_cost, warm_cost = sum_compile_seconds(cold.compiles), sum_compile_seconds(warm.compiles)
    again = tuple(_find_compiled_again(cold, warm))
    # Why the first start left no entries, each reason once.
    writes = (write for part in cold.caches for write in part.writes or ())
    problems = Counter(write.problem for write in writes if write.problem)
    notes = [
        f"the first start could not write {'1 entry' if times == 1 else f'{times} entries'} of a "
        f"cache: {problem}"
        for problem, times in problems.items()
    ]
    left_out = len(again) - MAX_AGAIN
    notes += [f"{left_out} more compiles are not listed"] if left_out > 0 else []
    section = ColdAndWarmSection(
        verdict="compiles_again" if again else "from_caches",
        cold_s=None if cold_cost is None else cold_cost.total,
        warm_s=None if warm_cost is None else warm_cost.total,
        cold_by_phase={} if cold_cost is None else cold_cost.by_phase,
        cold_outcomes={
            use.cache: {name: getattr(use, name) for name in OUTCOMES}
            for use in summarize_caches(cold.caches)
        },
        compiles=len(_group_by_compile(warm)),
        again=tuple(compiled.record for compiled in again[:MAX_AGAIN]),
        notes=tuple(notes),
    )
    return ColdAndWarm(section, again)


def _find_problem(cold: Timeline, warm: Timeline, folder: str) -> str | None:
    for part in (*cold.caches, *warm.caches):
        if part.folder is not None and part.folder.folder != folder:
            return (
                f"the program chose its own cache folder, {part.folder.folder}, which was not "
                "empty or is not that of the other start: leave TORCHINDUCTOR_CACHE_DIR to the "
                "environment"
            )
    if not any(compile_.has_row for compile_ in (*cold.compiles, *warm.compiles)):
        return "the program compiled nothing: no start has anything to take from a cache"
    if not _group_by_compile(warm):
        return (
            "no compile looked into a cache of graphs: only inductor has one, and this program "
            "uses another backend, or has the caches switched off"
        )
    return None


_CompileKey = tuple[int, int, str]  #: Rank or number of the process, epoch, compile id.
_Lookups = list[tuple[ProcessCaches, CacheLookedUp]]


def _group_by_compile(timeline: Timeline) -> dict[_CompileKey, _Lookups]:
    groups: dict[_CompileKey, _Lookups] = {}
    for part in timeline.caches:
        for lookup in part.lookups:
            if lookup.cache in OF_GRAPHS and lookup.compile_id:
                key = (_get_rank(timeline, part.process), lookup.epoch, lookup.compile_id)
                groups.setdefault(key, []).append((part, lookup))
    return groups


def _get_rank(timeline: Timeline, process: int) -> int:
    rank = timeline.processes[process].rank if process < len(timeline.processes) else None
    return process if rank is None else rank


def _group_compiles(timeline: Timeline) -> dict[_CompileKey, list[Compile]]:
    groups: dict[_CompileKey, list[Compile]] = {}
    for compile_ in timeline.compiles:
        key = (_get_rank(timeline, compile_.id.process), compile_.id.epoch, compile_.id.compile_id)
        groups.setdefault(key, []).append(compile_)
    return groups


def _find_compiled_again(cold: Timeline, warm: Timeline) -> Iterable[CompiledAgain]:
    before = _group_by_compile(cold)
    compiles, compiled_before = _group_compiles(warm), _group_compiles(cold)
    cold_keys = {(row.cache, row.key) for part in cold.caches for row in part.lookups}
    for key, lookups in _group_by_compile(warm).items():
        # A graph that AOTAutograd's entry referred to and that was found in the end is no compile.
        hits = {(row.cache, row.key) for _, row in lookups if row.outcome == HIT and row.key}
        others = [row for _, row in lookups if row.outcome != HIT]
        missed = [row for row in others if (row.cache, row.key) not in hits]
        if not missed:
            continue
        frame, frame_before = _find_frame(compiles.get(key)), _find_frame(compiled_before.get(key))
        same = frame is None or frame_before in (None, frame)
        # Another frame under the same id is no earlier compile of this one: no lookups then.
        why, reason, changes = _explain(lookups, missed, before.get(key, []) * same, cold_keys)
        times = [compile_.seconds for compile_ in compiles.get(key, ()) if compile_.has_row]
        record = CompiledAgainRecord(
            compile_id=key[2],
            place="" if frame is None else f"{frame.function} at {frame.file}:{frame.line}",
            why=why,
            reason=reason,
            seconds=sum(times) if times else None,
            changes={
                change.name: (change.before, change.after) for change in changes[:MAX_CHANGES]
            },
        )
        yield CompiledAgain(record, frame, changes)


def _is_stored(missed: Sequence[CacheLookedUp], before: _Lookups) -> bool:
    """True unless the first start is known to have stored none of the entries that were missed."""
    caches = {lookup.cache for lookup in missed}
    return not before or any(
        part.writes is None
        or any(
            (write.cache, write.epoch, write.compile_id)
            == (lookup.cache, lookup.epoch, lookup.compile_id)
            and not write.problem
            for write in part.writes
        )
        for part, lookup in before
        if lookup.cache in caches
    )


def _find_frame(compiles: list[Compile] | None) -> Location | None:
    return next((compile_.frame for compile_ in compiles or () if compile_.frame.file), None)


def _explain(
    lookups: _Lookups,
    missed: Sequence[CacheLookedUp],
    before: _Lookups,
    cold_keys: set[tuple[str, str]],
) -> tuple[WhyCompiledAgain, str, tuple[KeyChange, ...]]:
    """Explain why a compile was not taken from a cache; torch's own reason comes first."""
    for outcome, why, words in _REFUSED:
        for lookup in missed:
            if lookup.outcome == outcome:
                said = f": {lookup.reason}" if lookup.reason else ""
                return why, f"{words}{said}", ()
    if any(lookup.status == GUARD_MISS for lookup in missed):
        return "guard_miss", "an entry was there, for other sizes", ()
    if all((lookup.cache, lookup.key) in cold_keys for lookup in missed):
        stored = "its entry was gone" if _is_stored(missed, before) else "it stored no entry"
        return "entry_gone", f"the key is the same as in the first start, and {stored}", ()
    if not before:
        return "not_compiled_before", "the first start compiled nothing like it there", ()
    changes = _find_changes(lookups, before)
    what = describe_changes(changes) or "torch does not record in what"
    return "key_changed", f"its key is another at each start: {what}", changes


def _find_changes(lookups: _Lookups, before: _Lookups) -> tuple[KeyChange, ...]:
    """Find the changes of the first lookup, paired by cache and order, whose components differ."""
    for cache in OF_GRAPHS:
        now = [pair for pair in lookups if pair[1].cache == cache]
        then = [pair for pair in before if pair[1].cache == cache]
        # Other counts of lookups: nothing says which of them belong together.
        for (part, lookup), (part_before, lookup_before) in zip(
            now if len(now) == len(then) else (), then, strict=False
        ):
            if lookup.outcome != HIT and lookup.key != lookup_before.key:
                left, right = part_before.get_components(lookup_before), part.get_components(lookup)
                if changes := find_key_changes(left, right):
                    return changes
    return ()


NAMED = 20  #: Most components in the evidence of a finding.


def find_changing_keys(warm: Timeline, starts: ColdAndWarm) -> Iterable[Finding]:
    """Find CD612: one for each function and set of components that differ, if torch has these."""
    groups: dict[object, list[CompiledAgain]] = {}
    for compiled in starts.again:
        if compiled.changes:
            names = tuple(change.name for change in compiled.changes)
            groups.setdefault((compiled.frame, names), []).append(compiled)
    for group in groups.values():
        first, seconds = group[0], [compiled.record.seconds for compiled in group]
        name = first.frame.function if first.frame is not None else "a graph"
        yield make_finding(
            warm,
            "CD612",
            f"{name} is compiled again at every start: its cache key changes ("
            f"{describe_changes(first.changes, 2)})",
            describe_remedy(first.changes),
            location=first.frame,
            count=len(group),
            cost_s=None if None in seconds else sum(value or 0.0 for value in seconds),
            evidence={
                "compile_ids": [compiled.record.compile_id for compiled in group],
                "components": [asdict(change) for change in first.changes[:NAMED]],
                "components_left_out": max(0, len(first.changes) - NAMED),
            },
        )
