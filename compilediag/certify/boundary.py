"""Where the compiled calls of two states do not correspond: the function that is called again in
place of them, in each state."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from compilediag.certify.calls import compare_calls
from compilediag.certify.other_inputs import ADDED, AS_IT_WAS, compare_varied_calls
from compilediag.certify.points import ExecutedState
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import Location

_Chain = Sequence[tuple[Location, tuple[str, ...] | None]]
"""A compiled callable and the functions above it, innermost first, with their parameters; None for
the callable itself."""


def find_boundary(before: ExecutedState, after: ExecutedState) -> tuple[Location, Location] | None:
    """Find what to call again in place of compiled calls that are not given the same arguments in
    both states: the innermost function at or above them that both have with the same name and
    parameters, as each state has it (`RecordingPlan.boundaries`); else one that a state has put
    around what the other compiles. None where none is needed."""
    calls = compare_calls(before.timeline, after.timeline)
    # Those that give the same as they were are given the same; a state may pad what it passes on,
    # in some of their calls, or compute before them what the other does in them.
    compared = compare_varied_calls(before, after, calls)
    as_they_were = [its for its in compared if its.before.variation == AS_IT_WAS]
    others = [its for its in as_they_were if its.why and its.judged != "raised"]
    others += [its for its in compared if ADDED in its.why]
    differing = {its.before.function.function for its in others}
    common = {its.before.function.function for its in as_they_were} - differing
    called = {its.function.function for its in before.timeline.varied_calls}
    is_same = calls.mismatch is None and called <= common
    if is_same or calls.own_precision:  # nothing that is called above them decides
        return None
    chains, others = (
        [
            ((seen.function, None), *zip(seen.callers, seen.parameters, strict=True))
            for seen in state.timeline.callers
            if seen.function.function not in common
        ]
        for state in (before, after)
    )
    for chain in chains:
        for function, parameters in chain:
            for other, theirs in itertools.chain.from_iterable(others):
                if function.function == other.function and _is_callable(parameters, theirs):
                    return function, other
    put_around = _find_put_around(before.timeline, chains, others)
    taken_away = _find_put_around(after.timeline, others, chains)
    return put_around or (taken_away and (taken_away[1], taken_away[0]))


def _find_put_around(
    state: Timeline, chains: Iterable[_Chain], others: Iterable[_Chain]
) -> tuple[Location, Location] | None:
    """Find a compiled callable, and a function that the other state alone has around what it
    compiles and that takes arguments of the same names."""
    known = {function.function for chain in chains for function, _ in chain}
    for call in (its for its in state.varied_calls if its.variation == AS_IT_WAS):
        given = tuple(dict.fromkeys(re.split(r"[.:\[]", text)[0] for text in call.given))
        for other, theirs in itertools.chain.from_iterable(others):
            is_new = theirs is not None and other.function not in known
            if is_new and given and given == tuple(its for its in theirs if its != "self"):
                return call.function, other
    return None


def _is_callable(ours: tuple[str, ...] | None, theirs: tuple[str, ...] | None) -> bool:
    """True for a function of equal parameters, but for some that a state has added behind them.
    There is one at least beside the object: a function without is the program as a whole."""
    if ours is None or theirs is None:  # compiled in one of the states
        return ours != theirs
    shared = ours[: len(theirs)]
    return shared == theirs[: len(ours)] and shared not in ((), ("self",))


def call_by_name(state: ExecutedState, function: Location, name: Location) -> ExecutedState:
    """Call a function by another's name in what a state made again: it stands in its place."""
    calls = (its for its in state.timeline.varied_calls if its.function.function != name.function)
    renamed = (replace(its, function=name) if its.function == function else its for its in calls)
    return replace(state, timeline=replace(state.timeline, varied_calls=tuple(renamed)))
