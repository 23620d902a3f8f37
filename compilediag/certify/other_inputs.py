"""The point "other inputs": calls that were made again at the end of both executions, with inputs
that the run did not have."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

from compilediag.certify.calls import (
    GROWTH,
    CallComparison,
    ProcessKey,
    RecordedCall,
    compare_calls,
    identify_processes,
    is_same_beside_objects,
    is_same_structure,
    measure_difference,
    read_structure,
)
from compilediag.certify.points import ExecutedState, JudgedPoint, Outcome
from compilediag.certify.values import TOLERANCES, is_rounding
from compilediag.receipt.schema.compiles import ProofFigure
from compilediag.rules.make_finding import format_count, shorten
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import BEYOND, GRAPH_USED_UP, NO_TIME_LEFT, CallVaried, Location

AS_IT_WAS = "as it was"
_SIZE = re.compile(r"^size (\d+) → ")

_GRADIENTS_ON = "gradients on"

_IN_HALF = f"{BEYOND}bfloat16"

VALUES = "values of "
"""Begin of a variation of what an argument holds."""

_NEVER = "which no call had"

_OTHER_VALUES = "returns something else"

_ADDED = "is given after only, and does not follow the others"
_SAME_ARGUMENTS = "make the boundary a function with the same arguments"

_OWN_BACKEND = ", own backend"
"""End of a variation that was compiled by the program's own backend, the others being eager."""

_MadeCall = tuple[ProcessKey, str, int]
"""Process, function, number of its call. Its kind may be another one in the other state, as where a
number has become a tensor."""

_Variations = dict[tuple[str, int], CallVaried]
"""Of one call, by what varies and which of those it is; as it was comes first."""

Judged = Literal["different", "open", "beyond", "moved", "equal", "unknown", "limit", "raised"]
"""What a call that both states made again shows: "different" results; "open", not decided, and
"beyond", the same of what no call had; "moved": it differs as it was, which says nothing of other
inputs; "equal", but for what is said; "unknown": with values that are not compared, or as different
as rounding may have made the state; "limit": beyond the run, it raises in the new state alone;
"raised": in both, or where the old state never supported it."""

MOST_UNTIMED = 0.5
"""Where no time was left for a larger share of the calls, the others decide nothing."""

_RESIZED = re.compile(r"^(beyond the run: )?(size|dimension) .*→")
"""Variations of a size."""

_Chain = Sequence[tuple[Location, tuple[str, ...] | None]]
"""A compiled callable and the functions above it, innermost first, with their parameters; None for
the callable itself."""

_OPEN = ("open", "beyond", "moved", "equal")
"""These are not decided where there is a reason."""


class ComparedCall(NamedTuple):
    """A call that both states made again."""

    before: CallVaried
    after: CallVaried
    judged: Judged
    why: str = ""

    @property
    def is_covered(self) -> bool:
        """True where both states give the same for other inputs."""
        return self.judged == "equal" and self.before.variation != AS_IT_WAS


def compare_varied_calls(
    before: ExecutedState, after: ExecutedState, calls: CallComparison
) -> list[ComparedCall]:
    """Compare the calls that both states made again; `calls`: those of the programs."""
    names = {new.function: old.function for old, new in calls.functions.items()}
    old, new = _collect_varied(before.timeline, {}), _collect_varied(after.timeline, names)
    both = ((old[made], new[made]) for made in old if made in new)
    made = [its for ours, theirs in both for its in _compare_made(ours, theirs, calls.largest)]
    # Calls begin in the state at the end, which rounding may have moved apart: see `results`.
    return [_leave_open(its) if calls.is_slow else its for its in made]


def _leave_open(made: ComparedCall) -> ComparedCall:
    """Leave a call open that returned other values, and did not raise or change its structure."""
    old, new = made.before, made.after
    is_value = old.raised is new.raised is None and old.structure == new.structure
    if made.judged != "different" or not is_value:
        return made
    return made._replace(
        judged="open", why=f"{made.why}; rounding may have moved the states apart by then"
    )


def check_other_inputs(
    before: ExecutedState,
    after: ExecutedState,
    compared: Sequence[ComparedCall],
    *,
    varied: bool,
    unread: Sequence[str] = (),
) -> JudgedPoint:
    """Check that both states give the same for other inputs. `varied`: the user wants to know;
    `unread`: lines of the old state that are gone and read sizes."""
    name = "other inputs"
    if not varied:
        return JudgedPoint(name, "stated", "not compared with other inputs (--no-vary)")
    order = get_args(Judged).index
    details = [its.why for its in sorted(compared, key=lambda its: order(its.judged)) if its.why]
    covered, compiles = [its for its in compared if its.is_covered], list[list[str]]()
    for when, state, made, equal in (
        ("before", before, [its.before for its in compared], [its.before for its in covered]),
        ("after", after, [its.after for its in compared], [its.after for its in covered]),
    ):
        alone = (its for its in state.timeline.varied_calls if its not in made)
        details += sorted(f"only {when}: {_format(its)}" for its in alone)
        ends = state.timeline.varying_ends
        details += [f"left out {when}: {text}" for end in ends for text in end.left_out]
        again = [its.variation for its in equal if its.compiles]
        details += [f"compiles again {when}: {', '.join(dict.fromkeys(again))}"] * bool(again)
        compiles.append(again)
    figures = (
        ProofFigure("varied calls", float(len(covered)), float(len(covered))),
        ProofFigure("compile again", float(len(compiles[0])), float(len(compiles[1]))),
    )
    outcome, sentence = _conclude(before.timeline, after.timeline, compared, compiles)
    sizes = (its.before.variation for its in covered)
    if unread and outcome in ("holds", "stated") and not any(map(_RESIZED.search, sizes)):
        # As a factor that was 1 for every weight: nothing else would have shown it.
        outcome = "undecided"
        sentence = f"{unread[0]} is gone and read a size; no varied call had another: {sentence}"
    return JudgedPoint(name, outcome, sentence, figures, tuple(details))


def _conclude(
    before: Timeline,
    after: Timeline,
    compared: Sequence[ComparedCall],
    compiles: Sequence[list[str]],
) -> tuple[Outcome, str]:
    """Conclude from all calls whether the point holds, and say why. `compiles`: which variations
    compile again in each state."""
    differing = [its.why for its in compared if its.judged == "different"]
    if differing:
        return "fails", min(differing)
    reasons = [its for its in compared if its.judged in _OPEN and its.why]
    if reasons:
        sentence = reasons[0].why
        if all(its.judged == "beyond" for its in reasons):
            sentence += "; if the program never does that, all others are equal"
            if reasons[0].after.raised is None:
                sentence += "; an error that the new state raises there would make it a limit"
        return "undecided", sentence
    if (blind := _find_blind(before, after, compared)) is not None:
        return "undecided", blind
    ends = (*before.varying_ends, *after.varying_ends)
    equal = [its for its in compared if its.judged == "equal"]
    count = sum(its.is_covered for its in equal)
    sentence = f"{format_count(count, 'varied call')}: all equal"
    if any(end.interrupted for end in ends):
        return "undecided", f"{sentence}, the others were left out by Ctrl-C"
    every = (*before.varied_calls, *after.varied_calls)
    left_out = [text for end in ends for text in end.left_out]
    if not count and equal and all(call.call.endswith("; ") for call in every):
        name = every[0].function.function
        return "holds", f"{name} is given no arguments; called again it is equal"
    if not count and every and all(map(_is_effect_alone, every)):
        name = every[0].function.function
        return "stated", f"{name} is given no arguments and returns nothing"
    if not count:
        why = "no call was made again with other inputs in both states"
        made = [{its.function.function for its in side.varied_calls} for side in (before, after)]
        if not compared and all(made):
            left_out = [f"{min(made[0])} is compiled before, {min(made[1])} after"]
        why = ": ".join([why, *left_out[:1]])
        unknown = (its.why for its in compared if its.judged == "unknown")
        return "undecided", min(unknown, default=why)
    # First those that the new state sets by an error of its own.
    limits = [its for its in compared if its.judged == "limit"]
    limits.sort(key=lambda its: (not its.after.is_refused, its.after.variation.startswith(BEYOND)))
    if limits:
        sentence += f"; {limits[0].why}{f', and {len(limits) - 1} more' * (len(limits) > 1)}"
    elif any(compiles):
        old, new = compiles
        sentence += f"; {len(old)} of them compile again before, {len(new)} after"
        alone = [its for its in new if its not in old]
        sentence += f" (only after: {alone[0]})" if alone else ""
    untimed = [text for text in left_out if NO_TIME_LEFT in text]
    return _add_untimed(sentence, untimed) if untimed else ("holds", sentence)


def _add_untimed(sentence: str, untimed: Iterable[str]) -> tuple[Outcome, str]:
    """Add the calls for which no time was left. Of two states the one that made fewer counts: only
    what both made is compared."""
    shares = {text: _read_share(text) for text in untimed}
    most = max(untimed, key=shares.__getitem__)
    sentence += f"; left out: {most}"
    if shares[most] > MOST_UNTIMED:
        return "undecided", f"{sentence}; --no-vary leaves all of them out, and says so"
    return "holds", sentence


def _read_share(left_out: str) -> float:
    """Read which share of the calls "3 of 12 calls, for which no time was left" is."""
    match = re.match(r"(\d+) of (\d+) ", left_out)
    return int(match[1]) / int(match[2]) if match else 0.0


def _find_blind(before: Timeline, after: Timeline, compared: Iterable[ComparedCall]) -> str | None:
    """Find what is called in place of compiled calls and shows nothing, whatever else is equal."""
    old, new = (
        {its.function for one in side.recorded_calls for its in one.functions}
        for side in (before, after)
    )
    for its in compared if old | new else ():
        call = its.before
        if call.variation != AS_IT_WAS or call.function.function in old & new:
            continue
        shows = read_structure(call.structure).leaves or _is_effect_alone(call)
        if its.judged == "unknown" and not shows:
            return its.why
        if its.judged == "equal" and not any("[" in text for text in call.given):
            return f"{_format(call)}: it is given no tensor, and what it reads itself is not varied"
    return None


def _collect_varied(timeline: Timeline, names: Mapping[str, str]) -> dict[_MadeCall, _Variations]:
    """Collect the varied calls of a state; `names`: of the new one's callables in the old one."""
    processes = identify_processes(timeline)
    made: dict[_MadeCall, _Variations] = {}
    for call in timeline.varied_calls:
        function = call.function.function
        process = processes.get(call.process, (0, 0))
        variations = made.setdefault((process, names.get(function, function), call.number), {})
        often = sum(label == call.variation for label, _ in variations)
        variations[call.variation, often] = call
    return made


def _compare_made(old: _Variations, new: _Variations, rounding: float) -> list[ComparedCall]:
    """Compare what both states made of one call. `rounding`: by how much recorded calls differ."""
    yardstick, done = _measure_backends(old), list[ComparedCall]()
    for key in (key for key in old if key in new):
        before, after = old[key], new[key]
        # The program's own check, not that torch takes a size in the new state alone: but for what
        # no call had, and other values, as where a tensor does not divide by zero.
        is_check = before.is_refused and not before.variation.startswith((BEYOND, VALUES))
        if any(its.judged == "moved" for its in done):
            judged, why = "moved", ""
        elif before.raised is not None and (after.raised is not None or not is_check):
            when = "before" if after.raised is None else "in both"
            judged, why = "raised", f"raises {when}: {_format(before)}"
        else:
            allowed = _measure_half(old) if before.variation == _IN_HALF else yardstick
            problem, size = _find_problem(before, after, allowed, rounding)
            if problem is None:
                judged, why = _judge_alike(before, after, size, done)
            elif problem == _OTHER_VALUES and _is_lost_in_half(before, size, (old, new)):
                judged, why = "unknown", f"{_format(before)}: half precision changes it as much"
            elif _is_broadcast(before, after, old.values()):
                judged, why = "raised", f"raises in both: {_format(before)}"
            else:
                judged, why = _judge_difference(before, after, problem, size, done)
        done.append(ComparedCall(before, after, judged, why))
    return done


def _judge_difference(
    before: CallVaried,
    after: CallVaried,
    problem: str,
    size: float,
    done: Sequence[ComparedCall],
) -> tuple[Judged, str]:
    """Judge a call that differs by what it shows, and say why. `done`: the same call, as it was
    and with the variations before."""
    label = before.variation
    is_beyond, raises_after = label.startswith(BEYOND), after.raised is not None
    as_it_was = next((its for its in done if its.before.variation == AS_IT_WAS), None)
    given = {} if as_it_was is None else _read_given(as_it_was.before)
    name = _format(before) + _name_arguments(before, given)
    is_comparable = before.call == after.call or any(its.judged == "equal" for its in done)
    if label == AS_IT_WAS or not is_comparable:
        # The recorded calls themselves are compared by another point.
        return "moved", f"{name}: {problem}; {_explain_moved(before, after)}"
    if raises_after and (is_beyond or after.is_refused):
        # As behind a buffer that is allocated once: the limit is said, and no result is wrong.
        return "limit", f"with {label.removeprefix(BEYOND)}, {_NEVER}, it raises only after"
    if is_beyond or (before.is_new_size and raises_after):
        return "beyond", f"{name}, {_NEVER}: {problem}"
    if before.draws and not raises_after and before.draws != after.draws:
        # As of dropout, in a mode that the program never has, of what is padded now.
        return "open", f"{name}: other random numbers are drawn in each state"
    if label == _GRADIENTS_ON and before.raised is None and raises_after:
        # As where a cache is written in place: right for a program that never wants gradients.
        return "open", f"{name}, which it did not have: {problem}"
    if math.isinf(size) and label.startswith(VALUES) and _is_floating_result(before):
        # As of 0 / 0: the program may never give it, or the change has lost what prevents it.
        return "open", f"{name}: what is not finite in one state is in the other"
    if as_it_was and (extra := _find_lost_argument(as_it_was.after, as_it_was.before)) is not None:
        return "open", f"{name}: {problem}; its argument {extra} {_ADDED}"
    return "different", f"{name}: {problem}"


def _judge_alike(
    before: CallVaried, after: CallVaried, size: float, done: Sequence[ComparedCall]
) -> tuple[Judged, str]:
    """Judge a call in which no difference was found, beyond a size that may be rounding."""
    name, structure = _format(before), read_structure(before.structure)
    if size:
        is_exact = any(
            its.judged == "equal" and its.before.digest == its.after.digest for its in done
        )
        judged = "open" if is_exact and before.variation.startswith(VALUES) else "unknown"
        return judged, f"{name}: differs by little more than rounding"
    is_same = is_same_structure(before.structure, after.structure)
    if not (structure.is_whole and structure.leaves and is_same):
        what = shorten(before.structure, 80)
        return "unknown", f"{name}: holds values that are not compared: {what}"
    as_it_was = before.variation == AS_IT_WAS
    if as_it_was and _is_resized(before, after):
        # As what is padded, and reduced to a number: a size of one state is none of the other.
        return "moved", f"{name}: {_explain_moved(before, after)}"
    if as_it_was and (lost := _find_lost_argument(before, after)) is not None:
        why = f"its argument {lost} is given before only, and has no other values"
        return "equal", f"{name}: {why}; {_SAME_ARGUMENTS}"
    others = [path for path in after.replaced if path in before.written]
    if others:
        why = "another tensor is put in its place, which other names for it do not see"
        return "equal", f"{name}: {others[0]} is written to before only; {why}"
    return "equal", ""


def _measure_backends(calls: _Variations) -> float:
    """Measure by how much a call differs at most between the program's backend and eager."""
    largest = 0.0
    for (label, often), call in calls.items():
        eager = calls.get((label.removesuffix(_OWN_BACKEND), often), call)
        if eager is not call and eager.digest and call.digest:
            largest = max(largest, measure_difference(_make_call(call), _make_call(eager)))
    return largest


def _measure_half(calls: _Variations) -> float:
    """Measure by how much half precision rounds a call: another order of the same operations does
    so by as much."""
    as_it_was, half = calls.get((AS_IT_WAS, 0)), calls.get((_IN_HALF, 0))
    if as_it_was is None or half is None or not (as_it_was.digest and half.digest):
        return 0.0
    return measure_difference(_make_call(as_it_was), _make_call(half))


def _is_lost_in_half(call: CallVaried, size: float, states: Iterable[_Variations]) -> bool:
    """True for a difference in half precision that this alone makes in each state: a gradient whose
    terms cancel, as that of a softmax, is nothing but what was rounded. In one alone it is code."""
    rounding = min(map(_measure_half, states))
    return call.variation == _IN_HALF and is_rounding(size, rounding, math.inf)


def _make_call(call: CallVaried) -> RecordedCall:
    return RecordedCall(call.function, call.structure, call.digest[0])


def _find_problem(
    before: CallVaried, after: CallVaried, yardstick: float, rounding: float
) -> tuple[str | None, float]:
    """Find what two states give differently for one call, and by how much what it returns differs;
    `yardstick`: as much as its backends do, `rounding`: as recorded calls do."""
    structure = read_structure(before.structure)
    if before.raised is not None or after.raised is not None:
        when = "before" if after.raised is None else "after"
        return f"raises only {when}: {shorten(before.raised or after.raised or '', 300)}", 0.0
    if not is_same_structure(before.structure, after.structure):
        changed = None
        if not is_same_beside_objects(before.structure, after.structure):
            changed = f"returns {shorten(f'{before.structure} → {after.structure}', 120)}"
        return changed, 0.0
    size = measure_difference(_make_call(before), _make_call(after))
    size = 0.0 if is_rounding(size, yardstick, structure.cap) else size
    if size > GROWTH * max(structure.tolerance, rounding):
        return _OTHER_VALUES, size
    now, kept = dict(after.numbers), "bfloat16" if before.variation == _IN_HALF else "float32"
    for name, left in before.numbers:
        if name in now and not _is_close(left, now[name], kept):
            return f"leaves {name} at {left} → {now[name]}", size
    # A copy in place of a view is written by nobody else.
    shared = [text for text in after.memory if text not in before.memory]
    return (f"{shared[0]}, which it was not" if shared else None), size


def _is_close(one: float | None, other: float | None, dtype: str) -> bool:
    """True where numbers are equal, of which one may be kept by a tensor of that dtype."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=max(1e-4, TOLERANCES[dtype][0]), abs_tol=1e-7)


def _read_given(call: CallVaried) -> dict[str, str]:
    """Read the structure of each argument of a call as it was, by path."""
    return {path: what for path, _, what in (text.partition(": ") for text in call.given)}


def _is_resized(before: CallVaried, after: CallVaried) -> bool:
    """True where a tensor that both states give has another shape in each."""
    old, new = _read_given(before), _read_given(after)
    shapes = ((old[path].partition("["), new[path].partition("[")) for path in old.keys() & new)
    return any(its[1] and other[1] and its[2] != other[2] for its, other in shapes)


def _find_lost_argument(before: CallVaried, after: CallVaried) -> str | None:
    """Find an argument that only the first of two states gives: it is not varied in both."""
    given, now = _read_given(before).items(), _read_given(after)
    return next((path for path, what in given if what != "None" and path not in now), None)


def _is_floating_result(call: CallVaried) -> bool:
    """True for a call that returned none but floating values."""
    dtypes = read_structure(call.structure).dtypes
    return all(dtype.lstrip("b").startswith("float") for dtype in dtypes)


def _is_broadcast(before: CallVaried, after: CallVaried, made: Iterable[CallVaried]) -> bool:
    """True where only the old state takes the size 1, and no other size than that it had: the
    tensor is broadcast, not a smaller one of its kind. `made`: all that it made of this call."""
    sort, arrow, size = before.variation.removesuffix(_OWN_BACKEND).partition(" → ")
    if not arrow or size != "1" or before.raised is not None or after.raised is None:
        return False
    others = [its for its in made if its.variation.startswith(f"{sort} → ")]
    sizes = [its for its in others if its.variation.removesuffix(_OWN_BACKEND) != f"{sort} → 1"]
    return bool(sizes) and all(its.raised is not None for its in sizes)


def _explain_moved(before: CallVaried, after: CallVaried) -> str:
    """Explain why a call that is made as it was may differ: by the first argument that does."""
    used_up = [GRAPH_USED_UP in its.structure for its in (before, after)]
    if any(used_up) and not all(used_up):
        when = "before" if used_up[0] else "after"
        return f"its backward pass runs inside of it {when} only: call both from one function"
    if not (before.given and after.given):
        return "it has other arguments, or reads what has changed since"
    old, new = (
        {
            path: RecordedCall(call.function, what, digest)
            for (path, what), digest in zip(
                _read_given(call).items(), call.given_digests, strict=True
            )
        }
        for call in (before, after)
    )
    for path in old | new:
        ours, theirs = old.get(path), new.get(path)
        if ours is None or theirs is None:
            what = f"is given {'before' if theirs is None else 'after'} only"
        elif not is_same_structure(ours.structure, theirs.structure):
            what = f"is {shorten(f'{ours.structure} → {theirs.structure}', 80)}"
        elif size := measure_difference(ours, theirs):
            return (
                f"its argument {path} has other values (its digest by {size:.1g}): what is "
                "computed or drawn before the call differs"
            )
        else:
            continue
        return f"its argument {path} {what}; {_SAME_ARGUMENTS}"
    return "its arguments are equal: it reads state that differs, which results names with --all"


def _name_arguments(call: CallVaried, given: Mapping[str, str]) -> str:
    """Name the arguments with the size that a call varies; `given`: their structures by path."""
    size = next(iter(_SIZE.findall(call.variation)), None)
    named = [path for path, its in given.items() if size in re.findall(r"[\[,](\d+)", its)]
    return f" (of {shorten(', '.join(named), 60)})" if named else ""


def _is_effect_alone(call: CallVaried) -> bool:
    """True for a call that could be made, with nothing given to it and nothing returned: what it
    does to the state is compared where that is left."""
    structure = read_structure(call.structure)
    returns = call.raised is not None or structure.leaves or not structure.is_whole
    return call.call.endswith("; ") and not returns


def _format(call: CallVaried) -> str:
    return f"{call.function.function} ({call.call}), {call.variation}"


# --- where the compiled calls do not correspond ---------------------------------------------------


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
    others += [its for its in compared if _ADDED in its.why]
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
            own = tuple(its for its in theirs or () if its != "self")
            if given and given == own and other.function not in known:
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
