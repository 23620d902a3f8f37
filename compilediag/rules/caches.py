"""Compile caches that every start passes by, cannot write, or half misses (CD611, CD613, CD614)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compilediag.diagnosis.figures.compile_costs import classify_phase
from compilediag.diagnosis.findings import Finding
from compilediag.rules.make_finding import format_more, make_finding, pick, shorten
from compilediag.timeline.compiles import CompileId, get_compile_id
from compilediag.timeline.timeline import Compile, Timeline
from compilediag_harness.wire import (
    AOT_AUTOGRAD,
    BYPASS,
    FX_GRAPH,
    HIT,
    MISS,
    CacheLookedUp,
    CacheWritten,
    Location,
)

LARGE_OPS = 50
"""Operations that torch traces again at every start from which on a bypass is a warning: that takes
10 to 25 ms for each, so about a second a start. It is a count, so that a program gives the same on
every machine."""

LOST_CACHE_S = 600.0
"""Compile seconds from which on a cache folder that does not last is worth a note: where torch
chooses the folder, it lies below the temporary one for everybody."""

VOLATILE = frozenset({"tmpfs", "ramfs", "overlay"})
"""Filesystems that are gone with the machine or the container."""

_FOLDER_REFUSES = re.compile(
    r"\[Errno \d+\]|(?:OS|IO|Permission|NotADirectory|IsADirectory|FileNotFound|FileExists)Error"
)

_TRACED_AGAIN = frozenset({"aot_autograd", "graph_passes"})
"""Phases that a hit of AOTAutograd's cache saves beyond those of a compiled graph's."""

_COMPILED_AGAIN = _TRACED_AGAIN | {
    *("backend", "lowering", "code_generation", "kernel_builds", "autotuning")
}
_SHOWN, _SHOWN_IDS = 5, 20


class Reason(NamedTuple):
    """A known reason of torch not to cache."""

    kind: str
    pattern: str
    """In torch's words, from 2.7 on."""
    title: str
    fix: str
    chosen: bool = False
    """A setting asks for it: it is no news to whoever set it."""
    caveat: str | None = None


REASONS = (
    Reason(
        "autocast",
        r"_enter_autocast|_exit_autocast",
        "autocast inside the compiled code",
        "leave it; or, where all of the call may run under it, enter torch.autocast around the "
        "call of the compiled function",
    ),
    Reason(
        "checkpoint_policy",
        r"SAC context_fn does not have a cache_hash",
        "selective checkpointing without a cache_hash",
        "set context_fn.cache_hash to a text that changes whenever the policy does",
    ),
    Reason(
        "custom_pass",
        r"Unsupported (?:pre grad|post grad|joint) custom pass",
        "a custom graph pass without a uuid",
        "make the custom pass a torch._inductor.custom_graph_pass.CustomGraphPass whose uuid() "
        "changes whenever its code does",
    ),
    Reason(
        "autograd_function",
        r"autograd_function_apply|FunctionCtx",
        "a custom autograd.Function",
        "set torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True",
        caveat="torch hashes the function's name and not its code: after an edit of it, empty the "
        "cache; torch 2.7 has no such setting",
    ),
    Reason(
        "freezing",
        r"freezing enabled|frozen constants|mkldnn tensors",
        "weights frozen into the graph",
        "nothing to change: a graph with frozen weights is compiled at every start",
        chosen=True,
    ),
    Reason(
        "cache_off",
        r"FX graph cache is not enabled",
        "inductor's cache is switched off",
        "leave TORCHINDUCTOR_FX_GRAPH_CACHE and torch._inductor.config.fx_graph_cache on",
        chosen=True,
    ),
    Reason(
        "bisector",
        r"bisector enabled",
        "torch's compiler bisector is active",
        "nothing to change: the cache is used again without it",
        chosen=True,
    ),
    Reason(
        "operator",
        r"Can't cache HigherOrderOperator|torch\.ops\.higher_order",
        "an operator that torch does not cache",
        "no change is known (torch: {said}); compile the rest of the model in functions of its "
        "own, which are cached",
    ),
)
"""The first that matches counts. Each fix is followed by a test, but for those of `chosen` and of
"operator", which torch owns."""

_UNKNOWN = Reason(
    "unknown",
    "",
    "torch refuses to cache the graph",
    "no change is known; torch says: {said}",
)


def find_reason(text: str) -> Reason:
    """Find the known reason that torch's words are; one without advice where none is."""
    return next((reason for reason in REASONS if re.search(reason.pattern, text)), _UNKNOWN)


def find_bypasses(timeline: Timeline) -> Iterable[Finding]:
    """CD611: one finding for each known reason, and each of torch's words that is none."""
    groups: dict[tuple[Reason, str], list[CacheLookedUp]] = {}
    passed = [lookup for lookup in _list_lookups(timeline) if lookup.outcome == BYPASS]
    inductors = {get_compile_id(lookup): lookup.reason for lookup in passed if lookup.reason}
    for lookup in passed:
        # torch 2.7 gives AOTAutograd's no words where inductor's cache is what refuses.
        said = lookup.reason or inductors.get(get_compile_id(lookup), "")
        reason = find_reason(said)
        groups.setdefault((reason, said if reason is _UNKNOWN else ""), []).append(lookup)
    for (reason, said), lookups in groups.items():
        everything = any(lookup.cache == FX_GRAPH for lookup in lookups)  # the compiled graph too
        compiles = _list_compiles(timeline, lookups)
        operations = sum(event.graph_ops or 0 for event in compiles if event.forward)
        reasons = dict.fromkeys(lookup.reason for lookup in lookups if lookup.reason)
        words = said or next(iter(reasons), "")
        yield make_finding(
            timeline,
            "CD611",
            f"{reason.title}: every start {'compiles' if everything else 'traces'} "
            f"{_format_functions(compiles)} again",
            reason.fix.replace("{said}", shorten(words, 150) or "nothing about why"),
            caveat=reason.caveat,
            location=_find_location(compiles),
            severity="warning" if operations >= LARGE_OPS and not reason.chosen else "info",
            count=len({(lookup.epoch, lookup.compile_id) for lookup in lookups}),
            steps=[event.step for event in compiles],
            cost_s=_sum_phase_seconds(compiles, _COMPILED_AGAIN if everything else _TRACED_AGAIN),
            evidence={
                "kind": reason.kind,
                "caches": list(dict.fromkeys(lookup.cache for lookup in lookups)),
                "reasons": list(reasons)[:_SHOWN],
                "compile_ids": _list_compile_ids(lookups),
                "operations": operations,
            },
        )


def find_unwritten(timeline: Timeline) -> Iterable[Finding]:
    """CD613: entries that could not be written; a folder that does not last."""
    folder = next((part.folder for part in timeline.caches if part.folder is not None), None)
    failed = [write for part in timeline.caches for write in part.writes or () if write.problem]
    refused = [write for write in failed if _FOLDER_REFUSES.search(write.problem)]
    where = f" {folder.folder}" if folder is not None else ""
    writable = (
        f"make the cache folder{where} writable, or set TORCHINDUCTOR_CACHE_DIR to a folder that is"
    )
    kinds = (
        ("not_written", refused, writable),
        (
            "not_serialized",
            [write for write in failed if write not in refused],
            "no change is known: torch could not serialize what it compiled",
        ),
    )
    for kind, writes, fix in kinds:
        if writes:
            count = "an entry" if len(writes) == 1 else f"{len(writes)} entries"
            yield make_finding(
                timeline,
                "CD613",
                f"torch could not write {count} into its compile caches: the next start compiles "
                "again",
                fix,
                count=len(writes),
                evidence={
                    "kind": kind,
                    "problems": list(dict.fromkeys(write.problem for write in writes))[:_SHOWN],
                    "compile_ids": _list_compile_ids(writes),
                },
            )
    seconds = sum(event.seconds for event in timeline.compiles)
    if folder is None or failed or seconds < LOST_CACHE_S:
        return
    if folder.filesystem in VOLATILE:
        place = f"a {folder.filesystem} filesystem"
    elif folder.temporary:
        place = "the temporary folder"
    else:
        return
    yield make_finding(
        timeline,
        "CD613",
        f"the compile caches are on {place}: {seconds:.0f} s of compiled code may be gone at the "
        "next start",
        "set TORCHINDUCTOR_CACHE_DIR to a folder that lasts",
        severity="info",
        evidence={
            "kind": "not_lasting",
            **pick(folder, "folder", "configured", "temporary", "filesystem"),
        },
    )


def find_half_hits(timeline: Timeline) -> Iterable[Finding]:
    """CD614: AOTAutograd's cache has an entry, and the graphs that it names are gone."""
    missed = [lookup for lookup in _list_lookups(timeline) if lookup.outcome == MISS]
    # torch 2.7 does not record that AOTAutograd had an entry, but the look for its graph.
    gone = {get_compile_id(lookup) for lookup in missed if lookup.within == AOT_AUTOGRAD}
    first: dict[CompileId, CacheLookedUp] = {}
    for lookup in missed:
        if lookup.cache == AOT_AUTOGRAD:
            first.setdefault(get_compile_id(lookup), lookup)
    dangling = [it for key, it in first.items() if it.status == HIT or key in gone]
    if dangling:
        compiles = _list_compiles(timeline, dangling)
        yield make_finding(
            timeline,
            "CD614",
            f"the cache entry of {_format_functions(compiles)} refers to graphs that are gone",
            "keep the folders aotautograd and fxgraph of the cache together: empty both or neither",
            location=_find_location(compiles),
            count=len(dangling),
            steps=[event.step for event in compiles],
            cost_s=_sum_phase_seconds(compiles, _COMPILED_AGAIN),
            evidence={"kind": "dangling", "compile_ids": _list_compile_ids(dangling)},
        )


def _list_lookups(timeline: Timeline) -> list[CacheLookedUp]:
    return [lookup for part in timeline.caches for lookup in part.lookups]


def _list_compiles(timeline: Timeline, lookups: Iterable[CacheLookedUp]) -> list[Compile]:
    ids = {*map(get_compile_id, lookups)}
    return [event for event in timeline.compiles if event.id in ids and event.has_row]


def _format_functions(compiles: Iterable[Compile]) -> str:
    functions = list(dict.fromkeys(event.frame.function for event in compiles if event.forward))
    return f"`{functions[0]}`{format_more(len(functions))}" if functions else "a graph"


def _find_location(compiles: Iterable[Compile]) -> Location | None:
    frames = (event.frame for event in compiles if event.forward and event.frame.file)
    return next(frames, None)


def _sum_phase_seconds(compiles: Sequence[Compile], phases: frozenset[str]) -> float | None:
    """Sum the seconds of these phases; None where torch's timing was not seen."""
    if not compiles or any(event.phases is None for event in compiles):
        return None
    timed = [pair for event in compiles for pair in event.phases or ()]
    return sum(seconds for name, seconds in timed if classify_phase(name) in phases)


def _list_compile_ids(accesses: Iterable[CacheLookedUp | CacheWritten]) -> list[str]:
    return list(dict.fromkeys(access.compile_id for access in accesses))[:_SHOWN_IDS]
