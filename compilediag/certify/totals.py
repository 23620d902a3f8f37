"""Points of a certificate on counts: that something is better, by torch's own totals and their
places, and that as much of the program runs in graphs.

No name of a cause is compared: an old cause may have another name after every good change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from compilediag.certify.points import ExecutedState, JudgedPoint, Outcome
from compilediag.receipt.finding_keys import mask_addresses, normalize_file, normalize_function
from compilediag.receipt.schema.compiles import CompileEvent, FrameName, GraphBreak, ProofFigure
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.make_finding import format_count, shorten
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

_Judged = tuple[Outcome, str]

_WRAPPERS = "torch/_dynamo/"
"""Folder of functions that call one of the program's, as that of a method under `no_grad`."""


class _Place(NamedTuple):
    """A function wherever it stands; what follows a graph break of it is a part of it."""

    file: str
    function: str


def _get_place(at: FrameName | GraphBreak | Location) -> _Place:
    function = normalize_function(at.function).removesuffix(" (resumed)")
    return _Place(normalize_file(at.file), function)


# --- totals and places ---------------------------------------------------------------------------


def count_totals(receipt: Receipt) -> Counter[str]:
    """Count what a change must not make more, by its name for people."""
    compiled, graphs = receipt.compile, receipt.cudagraph
    totals = Counter(
        {
            "recompiles": compiled.recompiles,
            "graph breaks": compiled.graph_breaks,
            "eager fallbacks": compiled.eager_fallbacks,
            "recompile limit hits": compiled.recompile_limit_hits,
        }
    )
    if graphs is not None and graphs.recordings is not None:
        totals["CUDA graph recordings"] = graphs.recordings
    return totals


def find_growth(before: Receipt, after: Receipt) -> str | None:
    """Find a total that is higher after a change, else a function with more recompiles or graph
    breaks, unless the total fell by at least as much; None where nothing grew."""
    totals = count_totals(before)
    for name, count in count_totals(after).items():
        if count > totals[name]:
            return f"{name} {totals[name]} → {count}"
    counters: dict[str, Callable[[Receipt], Counter[_Place]]] = {
        "recompiles": lambda receipt: Counter(
            _get_place(event.frame) for event in _list_recompiles(receipt)
        ),
        "graph breaks": lambda receipt: Counter(map(_get_place, receipt.compile.breaks)),
    }
    common = _list_places(before) & _list_places(after)
    for name, count_places in counters.items():
        # What is compiled as a part of torch's own wrapper has its recompiles there, until a graph
        # break makes it a frame of its own.
        old, new = (
            Counter({at: n for at, n in count_places(receipt).items() if _WRAPPERS not in at.file})
            for receipt in (before, after)
        )
        grown = _find_grown_place(old, new, common)
        if grown is not None:
            return f"{name} {grown}"
    return None


def _list_recompiles(receipt: Receipt) -> list[CompileEvent]:
    return [event for event in receipt.compile.events if event.kind == "recompile"]


def _list_places(receipt: Receipt) -> set[_Place]:
    compiled = receipt.compile
    frames = (event.frame for event in compiled.events)
    return {_get_place(at) for at in (*frames, *compiled.breaks)}


def _find_grown_place(
    before: Counter[_Place], after: Counter[_Place], common: Collection[_Place]
) -> str | None:
    # A function that was renamed, moved or taken into its caller has its counts elsewhere: places
    # that one run alone has are one place, and what is gone there may be back in any other.
    gone, came = (
        sum(count for place, count in side.items() if place not in common)
        for side in (before, after)
    )
    fell = before.total() - after.total()
    if came - gone > fell:
        return f"in functions that are new {gone} → {came}"
    for place in common:
        if after[place] - before[place] > fell + max(0, gone - came):
            counts = f"{before[place]} → {after[place]}"
            return f"of {place.function} in {place.file} {counts}"
    return None


def count_calls(timeline: Timeline) -> int:
    """Count the calls of compiled functions, but for those under a stance that compiles nothing. A
    batch that a `FixedShape` pads or splits is one; calls of its warm-up are none."""
    eager = sum(stance.calls for stance in timeline.stance_calls)
    called = sum(invocation.calls - invocation.padded for invocation in timeline.invocations)
    fixed = timeline.fixed_shapes
    batches = sum(sum(shape.requested.values()) + shape.other_batches for shape in fixed)
    return called + batches - eager


# --- better --------------------------------------------------------------------------------------


def check_better(before: ExecutedState, after: ExecutedState) -> JudgedPoint:
    """Check that no total of torch's grew and at least one fell, or that some guard which was false
    is false nowhere any more, though the same calls recompile for others."""
    old, new = count_totals(before.receipt), count_totals(after.receipt)
    outcome, sentence = _judge_totals(before, after)
    figures = tuple(ProofFigure(name, float(old[name]), float(new[name])) for name in old | new)
    keys = [
        {finding.key for finding in state.receipt.findings if finding.key}
        for state in (before, after)
    ]
    details = [f"{key} is gone" for key in sorted(keys[0] - keys[1])]
    details += [f"{key} is new" for key in sorted(keys[1] - keys[0])]
    return JudgedPoint("better", outcome, sentence, figures, tuple(details))


def _judge_totals(before: ExecutedState, after: ExecutedState) -> _Judged:
    old, new = before.receipt, after.receipt
    totals, changed = count_totals(old), count_totals(new)
    if old.compile.compiles and not new.compile.compiles:
        return "fails", "nothing is compiled any more"
    if not old.compile.graphs and not new.compile.graphs:
        return "undecided", f"no graph is compiled in either state{_name_other_break(old, new)}"
    if "blind" in (old.verdict, new.verdict):
        return (
            "undecided",
            "the counts are not known: evidence of a run is missing; `show FOLDER` says which",
        )
    if not any(totals.values()):
        return "fails", "there is nothing to improve: " + ", ".join(f"0 {name}" for name in totals)
    if (growth := find_growth(old, new)) is not None:
        return "fails", f"something got worse: {growth}"
    if (hidden := _find_hidden(before, after)) is not None:
        return hidden
    fell = {name: count for name, count in totals.items() if changed[name] < count}
    falls = ", ".join(f"{name} {count} → {changed[name]}" for name, count in fell.items())
    if (fewer := _find_fewer_calls(before.timeline, after.timeline)) is not None:
        counts = f"the counts ({falls})" if falls else "the counts"
        return "undecided", f"{counts} cannot be compared: {fewer}"
    if not fell:
        return _judge_guards(old, new)
    if {*fell} == {"recompiles"} and new.compile.compiles >= old.compile.compiles:
        compiles = f"{old.compile.compiles} → {new.compile.compiles}"
        first = "what recompiled is compiled for a first time elsewhere"
        return "undecided", f"fewer recompiles, but as many compiles ({compiles}): {first}"
    return "holds", falls


def _find_hidden(before: ExecutedState, after: ExecutedState) -> _Judged | None:
    """Find a setting by which totals fall though nothing is better: a stance, a lower limit, guards
    that are false, or left out, and not evaluated."""
    eager, now_eager = (
        sum(stance.calls for stance in state.timeline.stance_calls) for state in (before, after)
    )
    if now_eager > eager:
        stances = " and ".join(sorted({call.stance for call in after.timeline.stance_calls}))
        return "fails", f"calls that ran eager {eager} → {now_eager}, under the stance {stances}"
    limit, now_limit = _find_lowest_limit(before.receipt), _find_lowest_limit(after.receipt)
    if limit and now_limit and now_limit < limit and after.receipt.compile.recompile_limit_hits:
        lower = f"the recompile limit {limit} → {now_limit} was reached"
        return "fails", f"{lower}: what runs eager does not recompile"
    sources, now_sources = (
        {cause.source for event in state.receipt.compile.events for cause in event.causes}
        for state in (before, after)
    )
    armed = {guard.source for check in after.timeline.risk_checks for guard in check.guards}
    if unnoticed := sorted((sources - now_sources) & armed):
        still = f"the guard on {unnoticed[0]} is false at the end"
        return "undecided", f"{still}: it may not be evaluated, or the next call recompiles"
    guards, now_guards = _collect_guards(before.timeline), _collect_guards(after.timeline)
    for place in guards.keys() & now_guards.keys():
        counted, evaluated = guards[place]
        now_counted, now_evaluated = now_guards[place]
        # Of as many guards of torch's as many are evaluated; of others about the same share, but
        # for a frame that is more by now: of few guards more are evaluated than torch counts, of
        # many 45 to 75 %.
        least = 0.95 if now_counted == counted else 0.5
        share = evaluated / counted
        if now_counted > 2 * counted:
            share = min(share, 0.8)
        if now_evaluated < least * share * now_counted:
            shares = f"{evaluated} of {counted} → {now_evaluated} of {now_counted}"
            return "undecided", (
                f"guards of {place.function} that are evaluated: {shares}; calls that need another "
                "graph may not be noticed"
            )
    return None


def _find_lowest_limit(receipt: Receipt) -> int | None:
    limits = (detail.headroom.limit for detail in receipt.compile.frames_detail)
    return min((limit for limit in limits if limit is not None), default=None)


def _collect_guards(timeline: Timeline) -> dict[_Place, tuple[int, int]]:
    """Collect the guards of the first compile at each place: as torch counts them, and those that
    are evaluated. Without compiles of which one is not known."""
    evaluated = dict[CompileId, int]()
    for made in timeline.guard_sets:
        if made.evaluated is not None:
            key = CompileId(made.process, made.epoch, made.compile_id)
            evaluated[key] = evaluated.get(key, 0) + made.evaluated
    guards: dict[_Place, tuple[int, int]] = {}
    for event in timeline.compiles:
        if event.kind == "first" and event.guards and event.id in evaluated:
            guards.setdefault(_get_place(event.frame), (event.guards, evaluated[event.id]))
    return guards


def _find_fewer_calls(before: Timeline, after: Timeline) -> str | None:
    """Find that less was called. Outermost calls become fewer too where the boundary of what is
    compiled moved: then there are as many steps, and no callable is called less than it was."""
    steps, now_steps = len(before.steps), len(after.steps)
    if now_steps < steps:
        return f"steps {steps} → {now_steps}"
    called, now_called = _count_callables(before), _count_callables(after)
    less = any(now_called[place] < called[place] for place in now_called)
    moved = steps and (now_called.keys() - called.keys() or not less)
    calls, now_calls = count_calls(before), count_calls(after)
    return None if moved or now_calls >= calls else f"compiled calls {calls} → {now_calls}"


def _count_callables(timeline: Timeline) -> Counter[_Place]:
    counter = Counter[_Place]()
    for made in timeline.invocations:
        counter[_get_place(made.function)] += made.calls
    return counter


def _judge_guards(before: Receipt, after: Receipt) -> _Judged:
    """Judge runs with equal totals by the values whose guards are false."""
    totals = count_totals(before) - Counter()
    counts = (format_count(count, name.removesuffix("s")) for name, count in totals.items())
    same = f"{' and '.join(counts)} before and after"
    recompiles = _list_recompiles(after)
    causes = [cause for event in recompiles for cause in event.causes]
    exact = all(event.causes for event in recompiles)
    exact = exact and all(cause.confidence != "text" for cause in causes)
    # False guards of the entries farther from a call; they do not tell their function.
    entries = (entry for event in recompiles for entry in event.entries)
    missed = {mask_addresses(guard.variable) for entry in entries for guard in entry.guards}
    old, new = _list_false_guards(before), _list_false_guards(after)
    came = ", ".join(sorted({variable for variable, _ in new - old}))
    gone = ", ".join(sorted({variable for variable, _ in old - new if variable not in missed}))
    if not gone or not exact:
        return "fails", f"nothing is better: {same}{_name_other_break(before, after)}"
    if came:
        return "undecided", f"{same}: {came} in place of {gone}, which may be another name of it"
    return "holds", f"{gone} causes no recompile any more; the same calls have others: {same}"


def _name_other_break(before: Receipt, after: Receipt) -> str:
    """Name the first graph break that came where another one is gone; "" where none is gone."""
    old, new = (
        {(_get_place(at), at.reason): at for at in receipt.compile.breaks}
        for receipt in (before, after)
    )
    came = [at for key, at in new.items() if key not in old]
    if not came or not old.keys() - new.keys():
        return ""
    line = f"{normalize_file(came[0].file)}:{came[0].line}"
    return f"; the break is gone, and the next one is at {line}: {shorten(came[0].reason, 160)}"


def _list_false_guards(receipt: Receipt) -> set[tuple[str, str]]:
    """List each variable that a recompile has as a cause, and its function."""
    return {
        (mask_addresses(cause.variable), normalize_function(cause.function or ""))
        for event in _list_recompiles(receipt)
        for cause in event.causes
    }


# --- as much is compiled -------------------------------------------------------------------------

_SAME_SHARE = 0.98
"""So much of the operations in graphs is as much as before."""

_LEAST_SHARE = 0.5
"""Where less is left in graphs, a change outside of them did not remove it all: it may run eager
now, before or behind the compiled calls."""


def check_compiled(
    before: ExecutedState, after: ExecutedState, *, same_calls: bool, traced: bool
) -> JudgedPoint:
    """Check that as much runs in graphs: operations of each graph times its calls. `same_calls`:
    the outermost compiled calls of both correspond, and return values of the same structure.
    `traced`: every changed line is in a graph, as where a loop became one operation."""
    old, new = before.timeline, after.timeline
    count, now = (
        sum(graph.operations * graph.calls for graph in timeline.graphs_run)
        for timeline in (old, new)
    )
    figures = (ProofFigure("operations in graphs", float(count), float(now)),)
    may_remove = same_calls and (traced or now >= _LEAST_SHARE * count)
    outcome, sentence = _judge_operations(before, after, count, now, may_remove=may_remove)
    opaque = {name for graph in new.graphs_run for name in graph.opaque} - {
        name for graph in old.graphs_run for name in graph.opaque
    }
    if opaque and outcome == "holds":
        hidden = ", ".join(sorted(opaque))
        outcome, sentence = "undecided", f"operations that hide what they compute are new: {hidden}"
    return JudgedPoint("compiled", outcome, sentence, figures)


def _judge_operations(
    before: ExecutedState, after: ExecutedState, old: int, new: int, *, may_remove: bool
) -> _Judged:
    graphs = (*before.timeline.graphs_run, *after.timeline.graphs_run)
    not_counted = any(graph.calls < 0 for graph in graphs)
    if not graphs and not before.receipt.compile.graphs and not after.receipt.compile.graphs:
        return "holds", "no graph in either state"  # as of another command line
    if not_counted or not old or (not new and after.receipt.compile.graphs):
        return "undecided", "how often graphs ran was not recorded"
    fewer = f"operations in graphs {old} → {new}"
    if new >= _SAME_SHARE * old:
        return "holds", fewer
    outside = _find_outside(before, after)
    if may_remove and not outside:
        of_call = (old - new) / max(1, count_calls(after.timeline))
        return "holds", f"{of_call:.3g} fewer operations a call: the change removed them"
    running, now_running = _count_running(before.timeline), _count_running(after.timeline)
    gone = [place for place in running if place not in now_running]
    if gone and now_running <= running:
        return "fails", f"{gone[0].function} is no longer compiled: {fewer}"
    return "undecided", f"less is compiled: {fewer}" + (f"; {outside}" if outside else "")


def _count_running(timeline: Timeline) -> Counter[_Place]:
    """Count the functions of graphs that ran, by place: a file may have several of one name."""
    graphs = (graph for graph in timeline.graphs_run if graph.operations and graph.calls)
    return Counter(map(_get_place, dict.fromkeys(graph.frame for graph in graphs)))


def _find_outside(before: ExecutedState, after: ExecutedState) -> str | None:
    """Find what runs outside of graphs in the new state and did not in the old one."""
    old, new = count_totals(before.receipt), count_totals(after.receipt)
    for name in ("graph breaks", "eager fallbacks", "recompile limit hits"):
        if new[name] > old[name]:
            return f"{name} {old[name]} → {new[name]}"
    known = set(_list_outside(before.timeline))
    for what, place in _list_outside(after.timeline):
        if (what, place) not in known:
            return f"{place.function} {what}"
    return None


def _list_outside(timeline: Timeline) -> Iterator[tuple[str, _Place]]:
    for stance in timeline.stance_calls:
        yield "runs eager under a stance", _get_place(stance.function)
    for calls in timeline.disabled_calls:
        yield "is disabled", _get_place(calls.function)
    for skipped in timeline.skipped:
        yield "is skipped", _get_place(skipped.frame)
    for graph in timeline.graphs_run:
        for name in graph.opaque:
            yield "hides what it computes", _Place("", name)
