"""A run against what the baseline knows: what is worse, what is better, what is allowed.

The same fault is told once: a count fails only where no cause, break, fallback or frame explains
why it grew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from compilediag.compare.gate.baseline import KnownFrame, LaneBaseline
from compilediag.compare.gate.entries import (
    break_item,
    cause_item,
    fallback_item,
    frame_item,
    plural,
)
from compilediag.compare.gate.judgement import Changes, Item, Kind
from compilediag.compare.keys import FrameKey
from compilediag.compare.run_baseline import RunBaseline, is_own
from compilediag.receipt.schema.receipt import Receipt


def changes(
    receipt: Receipt,
    seen: RunBaseline,
    whole: RunBaseline,
    baseline: LaneBaseline,
    *,
    own_code_only: bool,
) -> Changes:
    """Compares item by item. `seen` is what is judged; `whole` is everything that happened, and
    says what is gone."""
    worse, known = _sorted_out(receipt, seen, baseline)
    better = [*_gone(whole.lane, baseline, own_code_only=own_code_only)]
    more = _frames(seen, baseline, own_code_only=own_code_only)
    splits = any(item.kind in ("break", "fallback") for item in worse)
    notices = list(more.notices)
    if more.items and splits:
        # A graph break splits a function into several frames: these are its consequence.
        names = ", ".join(dict.fromkeys(f"{item.function}" for item in more.items))
        notices.append(
            f"{plural(len(more.items), 'more frame')} compiled ({names}): the new graph breaks "
            "and fallbacks come first"
        )
    else:
        worse += more.items
    if not own_code_only:
        worse += _recordings(seen.lane, baseline)
        grown, shrunk = _counts(seen.lane.counts, baseline.counts, worse, better, more)
        worse, better = [*worse, *grown], [*better, *shrunk]
    return Changes(tuple(worse), tuple(better), tuple(known), tuple(notices))


def _sorted_out(
    receipt: Receipt, seen: RunBaseline, baseline: LaneBaseline
) -> tuple[list[Item], list[Item]]:
    """Causes, breaks and fallbacks of the run: those that fail, and those that are allowed."""
    worse: list[Item] = []
    known: list[Item] = []
    causes = {item.key: item for item in baseline.causes}
    for key in seen.causes:
        old = causes.get(key)
        item = cause_item(receipt, seen, key, old.recompiles if old is not None else 0)
        _sort(item, old.reason if old is not None else None, worse, known)
    sites = {item.key: item for item in baseline.breaks}
    for key in seen.breaks:
        old = sites.get(key)
        item = break_item(receipt, seen, key, old.sites if old is not None else 0)
        _sort(item, old.reason if old is not None else None, worse, known)
    eager = {item.key: item for item in baseline.fallbacks}
    for fallback in seen.lane.fallbacks:
        old = eager.get(fallback.key)
        item = fallback_item(receipt, seen, fallback.key, compared=old is None)
        item = item if old is None else replace(item, before=1)
        _sort(item, old.reason if old is not None else None, worse, known)
    return worse, known


def _sort(item: Item, reason: str | None, worse: list[Item], known: list[Item]) -> None:
    if (item.after or 0) > (item.before or 0):
        worse.append(replace(item, reason=reason))
    else:
        known.append(replace(item, reason=reason))


def _gone(now: LaneBaseline, baseline: LaneBaseline, *, own_code_only: bool) -> Iterable[Item]:
    """What the baseline knows and the run does less often, or no more."""
    causes = {item.key: item.recompiles for item in now.causes}
    for cause in baseline.causes:
        key, after = cause.key, causes.get(cause.key, 0)
        if after < cause.recompiles and _asked(key.file, own_code_only):
            told = f"{key.variable} made torch compile again"
            place = key.file, key.function
            item = _better("cause", key.rule, told, cause.recompiles, after, *place)
            yield replace(item, variable=key.variable)
    sites = {item.key: item.sites for item in now.breaks}
    for site in baseline.breaks:
        key, after = site.key, sites.get(site.key, 0)
        if after < site.sites and _asked(key.file, own_code_only):
            told = f"graph break in {key.function}: {key.reason}"
            item = _better("break", "graph_breaks", told, site.sites, after, key.file, key.function)
            yield replace(item, detail=key.reason)
    eager = {item.key for item in now.fallbacks}
    for fallback in baseline.fallbacks:
        key = fallback.key
        if key not in eager and _asked(key.file, own_code_only):
            told = f"{key.function} runs eager"
            yield _better("fallback", "eager_fallbacks", told, 1, 0, key.file, key.function)


def _better(
    kind: Kind,
    rule: str,
    told: str,
    before: int,
    after: int,
    file: str | None,
    function: str | None,
) -> Item:
    how = "no more" if not after else "less often"
    return Item(
        kind=kind,
        rule=rule,
        message=f"{how}: {told} ({before} → {after})",
        before=before,
        after=after,
        file=file,
        function=function,
    )


def _asked(file: str | None, own_code_only: bool) -> bool:
    return not own_code_only or is_own(file)


class _More(Struct, frozen=True):
    """First compiles beyond the baseline's."""

    items: tuple[Item, ...]
    total: int
    """How many more than the baseline's, over all frames; 0 or less: not more."""
    notices: tuple[str, ...] = ()


def _frames(seen: RunBaseline, baseline: LaneBaseline, *, own_code_only: bool) -> _More:
    """Frames that are compiled more often, recompiles aside: only where the total grew, so that a
    function that was renamed or moved does not fail. A frame that no longer runs eager may."""
    known = {item.key: item for item in baseline.frames if _asked(item.key.file, own_code_only)}
    eager = {item.key for item in baseline.fallbacks} - {item.key for item in seen.lane.fallbacks}
    judged = [item for item in seen.lane.frames if item.key not in eager]
    before = sum(_firsts(item) for key, item in known.items() if key not in eager)
    total = sum(_firsts(item) for item in judged) - before
    pairs = [(item.key, _firsts_of(known, item.key), _firsts(item)) for item in judged]
    grown = [(key, old, new) for key, old, new in pairs if new > old]
    if total > 0:
        return _More(tuple(frame_item(seen, key, old, new) for key, old, new in grown), total)
    if grown:
        names = ", ".join(dict.fromkeys(key.function for key, _, _ in grown))
        said = f"compiled where the baseline has other frames, and no more in all: {names}"
        return _More((), total, (said,))
    return _More((), total)


def _firsts(item: KnownFrame) -> int:
    return max(0, item.compiles - item.recompiles)


def _firsts_of(known: Mapping[FrameKey, KnownFrame], key: FrameKey) -> int:
    return _firsts(known[key]) if key in known else 0


def _recordings(now: LaneBaseline, baseline: LaneBaseline) -> list[Item]:
    before, after = baseline.recordings, now.recordings
    if before is None or after is None or after <= before:
        return []
    said = f"{plural(after, 'CUDA-graph recording')}; the baseline has {before}"
    return [Item("recording", "recordings", said, before, after)]


_EXPLAINED_BY: Mapping[str, tuple[Kind, ...]] = {
    "frames": ("frame", "break", "fallback"),
    "compiles": ("cause", "frame", "break", "fallback"),
    "recompiles": ("cause",),
    "graphs": ("cause", "frame", "break", "fallback"),
    "graph_breaks": ("break",),
    "eager_fallbacks": ("fallback",),
    "recompile_limit_hits": ("fallback", "cause"),
}
"""Kinds of items that say why a count changed: then the count itself is no item of its own."""


def _counts(
    now: Mapping[str, int],
    baseline: Mapping[str, int],
    worse: Iterable[Item],
    better: Iterable[Item],
    more: _More,
) -> tuple[list[Item], list[Item]]:
    """Counts that grew or shrank and that no item explains."""
    blamed, mended = {item.kind for item in worse}, {item.kind for item in better}
    recovered = "fallback" in mended and more.total <= 0
    grown: list[Item] = []
    shrunk: list[Item] = []
    for name, after in now.items():
        before = baseline.get(name)
        if before is None or before == after:
            continue
        kinds = _EXPLAINED_BY.get(name, ())
        if after > before and not blamed.intersection(kinds):
            # A frame that no longer runs eager is compiled instead: that is no regression.
            if not (recovered and name in ("frames", "compiles", "graphs")):
                grown.append(_count(name, before, after))
        elif after < before and not mended.intersection(kinds):
            shrunk.append(_count(name, before, after))
    return _most_telling(grown), shrunk


def _most_telling(grown: list[Item]) -> list[Item]:
    """Of counts that grew together the one that says most: a recompile is a compile and a graph."""
    names = {item.rule for item in grown}
    for implied, by in (
        ("graphs", {"compiles", "recompiles", "frames"}),
        ("compiles", {"recompiles", "frames"}),
    ):
        if names & by:
            grown = [item for item in grown if item.rule != implied]
    return grown


def _count(name: str, before: int, after: int) -> Item:
    said = f"{name.replace('_', ' ')}: {after}, and the baseline has {before}"
    return Item("count", name, said, before, after)
