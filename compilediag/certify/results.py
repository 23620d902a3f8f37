"""The point "results": compiled calls, what was printed and saved, state and randomness at the
end."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from compilediag.certify.calls import CallComparison, ProcessKey, compare_calls, identify_processes
from compilediag.certify.points import ExecutedState, Execution, JudgedPoint, Outcome
from compilediag.certify.printed import compare_printed, read_line
from compilediag.certify.values import ResultComparison, compare_values, get_cap
from compilediag.rules.make_finding import format_count
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import MAIN, SampledValue

NAME = "results"


def check_results(
    before: ExecutedState,
    after: ExecutedState,
    calls: CallComparison,
    again: ExecutedState | None,
    eager: ExecutedState | None,
    *,
    is_shown: bool = False,
    uncounted: Set[str] = frozenset(),
) -> tuple[JudgedPoint, Execution | None]:
    """Check that both states give the same results. `calls`: their compiled calls compared;
    `is_shown`: calls that were made again gave the same, at or above these; `uncounted`: attributes
    that are updated no more.

    Returns:
        The point, and what could be executed to decide it.
    """
    old, new = before.timeline, after.timeline
    repeated = None if again is None else again.timeline
    reference = None if eager is None else eager.timeline
    if repeated is not None:
        repeat = compare_calls(old, repeated)
        if not repeat.equal:
            why = repeat.mismatch or repeat.difference
            return JudgedPoint(
                NAME, "undecided", f"two executions of the old state differ: {why}"
            ), None
    turning = calls.equal and not calls.exact and not calls.rounded
    parts = [
        _describe_calls(calls, again=repeated, eager=reference),
        compare_printed(old, new, repeated, reference, turning=turning),
        compare_final_values(old, new, repeated, reference, uncounted),
    ]
    notes = tuple(note for part in parts for note in part.notes)
    differing = [part for part in parts if part.difference is not None]
    # What follows from such calls is as uncertain as they are.
    if calls.is_slow or calls.own_precision:
        differing = [
            replace(part, decided=part.decided and not math.isfinite(part.size))
            for part in differing
        ]
    for part in sorted(differing, key=lambda part: not part.decided):
        outcome: Outcome = "fails" if part.decided else "undecided"
        further = part.further
        if part is not parts[0]:
            further = _choose_execution(part.size, calls, again=again, eager=eager)
        sentence = part.difference or ""
        may_grow = calls.is_slow or (calls.equal and (again is not None or eager is not None))
        if further is None and may_grow and not calls.exact and math.isfinite(part.size):
            outcome = "undecided"
            sentence += '; it may be grown rounding: certify it with backend="eager" in both states'
        if "random numbers of" not in sentence:
            sentence += _describe_other_draws(old, new)
        return JudgedPoint(NAME, outcome, sentence, details=notes), further
    if not is_shown and not any(part.shows_calls for part in parts):
        why = calls.mismatch or "not every compiled call returned what can be compared"
        sentence = f"{why}; nothing printed or saved shows what calls computed: print it"
        return JudgedPoint(NAME, "undecided", sentence, details=notes), None
    return JudgedPoint(NAME, "holds", _describe_equal(parts, notes), details=notes), None


def _describe_equal(parts: Iterable[ResultComparison], notes: Iterable[str]) -> str:
    """Describe how many calls, lines and values are equal, and what was left out."""
    nouns = ("compiled call", "printed line", "final value")
    pairs = zip(parts, nouns, strict=True)
    counts = [format_count(part.equal, noun) for part, noun in pairs if part.equal]
    apart = [note for note in notes if note.startswith("not compared")]
    more = [f"{apart[0]}{f' and {len(apart) - 1} more' * (len(apart) > 1)}"] if apart else []
    return "; ".join([f"equal: {', '.join(counts)}", *more])


def _choose_execution(
    size: float,
    calls: CallComparison,
    *,
    again: ExecutedState | None,
    eager: ExecutedState | None,
) -> Execution | None:
    """Choose what could tell whether a difference in what the program makes of its calls counts."""
    if calls.difference is not None or calls.own_precision:
        return None
    if eager is None and not calls.exact and size <= get_cap(()):
        return "eager"
    return "again" if again is None else None


def _describe_calls(
    calls: CallComparison, *, again: Timeline | None, eager: Timeline | None
) -> ResultComparison:
    if calls.mismatch is not None:
        if calls.other_precision or calls.own_precision:
            return ResultComparison(difference=calls.mismatch, decided=not calls.own_precision)
        how = f"{calls.mismatch}: compared by what the program makes of them"
        return ResultComparison(notes=(how,))
    notes: list[str] = []
    if calls.opaque:
        notes.append(f"{format_count(calls.opaque, 'call')} with values that are not compared")
    if calls.rounded:
        text = format_count(calls.rounded, "call")
        notes.append(f"{text} differ by no more than three times what eager does: rounding")
    difference = calls.difference
    if calls.is_slow:
        difference = f"{difference}; it begins as small as rounding, and grows slowly"
    further: Execution | None = None
    if calls.may_round:
        further = "eager" if eager is None else None
    elif difference is not None and calls.at_start and again is None:
        further = "again"
    return ResultComparison(
        calls.compared,
        difference,
        calls.size,
        calls.measured and not calls.is_slow,
        tuple(notes),
        shows_calls=calls.compared > 0 and not calls.unseen,
        further=further,
    )


# --- what is saved, and what is left at the end ---------------------------------------------------


class ValueKey(NamedTuple):
    """A value of an execution."""

    process: ProcessKey
    kind: str  #: "saved", "key" of a state_dict(), "state", "random".
    owner: str  #: File or object.
    path: str

    def __str__(self) -> str:
        words = {"saved": "saved value", "key": "state_dict() key", "random": "random numbers of"}
        return f"{words.get(self.kind, self.kind)} {self.path.lstrip('.')}"


def read_values(timeline: Timeline) -> dict[ValueKey, SampledValue]:
    """Read what an execution saved, in its order, and what it left at its end: state that compiled
    functions reach, the keys of what that would save, and random generators."""
    processes = identify_processes(timeline)
    values: dict[ValueKey, SampledValue] = {}
    often = Counter[ProcessKey]()
    for save in timeline.saved:
        process = processes.get(save.process, (0, 0))
        owner = f"{often[process]} {save.writer} {read_line(save.file).text}"
        often[process] += 1
        values[ValueKey(process, "saved", owner, save.file)] = SampledValue("", "other")
        for value in save.values:
            values[ValueKey(process, "saved", owner, f"{save.file} {value.path}")] = value
    for state in timeline.held_states:
        process = processes.get(state.process, (0, 0))
        for key in state.saved:
            values[ValueKey(process, "key", state.module, key)] = SampledValue("", "other")
        owner = f"{state.module} {state.instance}"
        for value in state.answers:
            values[ValueKey(process, "state", owner, value.path)] = value
    for record in timeline.random_states:
        process = processes.get(record.process, (0, 0))
        for name, digest in record.digests:
            value = SampledValue("", "other", "state", digest=digest)
            values[ValueKey(process, "random", "", name)] = value
    return values


def _describe_other_draws(before: Timeline, after: Timeline) -> str:
    """Describe the generators of random numbers that end in another state; empty without one."""
    ours, theirs = read_values(before), read_values(after)
    random = (key for key in ours if key.kind == "random" and key in theirs)
    names = dict.fromkeys(k.path for k in random if ours[k].digest != theirs[k].digest)
    other = f"; the generators of {' and '.join(names)} end in another state: another number of "
    return f"{other}random numbers was drawn, or the seed is another" if names else ""


def compare_final_values(
    before: Timeline,
    after: Timeline,
    again: Timeline | None,
    eager: Timeline | None,
    uncounted: Set[str] = frozenset(),
) -> ResultComparison:
    """Compare what two executions saved and left. State that only one has is listed: an attribute
    renamed, split or added; but every key of what is saved, or would be, is in both, and a number
    that is counted no more (`uncounted`) has its value elsewhere."""
    ours, theirs = read_values(before), read_values(after)
    aligned = _align_state(ours, theirs)
    persistent = {key.path for key in ours if key.kind == "key"}
    for key in [key for key in aligned if key.kind == "state" and MAIN not in key.owner]:
        if _is_replaced(key, ours[key], aligned[key], persistent):
            del aligned[key]
    used = {id(value) for value in aligned.values()}
    gone = [key for key in ours if key not in aligned]
    came = [key for key, value in theirs.items() if id(value) not in used]
    owners = {key[:3] for key in ours} & {key[:3] for key in theirs}
    notes: list[str] = []
    for what, keys in (("is gone", gone), ("is new", came)):
        for key in keys:
            if key.kind == "saved" or (key.kind == "key" and key[:3] in owners):
                return ResultComparison(difference=f"{key} {what}")
        paths = sorted(its.path for its in keys if its.kind == "state" and MAIN not in its.owner)
        if paths:
            notes.append(f"state that {what}, not compared: {', '.join(paths)}")
    kept = {_get_number(value) for value in theirs.values() if id(value) not in used}
    for key in gone:
        name = key.path.rpartition(".")[2]
        if name in uncounted and (number := _get_number(ours[key])) not in (None, *kept):
            why = f"{key} is counted no more, and nothing else ends with its value, {number:g}"
            return ResultComparison(difference=why, decided=False)
    partial = sum(not record.complete for record in (*before.saved, *before.held_states))
    if partial:
        notes.append(f"{format_count(partial, 'object')} with more values than were read")
    others = [None if one is None else read_values(one) for one in (again, eager)]
    of_names = {key: aligned.pop(key) for key in tuple(aligned) if MAIN in key.owner}
    found = compare_values(ours, aligned, *others)
    if found.difference is None:
        names = [key for key, it in of_names.items() if not _is_padded(ours[key], it)]
        pairs = {key: _convert_to_coarser(ours[key], of_names[key]) for key in names}
        sides = ({key: pair[side] for key, pair in pairs.items()} for side in (0, 1))
        named = compare_values(*sides, *others)
        other_members = _find_other_members(ours, theirs)
        if named.difference is None and other_members is not None:
            named = ResultComparison(difference=other_members)
        if named.difference is not None:
            why = f"a name of the program ends with another value: {named.difference}"
            found = replace(named, difference=why, decided=False)
    shows = any(
        "param_groups" in key.path or (key.kind == "saved" and value.kind == "tensor")
        for key, value in aligned.items()
    )
    return replace(found, notes=(*notes, *found.notes), shows_calls=shows)


def _get_number(value: SampledValue) -> float | None:
    """Get a number, or that of a tensor of one element; None of any other value."""
    is_one = value.kind == "number" or (value.kind == "tensor" and math.prod(value.shape) == 1)
    return value.values[0] if is_one and value.values else None


_FLOATING = ("bfloat16", "float16", "float32", "float64")  #: From coarse to fine.


def _convert_to_coarser(
    before: SampledValue, after: SampledValue
) -> tuple[SampledValue, SampledValue]:
    """Convert two floating values to the coarser type of both; a Python number is mostly that of a
    float32 tensor."""
    both = before, after
    dtypes = ["float32" if value.dtype == "float" else value.dtype for value in both]
    if not all(dtype in _FLOATING for dtype in dtypes):
        return both
    coarser = min(dtypes, key=_FLOATING.index)
    same = before.dtype == after.dtype
    one, other = (replace(v, dtype=coarser, digest=v.digest if same else "") for v in both)
    return one, other


def _is_padded(before: SampledValue, after: SampledValue) -> bool:
    """True for a tensor that has grown: what the program adds and cuts off again is no result."""
    old, new = before.shape, after.shape
    grown = len(old) == len(new) and all(map(operator.le, old, new))
    return old != new and before.dtype == after.dtype and grown


def _find_other_members(
    ours: Mapping[ValueKey, SampledValue], theirs: Mapping[ValueKey, SampledValue]
) -> str | None:
    """Find a list or dict that a name of the program holds in both states, with other members that
    are computed; whole numbers may count compiles, or be sizes of these."""
    members = [
        {
            (key.path.partition("[")[0], key.path)
            for key, value in side.items()
            if MAIN in key.owner and "[" in key.path and value.dtype not in ("int", "bool")
        }
        for side in (ours, theirs)
    ]
    names = [{name for name, _ in side} for side in members]
    both = names[0] & names[1]
    other = sorted(path for name, path in members[0] ^ members[1] if name in both)
    return f"{other[0]} is in one state alone" if other else None


def _align_state(
    ours: Mapping[ValueKey, SampledValue], theirs: Mapping[ValueKey, SampledValue]
) -> dict[ValueKey, SampledValue]:
    """Align the values of another execution to our keys: those of equal keys, and where functions
    or classes moved, numbers of the same last name and shape, if there are as many."""
    aligned = {key: theirs[key] for key in ours if key in theirs}
    groups: list[dict[object, dict[str, tuple[ValueKey, SampledValue]]]] = [{}, {}]
    for group, side, other in ((groups[0], ours, theirs), (groups[1], theirs, ours)):
        for key, value in side.items():
            if key.kind != "state" or MAIN in key.owner:
                continue
            if key not in other and value.kind != "other":
                name = key.path.rpartition(".")[2]
                like = key.process, name, value.dtype, value.shape
                group.setdefault(like, {}).setdefault(value.digest or str(key), (key, value))
    for like, members in groups[0].items():
        candidates = groups[1].get(like, {})
        if len(candidates) == len(members):
            # By size: objects may come in another order.
            sides = (sorted(side.values(), key=_get_size) for side in (members, candidates))
            aligned.update({key: value for (key, _), (_, value) in zip(*sides, strict=True)})
    return aligned


def _get_size(entry: tuple[ValueKey, SampledValue]) -> tuple[float, ...]:
    value = entry[1]
    return value.norm or 0.0, *(number or 0.0 for number in value.values)


def _is_replaced(
    key: ValueKey, before: SampledValue, after: SampledValue, persistent: Set[str]
) -> bool:
    """True for a tensor of another shape under the same name that no checkpoint has: a buffer that
    is made once for all sizes."""
    is_saved = key.path.lstrip(".") in persistent or "param_groups" in key.path
    same_kind = before.kind == after.kind == "tensor" and before.dtype == after.dtype
    return same_kind and not is_saved and math.prod(before.shape) != math.prod(after.shape)
