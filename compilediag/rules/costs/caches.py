"""CD611, CD613, CD614: compile caches that every start passes by, cannot write, or half misses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compilediag.diagnosis.codes import Severity
from compilediag.diagnosis.figures.compile_costs import phase_of
from compilediag.diagnosis.findings import Finding, Rule
from compilediag.rules.make_finding import and_more, make_finding
from compilediag.timeline.caches import ProcessCaches
from compilediag.timeline.timeline import Compile, CompileId, Timeline
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
        "enter torch.autocast around the call of the compiled function, not inside it",
        caveat="the whole call runs under autocast then",
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
        "no change is known: torch decides by operator; compile the rest of the model in "
        "functions of its own, which are cached",
    ),
)
"""The first that matches counts. Each fix is followed by a test, but for those of `chosen` and of
"operator", which torch owns."""

_UNKNOWN = Reason(
    "unknown",
    "",
    "torch refuses to cache the graph",
    "no change is known: torch's reason names what its cache refuses",
)


def reason_of(text: str) -> Reason:
    """The known reason that torch's words are; one without advice where none is."""
    return next((item for item in REASONS if re.search(item.pattern, text)), _UNKNOWN)


@dataclass(frozen=True, slots=True)
class _Bypassed:
    """Lookups that torch gave up for one known reason."""

    lookups: list[CacheLookedUp]
    compiles: list[Compile]

    @property
    def everything(self) -> bool:
        """Also the compiled graph is in no cache."""
        return any(item.cache == FX_GRAPH for item in self.lookups)


def find_bypasses(timeline: Timeline) -> Iterable[Finding]:
    """CD611: one finding for each known reason, and each of torch's words that is none."""
    groups: dict[tuple[str, str], list[tuple[ProcessCaches, CacheLookedUp]]] = {}
    for part in timeline.caches:
        passed = [each for each in part.lookups if each.outcome == BYPASS]
        inductors = {(each.epoch, each.compile_id): each.reason for each in passed if each.reason}
        for lookup in passed:
            # torch 2.7 gives AOTAutograd's no words where inductor's cache is what refuses.
            said = lookup.reason or inductors.get((lookup.epoch, lookup.compile_id), "")
            reason = reason_of(said)
            words = said if reason is _UNKNOWN else ""
            groups.setdefault((reason.kind, words), []).append((part, lookup))
    for items in groups.values():
        compiles = _compiles(timeline, items)
        yield _bypass(timeline, _Bypassed([lookup for _, lookup in items], compiles))


def _bypass(timeline: Timeline, found: _Bypassed) -> Finding:
    reason = reason_of(next((each.reason for each in found.lookups if each.reason), ""))
    forward = [item for item in found.compiles if item.forward]
    operations = sum(item.graph_ops or 0 for item in forward)
    severity: Severity = "warning" if operations >= LARGE_OPS and not reason.chosen else "info"
    what = "compiles" if found.everything else "traces"
    functions = list(dict.fromkeys(item.frame.function for item in forward))
    whom = f"`{functions[0]}`{and_more(len(functions))}" if functions else "a graph"
    return make_finding(
        timeline,
        "CD611",
        f"{reason.title}: every start {what} {whom} again",
        reason.fix,
        caveat=reason.caveat,
        location=_location(found.compiles),
        severity=severity,
        count=len({(item.epoch, item.compile_id) for item in found.lookups}),
        steps=[item.step for item in found.compiles],
        cost_s=_paid_s(found.compiles, _COMPILED_AGAIN if found.everything else _TRACED_AGAIN),
        evidence={
            "kind": reason.kind,
            "caches": list(dict.fromkeys(item.cache for item in found.lookups)),
            "reasons": list(dict.fromkeys(item.reason for item in found.lookups if item.reason))[
                :5
            ],
            "compile_ids": _ids(found.lookups),
            "operations": operations,
        },
    )


def find_unwritten(timeline: Timeline) -> Iterable[Finding]:
    """CD613: entries that could not be written; a folder that does not last."""
    folder = next((part.folder for part in timeline.caches if part.folder is not None), None)
    failed = [item for part in timeline.caches for item in part.writes or () if item.problem]
    refused = [item for item in failed if _FOLDER_REFUSES.search(item.problem)]
    if refused:
        where = f" {folder.folder}" if folder is not None else ""
        fix = (
            f"make the cache folder{where} writable, or set TORCHINDUCTOR_CACHE_DIR to a folder "
            "that is"
        )
        yield _unwritten(timeline, refused, "not_written", fix)
    if len(refused) < len(failed):
        fix = "no change is known: torch could not serialize what it compiled"
        rest = [item for item in failed if item not in refused]
        yield _unwritten(timeline, rest, "not_serialized", fix)
    seconds = sum(item.seconds for item in timeline.compiles)
    lasting = folder is None or not (folder.filesystem in VOLATILE or folder.temporary)
    if lasting or folder is None or failed or seconds < LOST_CACHE_S:
        return
    place = (
        f"a {folder.filesystem} filesystem"
        if folder.filesystem in VOLATILE
        else "the temporary folder"
    )
    yield make_finding(
        timeline,
        "CD613",
        f"the compile caches are on {place}: {seconds:.0f} s of compiled code may be gone at the "
        "next start",
        "set TORCHINDUCTOR_CACHE_DIR to a folder that lasts",
        severity="info",
        evidence={
            "kind": "not_lasting",
            "folder": folder.folder,
            "configured": folder.configured,
            "temporary": folder.temporary,
            "filesystem": folder.filesystem,
        },
    )


def _unwritten(timeline: Timeline, failed: Sequence[CacheWritten], kind: str, fix: str) -> Finding:
    count = "an entry" if len(failed) == 1 else f"{len(failed)} entries"
    return make_finding(
        timeline,
        "CD613",
        f"torch could not write {count} into its compile caches: the next start compiles again",
        fix,
        count=len(failed),
        evidence={
            "kind": kind,
            "problems": list(dict.fromkeys(item.problem for item in failed))[:5],
            "compile_ids": list(dict.fromkeys(item.compile_id for item in failed))[:20],
        },
    )


def find_half_hits(timeline: Timeline) -> Iterable[Finding]:
    """CD614: one cache had what an earlier start made, the other had not."""
    dangling: list[tuple[ProcessCaches, CacheLookedUp]] = []
    traced: list[tuple[ProcessCaches, CacheLookedUp]] = []
    for part in timeline.caches:
        # torch 2.7 does not record that AOTAutograd had an entry, but the look for its graph.
        gone = {
            (each.epoch, each.compile_id)
            for each in part.lookups
            if each.within == AOT_AUTOGRAD and each.outcome == MISS
        }
        for lookup, graphs in _with_graphs(part):
            if lookup.status == HIT or (lookup.epoch, lookup.compile_id) in gone:
                dangling.append((part, lookup))
            elif graphs and all(item.outcome == HIT for item in graphs):
                traced.append((part, lookup))
    if dangling:
        yield _half(
            timeline,
            dangling,
            "dangling",
            "the cache entry of {whom} refers to graphs that are gone",
            "keep the folders aotautograd and fxgraph of the cache together: empty both or neither",
        )
    unsaved = [item for item in traced if _never_saved(timeline, *item)]
    if unsaved:
        yield _half(
            timeline,
            unsaved,
            "not_saved",
            "{whom} is traced at every start: its backward never runs, so it gets no cache entry",
            "call it under torch.no_grad() where no gradient is needed",
        )
    saved = [item for item in traced if _is_saved(*item)]
    if saved:
        yield _half(
            timeline,
            saved,
            "traced_again",
            "{whom} was traced again, and the resulting graphs were in the cache",
            "start once more: the entry is written now; where the next start misses it again, "
            "`compilediag diff` of both runs shows what differs",
            severity="info",
        )


def _half(
    timeline: Timeline,
    found: Sequence[tuple[ProcessCaches, CacheLookedUp]],
    kind: str,
    title: str,
    fix: str,
    severity: Severity | None = None,
) -> Finding:
    compiles = _compiles(timeline, found)
    functions = list(dict.fromkeys(item.frame.function for item in compiles if item.forward))
    whom = f"`{functions[0]}`{and_more(len(functions))}" if functions else "a graph"
    again = _COMPILED_AGAIN if kind == "dangling" else _TRACED_AGAIN
    return make_finding(
        timeline,
        "CD614",
        title.format(whom=whom),
        fix,
        location=_location(compiles),
        severity=severity,
        count=len(found),
        steps=[item.step for item in compiles],
        cost_s=_paid_s(compiles, again),
        evidence={"kind": kind, "compile_ids": _ids([lookup for _, lookup in found])},
    )


def _with_graphs(part: ProcessCaches) -> Iterator[tuple[CacheLookedUp, list[CacheLookedUp]]]:
    """Each miss of AOTAutograd's, with the lookups of its graphs; none where this process made one
    of them itself, which says nothing about an earlier start."""
    made = {item.key for item in part.lookups if item.outcome == MISS and item.cache == FX_GRAPH}
    graphs: dict[tuple[int, str], list[CacheLookedUp]] = {}
    misses: dict[tuple[int, str], CacheLookedUp] = {}
    for item in part.lookups:
        compiled = (item.epoch, item.compile_id)
        if item.cache == AOT_AUTOGRAD and item.outcome == MISS:
            misses.setdefault(compiled, item)
        elif item.cache == FX_GRAPH and not item.within:
            graphs.setdefault(compiled, []).append(item)
    for compiled, miss in misses.items():
        own = graphs.get(compiled, [])
        yield miss, ([] if any(item.key in made for item in own) else own)


def _is_saved(part: ProcessCaches, lookup: CacheLookedUp) -> bool | None:
    """None where that was not seen."""
    if part.writes is None:
        return None
    wanted = (AOT_AUTOGRAD, lookup.epoch, lookup.compile_id)
    return wanted in [(item.cache, item.epoch, item.compile_id) for item in part.writes]


def _never_saved(timeline: Timeline, part: ProcessCaches, lookup: CacheLookedUp) -> bool:
    """torch saves the entry of a graph that needs gradients when its backward compiles."""
    backward = any(not item.forward for item in _compiles(timeline, [(part, lookup)]))
    ended = timeline.processes[part.process].ended is not None
    return ended and not backward and _is_saved(part, lookup) is False


def _compiles(
    timeline: Timeline, found: Iterable[tuple[ProcessCaches, CacheLookedUp]]
) -> list[Compile]:
    ids = {CompileId(part.process, item.epoch, item.compile_id) for part, item in found}
    return [item for item in timeline.compiles if item.id in ids and item.has_row]


def _location(compiles: Iterable[Compile]) -> Location | None:
    frames = (item.frame for item in compiles if item.forward and item.frame.file)
    return next(frames, None)


def _paid_s(compiles: Sequence[Compile], phases: frozenset[str]) -> float | None:
    """Seconds of these phases; None where torch's timing was not seen."""
    if not compiles or any(item.phases is None for item in compiles):
        return None
    timed = [pair for item in compiles for pair in item.phases or ()]
    return sum(seconds for name, seconds in timed if phase_of(name) in phases)


def _ids(lookups: Iterable[CacheLookedUp]) -> list[str]:
    return list(dict.fromkeys(item.compile_id for item in lookups))[:20]


RULES: tuple[Rule, ...] = (find_bypasses, find_unwritten, find_half_hits)
