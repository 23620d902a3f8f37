"""The point "other inputs": calls that were made again at the end of both executions, with inputs
that the run did not have."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from compilediag.certify.calls import (
    GROWTH,
    CallComparison,
    ProcessKey,
    RecordedCall,
    Structure,
    compare_calls,
    identify_processes,
    is_same_structure,
    measure_difference,
    read_structure,
)
from compilediag.certify.points import ExecutedState, JudgedPoint, Outcome
from compilediag.certify.values import is_rounding
from compilediag.receipt.schema.compiles import ProofFigure
from compilediag.rules.make_finding import format_count, shorten
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import BEYOND, NO_TIME_LEFT, CallVaried, Location

AS_IT_WAS = "as it was"
_SIZE = re.compile(r"size (\d+) → ")

_GRADIENTS_ON = "gradients on"

VALUES = "values of "
"""Begin of a variation of what an argument holds."""

_NEVER = "which no call had"

_SAME_ARGUMENTS = "make the boundary a function with the same arguments"

_OWN_BACKEND = ", own backend"
"""End of a variation that was compiled by the program's own backend, the others being eager."""

_MadeCall = tuple[ProcessKey, str, int]
"""Process, function, number of its call: the begin of a `VariedKey`."""

VariedKey = tuple[ProcessKey, str, int, str, int]
"""Process, function, number of its call, variation, and which of those. The kind of the call may be
another one in the other state, as where a number has become a tensor."""


@dataclass(slots=True)
class VariedComparison:
    """Outcomes of the calls that both states made again."""

    old: Mapping[VariedKey, CallVaried] = field(default_factory=dict[VariedKey, CallVaried])
    new: Mapping[VariedKey, CallVaried] = field(default_factory=dict[VariedKey, CallVaried])
    equal: list[VariedKey] = field(default_factory=list[VariedKey])
    raised: list[VariedKey] = field(default_factory=list[VariedKey])  #: In both.
    different: list[str] = field(default_factory=list[str])
    #: With values that are not compared, or as different as rounding may have made the state.
    unknown: list[str] = field(default_factory=list[str])
    #: Calls that differ as they were, which says nothing of other inputs.
    moved: dict[_MadeCall, str] = field(default_factory=dict[_MadeCall, str])
    #: What is not decided, beside those: without an argument, gradients that no call had, other
    #: values that are not finite in one state, or differ by little where the rest is equal.
    undecided: list[str] = field(default_factory=list[str])
    #: An argument that the new state gives a call, and the old one does not.
    extra: dict[_MadeCall, str] = field(default_factory=dict[_MadeCall, str])
    #: What is beyond the run and raises in the new state alone.
    limits: list[str] = field(default_factory=list[str])
    rounding: float = 0.0  #: By how much recorded calls differ.
    #: What each call is given as it was.
    given: dict[_MadeCall, tuple[str, ...]] = field(
        default_factory=dict[_MadeCall, tuple[str, ...]]
    )

    def is_exact(self, key: VariedKey) -> bool:
        """True for a call that is equal bit for bit, as far as digests show."""
        return self.old[key].digest == self.new[key].digest

    @property
    def equal_calls(self) -> tuple[list[CallVaried], list[CallVaried]]:
        """Those of each state that gave the same in the other."""
        return [self.old[key] for key in self.equal], [self.new[key] for key in self.equal]


def compare_varied_calls(
    before: ExecutedState, after: ExecutedState, calls: CallComparison
) -> VariedComparison:
    """Compare the calls that both states made again; `calls`: those of the programs."""
    old, new = _collect_varied(before.timeline), _collect_varied(after.timeline, calls)
    tally = VariedComparison(old, new, rounding=calls.largest)
    yardsticks = _measure_backends(old)
    for key in (key for key in old if key in new):
        _compare_varied(key, old[key], new[key], yardsticks.get(key[:3], 0.0), tally)
    return tally


def check_other_inputs(
    before: ExecutedState, after: ExecutedState, tally: VariedComparison, *, varied: bool
) -> JudgedPoint:
    """Check that both states give the same for other inputs. `varied`: the user wants to know."""
    name = "other inputs"
    if not varied:
        return JudgedPoint(name, "stated", "not compared with other inputs (--no-vary)")
    old, new = tally.old, tally.new
    covered = [key for key in tally.equal if key[3] != AS_IT_WAS]
    every = *old.values(), *new.values()
    open_ones = [*tally.undecided, *tally.moved.values()]
    limits = [f"{its} only after" for its in tally.limits]
    details = [*tally.different, *open_ones, *tally.unknown, *limits]
    details += [f"only before: {_format(old[key])}" for key in sorted(old.keys() - new.keys())]
    details += [f"only after: {_format(new[key])}" for key in sorted(new.keys() - old.keys())]
    details += [f"raises in both: {_format(old[key])}" for key in sorted(tally.raised)]
    ends = (*before.timeline.varying_ends, *after.timeline.varying_ends)
    for state, when in ((before, "before"), (after, "after")):
        texts = (text for end in state.timeline.varying_ends for text in end.left_out)
        details += [f"left out {when}: {text}" for text in texts]
    compiled = [[key for key in covered if side[key].compiles] for side in (old, new)]
    for keys, when in zip(compiled, ("before", "after"), strict=True):
        names = dict.fromkeys(key[3] for key in keys)
        details += [f"compiles again {when}: {', '.join(names)}"] * bool(keys)
    counts = [len(keys) for keys in compiled]
    figures = (
        ProofFigure("varied calls", float(len(covered)), float(len(covered))),
        ProofFigure("compile again", float(counts[0]), float(counts[1])),
    )
    outcome: Outcome = "holds"
    sentence = f"{format_count(len(covered), 'varied call')}: all equal"
    if tally.different:
        outcome, sentence = "fails", min(tally.different)
    elif open_ones:
        outcome, sentence = "undecided", open_ones[0]
        if all(f", {_NEVER}: " in text for text in open_ones):
            sentence += "; if the program never does that, the rest is proved"
    elif any(end.interrupted for end in ends):
        outcome, sentence = "undecided", f"{sentence}, the others were left out by Ctrl-C"
    elif not covered and tally.equal and all(call.call.endswith("; ") for call in every):
        sentence = f"{tally.equal[0][1]} is given no arguments; called again it is equal"
    elif not covered and every and all(map(_is_effect_alone, every)):
        sentence = f"{every[0].function.function} is given no arguments and returns nothing"
        outcome = "stated"
    elif not covered:
        left = next((f": {text}" for end in ends for text in end.left_out), "")
        why = f"no call was made again with other inputs in both states{left}"
        outcome, sentence = "undecided", min(tally.unknown, default=why)
    elif limits:
        sentence = f"{sentence}; {limits[0]}"
    elif any(counts):
        sentence = f"{sentence}; {counts[0]} of them compile again before, {counts[1]} after"
    texts = [text for end in ends for text in end.left_out if NO_TIME_LEFT in text]
    if texts and covered and outcome == "holds":
        sentence += f"; left out: {texts[-1]}"
    return JudgedPoint(name, outcome, sentence, figures, tuple(details))


def _list_repeated(
    old: Mapping[VariedKey, CallVaried], new: Mapping[VariedKey, CallVaried]
) -> set[_MadeCall]:
    """List the calls that gave the same in both states when they were made again as they were: both
    are given the same arguments. Others may not be: a state may pad what it passes on."""
    repeated = set[_MadeCall]()
    for key in old.keys() & new.keys():
        tally = VariedComparison()
        if key[3] == AS_IT_WAS:
            _compare_varied(key, old[key], new[key], 0.0, tally)
        if (tally.equal or tally.raised) and not tally.undecided:
            repeated.add(key[:3])
    return repeated


def _collect_varied(
    timeline: Timeline, calls: CallComparison | None = None
) -> dict[VariedKey, CallVaried]:
    """Collect the varied calls of a state; of the new one by the names of the old one's callables,
    which `calls` tells."""
    pairs = () if calls is None else calls.functions.items()
    names = {new.function: old.function for old, new in pairs}
    processes = identify_processes(timeline)
    often = Counter[tuple[ProcessKey, str, int, str]]()
    keys: dict[VariedKey, CallVaried] = {}
    for call in timeline.varied_calls:
        function = call.function.function
        like = (
            processes.get(call.process, (0, 0)),
            names.get(function, function),
            call.number,
            call.variation,
        )
        keys[(*like, often[like])] = call
        often[like] += 1
    return keys


def _measure_backends(calls: Mapping[VariedKey, CallVaried]) -> dict[_MadeCall, float]:
    """Measure by how much each call differs at most between the program's backend and eager."""
    largest: dict[_MadeCall, float] = {}
    for key, call in calls.items():
        eager = calls.get((*key[:3], key[3].removesuffix(_OWN_BACKEND), key[4]))
        if eager is not None and eager is not call and eager.digest and call.digest:
            size = measure_difference(_make_call(call), _make_call(eager))
            largest[key[:3]] = max(largest.get(key[:3], 0.0), size)
    return largest


def _make_call(call: CallVaried) -> RecordedCall:
    return RecordedCall(call.function, call.structure, call.digest[0])


def _compare_varied(
    key: VariedKey, before: CallVaried, after: CallVaried, yardstick: float, tally: VariedComparison
) -> None:
    if key[:3] in tally.moved:
        return
    # By another value: as a division by zero, or a check that the change left out.
    is_beyond = key[3].startswith(BEYOND)
    is_value = is_beyond or key[3].startswith(VALUES)
    if before.raised is not None and (after.raised is not None or is_value):
        tally.raised.append(key)
        return
    if key[3] == AS_IT_WAS:
        tally.given[key[:3]] = before.given
        if (extra := _find_lost_argument(after, before)) is not None:
            tally.extra[key[:3]] = extra
    name = _format(before) + _name_arguments(before, tally.given.get(key[:3], ()))
    structure = read_structure(before.structure)
    problem, size = _find_problem(before, after, yardstick, tally.rounding)
    is_comparable = before.call == after.call or any(key[:3] == its[:3] for its in tally.equal)
    if problem is not None and _is_broadcast(key, before, after, tally):
        tally.raised.append(key)
    elif problem is not None and (key[3] == AS_IT_WAS or not is_comparable):
        # The recorded calls themselves are compared by another point.
        tally.moved[key[:3]] = f"{name}: {problem}; {_explain_moved(before, after)}"
    elif problem is not None and is_beyond and after.raised is not None:
        # As behind a buffer that is allocated once: the limit is said, and no result is wrong.
        tally.limits.append(f"with {after.variation.removeprefix(BEYOND)}, {_NEVER}, it raises")
    elif problem is not None and (is_beyond or (before.is_new_size and after.raised is not None)):
        tally.undecided.append(f"{name}, {_NEVER}: {problem}")
    elif key[3] == _GRADIENTS_ON and before.raised is None and after.raised is not None:
        # As where a cache is written in place: right for a program that never wants gradients.
        tally.undecided.append(f"{name}, which it did not have: {problem}")
    elif problem is not None and math.isinf(size) and _is_floating_value(key, structure):
        # As of 0 / 0: the program may never give it, or the change has lost what prevents it.
        tally.undecided.append(f"{name}: what is not finite in one state is in the other")
    elif problem is not None and (extra := tally.extra.get(key[:3])) is not None:
        why = f"its argument {extra} is given after only, and does not follow the others"
        tally.undecided.append(f"{name}: {problem}; {why}")
    elif problem is not None:
        tally.different.append(f"{name}: {problem}")
    elif size:
        exact = any(key[:3] == its[:3] for its in tally.equal if tally.is_exact(its))
        kept = tally.undecided if exact and key[3].startswith(VALUES) else tally.unknown
        kept.append(f"{name}: differs by little more than rounding")
    elif not structure.is_whole or not structure.leaves:
        what = shorten(before.structure, 80)
        tally.unknown.append(f"{name}: holds values that are not compared: {what}")
    else:
        tally.equal.append(key)
        if key[3] == AS_IT_WAS and (lost := _find_lost_argument(before, after)) is not None:
            why = f"its argument {lost} is given before only, and has no other values"
            tally.undecided.append(f"{name}: {why}; {_SAME_ARGUMENTS}")
        elif others := [path for path in after.replaced if path in before.written]:
            why = "another tensor is put in its place, which other names for it do not see"
            tally.undecided.append(f"{name}: {others[0]} is written to before only; {why}")


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
        return f"returns {shorten(f'{before.structure} → {after.structure}', 120)}", 0.0
    size = measure_difference(_make_call(before), _make_call(after))
    size = 0.0 if is_rounding(size, yardstick, structure.cap) else size
    if size > GROWTH * max(structure.tolerance, rounding):
        return "returns something else", size
    now = dict(after.numbers)
    for name, left in before.numbers:
        if name in now and not _is_close(left, now[name]):
            return f"leaves {name} at {left} → {now[name]}", size
    # A copy in place of a view is written by nobody else.
    shared = [text for text in after.memory if text not in before.memory]
    return (f"{shared[0]}, which it was not" if shared else None), size


def _is_close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-7)


def _find_lost_argument(before: CallVaried, after: CallVaried) -> str | None:
    """Find an argument that only the first of two states gives: it is not varied in both."""
    now = {text.partition(": ")[0] for text in after.given}
    given = (text.partition(": ") for text in before.given)
    return next((path for path, _, what in given if what != "None" and path not in now), None)


def _is_floating_value(key: VariedKey, structure: Structure) -> bool:
    """True for a call that was given other values, and returned none but floating ones."""
    floating = all(dtype.lstrip("b").startswith("float") for dtype in structure.dtypes)
    return floating and key[3].startswith(VALUES)


def _is_broadcast(
    key: VariedKey, before: CallVaried, after: CallVaried, tally: VariedComparison
) -> bool:
    """True where only the old state takes the size 1, and no other size than that it had: the
    tensor is broadcast, not a smaller one of its kind."""
    sort, arrow, size = key[3].removesuffix(_OWN_BACKEND).partition(" → ")
    if not arrow or size != "1" or before.raised is not None or after.raised is None:
        return False
    others = [
        its
        for other, its in tally.old.items()
        if other[:3] == key[:3] and other[3].startswith(f"{sort} → ")
    ]
    sizes = [its for its in others if its.variation.removesuffix(_OWN_BACKEND) != f"{sort} → 1"]
    return bool(sizes) and all(its.raised is not None for its in sizes)


def _explain_moved(before: CallVaried, after: CallVaried) -> str:
    """Explain why a call that is made as it was may differ: by the first argument that does."""
    if not (before.given and after.given):
        return "it has other arguments, or reads what has changed since"
    old, new = (
        {
            text.partition(": ")[0]: RecordedCall(call.function, text.partition(": ")[2], digest)
            for text, digest in zip(call.given, call.given_digests, strict=True)
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


def _name_arguments(call: CallVaried, given: Iterable[str]) -> str:
    """Name the arguments, "x: float32[3,2]" as it was, with the size that a call varies."""
    varied = _SIZE.match(call.variation)
    size = None if varied is None else varied[1]
    named = [text.partition(": ")[0] for text in given if size in re.findall(r"[\[,](\d+)", text)]
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
    parameters, as each state has it (`RecordingPlan.boundaries`). None where none is needed."""
    calls = compare_calls(before.timeline, after.timeline)
    old, new = _collect_varied(before.timeline), _collect_varied(after.timeline, calls)
    common = {key[1] for key in _list_repeated(old, new)}
    is_same = calls.mismatch is None and {key[1] for key in old} <= common
    if is_same or calls.own_precision:  # nothing that is called above them decides
        return None
    # A compiled callable and the functions above it, innermost first, with their parameters.
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
            for other, theirs in (entry for other_chain in others for entry in other_chain):
                if function.function == other.function and _is_callable(parameters, theirs):
                    return function, other
    return None


def _is_callable(ours: tuple[str, ...] | None, theirs: tuple[str, ...] | None) -> bool:
    """True for a function of equal parameters, but for some that a state has added behind them.
    There is one at least beside the object: a function without is the program as a whole."""
    if ours is None or theirs is None:  # compiled in one of the states
        return ours != theirs
    shared = ours[: len(theirs)]
    return shared == theirs[: len(ours)] and shared not in ((), ("self",))
