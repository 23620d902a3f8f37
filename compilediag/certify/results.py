"""The point "results": compiled calls, what was printed and saved, state and randomness at the
end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import replace

from compilediag.certify.calls import (
    CallComparison,
    ProcessKey,
    compare_calls,
    find_other_dtype,
    key_processes,
)
from compilediag.certify.points import ExecutedState, Execution, Outcome, Point
from compilediag.certify.printed import compare_printed, read_line
from compilediag.certify.values import (
    MOST_UNSTABLE,
    Comparison,
    compare_values,
    get_cap,
    order_functions,
)
from compilediag.rules.make_finding import format_count
from compilediag.timeline.timeline import Timeline
from compilediag_harness.wire import SampledValue, ValuesSaved

NAME = "results"


def check_results(
    before: ExecutedState,
    after: ExecutedState,
    calls: CallComparison,
    again: ExecutedState | None,
    eager: ExecutedState | None,
) -> Point:
    """Check that both states give the same results. `calls`: their compiled calls compared."""
    old, new = before.timeline, after.timeline
    repeated = None if again is None else again.timeline
    reference = None if eager is None else eager.timeline
    if repeated is not None:
        repeat = compare_calls(old, repeated)
        if not repeat.equal:
            why = repeat.mismatch or repeat.difference
            return Point(NAME, "undecided", f"two executions of the old state differ: {why}")
    parts = [
        _describe_calls(old, new, calls, again=repeated, eager=reference),
        compare_printed(old, new, repeated, reference, exact=calls.equal and not calls.rounded),
        _compare_saved(old, new, repeated, reference),
        _compare_state(old, new, repeated, reference),
        _compare_random_state(old, new, repeated),
    ]
    notes = tuple(note for part in parts for note in part.notes)
    differing = [part for part in parts if part.difference is not None]
    for part in sorted(differing, key=lambda part: not part.decided):
        outcome: Outcome = "fails" if part.decided else "undecided"
        further = part.further
        if part is not parts[0]:
            further = _choose_execution(part.size, calls, again=again, eager=eager)
        return Point(NAME, outcome, part.difference or "", details=notes, further=further)
    if not any(part.shows_calls for part in parts):
        why = calls.mismatch or "no compiled call was recorded with what it returned"
        sentence = f"{why}; nothing that was printed or saved shows what calls computed"
        return Point(NAME, "undecided", sentence, details=notes)
    equal = ", ".join(part.equal for part in parts if part.equal)
    return Point(NAME, "holds", f"equal: {equal}", details=notes)


def _choose_execution(
    size: float,
    calls: CallComparison,
    *,
    again: ExecutedState | None,
    eager: ExecutedState | None,
) -> Execution | None:
    """Choose what could tell whether a difference in what the program makes of its calls counts."""
    if calls.difference is not None:
        return None
    if eager is None and not calls.exact and size <= get_cap(()):
        return "eager"
    return "again" if again is None else None


def _describe_calls(
    before: Timeline,
    after: Timeline,
    calls: CallComparison,
    *,
    again: Timeline | None,
    eager: Timeline | None,
) -> Comparison:
    if calls.mismatch is not None:
        other = find_other_dtype(before, after)
        how = f"{calls.mismatch}: compared by what the program makes of them"
        return Comparison(difference=other, notes=(how,))
    notes: list[str] = []
    if calls.opaque:
        notes.append(f"{format_count(calls.opaque, 'call')} with values that are not compared")
    if calls.rounded:
        text = format_count(calls.rounded, "call")
        notes.append(f"{text} differ by no more than three times what eager does: rounding")
    further: Execution | None = None
    if calls.may_round:
        further = "eager" if eager is None else None
    elif calls.difference is not None and calls.at_start and again is None:
        further = "again"
    equal = format_count(calls.compared, "compiled call") if calls.compared else ""
    return Comparison(
        equal,
        calls.difference,
        calls.size,
        calls.measured,
        tuple(notes),
        shows_calls=calls.compared > 0,
        further=further,
    )


# --- what was saved, and what is left at the end --------------------------------------------------

ValueKey = tuple[object, ...]
"""Process, which object or file, and the path within."""


def _compare_saved(
    before: Timeline, after: Timeline, again: Timeline | None, eager: Timeline | None
) -> Comparison:
    """Compare what was saved, file by file in their order, with all keys of each."""
    saves, new = _read_saves(before), _read_saves(after)
    for process in sorted({*saves, *new}):
        ours, theirs = saves.get(process, []), new.get(process, [])
        if len(ours) != len(theirs):
            return Comparison(difference=f"files are saved {len(ours)} → {len(theirs)} times")
        for save, other in zip(ours, theirs, strict=True):
            difference = _find_other_save(save, other)
            if difference is not None:
                return Comparison(difference=difference)
    values = [None if one is None else _key_saved(one) for one in (before, after, again, eager)]
    compared = _compare_keyed("saved value", *values)
    partial = sum(not save.complete for each in saves.values() for save in each)
    if partial:
        note = f"{format_count(partial, 'file')} saved with more values than were read"
        compared = replace(compared, notes=(*compared.notes, note))
    tensors = any(value.kind == "tensor" for value in (values[0] or {}).values())
    return replace(compared, shows_calls=tensors)


def _read_saves(timeline: Timeline) -> dict[ProcessKey, list[ValuesSaved]]:
    keys = key_processes(timeline)
    saves: dict[ProcessKey, list[ValuesSaved]] = {}
    for save in timeline.saved:
        saves.setdefault(keys.get(save.process, (0, 0)), []).append(save)
    return saves


def _find_other_save(save: ValuesSaved, other: ValuesSaved) -> str | None:
    ours, theirs = ((one.writer, read_line(one.file).text) for one in (save, other))
    if ours != theirs:
        return f"{other.writer} writes {other.file}, not {save.writer} {save.file}"
    return _find_other_keys(
        save.file or save.writer, {v.path for v in save.values}, {v.path for v in other.values}
    )


def _find_other_keys(where: str, before: Set[str], after: Set[str]) -> str | None:
    """Find a key that is lost, or new, in what is saved."""
    for what, keys in (("no longer has", before - after), ("also has", after - before)):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            return f"{where} {what} {min(keys)}{more}"
    return None


def _key_saved(timeline: Timeline) -> dict[ValueKey, SampledValue]:
    return {
        (process, number, f"{save.file}{value.path}"): value
        for process, saves in _read_saves(timeline).items()
        for number, save in enumerate(saves)
        for value in save.values
    }


def _compare_state(
    before: Timeline, after: Timeline, again: Timeline | None, eager: Timeline | None
) -> Comparison:
    """Compare what the objects hold at the end that compiled functions reach. What only one state
    has is listed: an attribute renamed, split or added; but not a key of what it would save."""
    saved, new_saved = _collect_state_keys(before), _collect_state_keys(after)
    for key in sorted(saved.keys() & new_saved.keys()):
        difference = _find_other_keys(f"state_dict() of {key[1]}", saved[key], new_saved[key])
        if difference is not None:
            return Comparison(difference=difference)
    ours, theirs = _key_state(before), _key_state(after)
    others = [None if one is None else _key_state(one) for one in (again, eager)]
    persistent = {name for names in saved.values() for name in names}
    aligned = _align_state(ours, theirs)
    reshaped = [
        key for key, value in aligned.items() if _is_replaced(key, ours[key], value, persistent)
    ]
    for key in reshaped:
        del aligned[key]
    compared = _compare_keyed("value of state", ours, aligned, *others)
    used = {id(value) for value in aligned.values()}
    gone = sorted(str(key[-1]) for key in ours if key not in aligned)
    came = sorted(str(key[-1]) for key, value in theirs.items() if id(value) not in used)
    notes = list(compared.notes)
    for when, paths in (("before", gone), ("after", came)):
        if paths:
            notes.append(f"state only {when}, not compared: {', '.join(paths)}")
    shows = any("param_groups" in str(key[-1]) for key in aligned)
    return replace(compared, notes=tuple(notes), shows_calls=shows)


def _collect_state_keys(timeline: Timeline) -> dict[tuple[ProcessKey, str], set[str]]:
    """Collect the keys of `state_dict()` by process and type of the module."""
    processes = key_processes(timeline)
    keys: dict[tuple[ProcessKey, str], set[str]] = {}
    for state in timeline.held_states:
        if state.call is None and state.saved:
            key = processes.get(state.process, (0, 0)), state.module
            keys.setdefault(key, set()).update(state.saved)
    return keys


def _key_state(timeline: Timeline) -> dict[ValueKey, SampledValue]:
    ends = [state for state in timeline.held_states if state.call is None]
    places, keys = order_functions(state.function for state in ends), key_processes(timeline)
    return {
        (
            keys.get(state.process, (0, 0)),
            places[state.function],
            state.module,
            state.instance,
            value.path,
        ): value
        for state in ends
        for value in state.answers
    }


def _align_state(
    ours: Mapping[ValueKey, SampledValue], theirs: Mapping[ValueKey, SampledValue]
) -> dict[ValueKey, SampledValue]:
    """Align the values of another execution to our keys: those of equal keys, and where functions
    or classes moved, those of the same last name and shape, if there are as many."""
    aligned = {key: theirs[key] for key in ours if key in theirs}
    groups: list[dict[ValueKey, dict[str, tuple[ValueKey, SampledValue]]]] = []
    for side, other in ((ours, theirs), (theirs, ours)):
        group: dict[ValueKey, dict[str, tuple[ValueKey, SampledValue]]] = {}
        for key, value in side.items():
            if key not in other and value.kind == "tensor":
                name = str(key[-1]).rpartition(".")[2]
                like = key[0], name, value.dtype, value.shape
                group.setdefault(like, {}).setdefault(value.digest or str(key), (key, value))
        groups.append(group)
    for like, members in groups[0].items():
        candidates = groups[1].get(like, {})
        if len(candidates) == len(members):
            # By size: objects may come in another order.
            pairs = zip(
                *(sorted(side.values(), key=_get_size) for side in (members, candidates)),
                strict=True,
            )
            aligned.update({key: value for (key, _), (_, value) in pairs})
    return aligned


def _get_size(entry: tuple[ValueKey, SampledValue]) -> tuple[float, ...]:
    value = entry[1]
    return value.norm or 0.0, *(number or 0.0 for number in value.values)


def _is_replaced(
    key: ValueKey, before: SampledValue, after: SampledValue, persistent: Set[str]
) -> bool:
    """True for a tensor of another shape under the same name that no checkpoint has: a buffer that
    is made once for all sizes."""
    path = str(key[-1])
    is_saved = path.lstrip(".") in persistent or "param_groups" in path
    kinds = before.kind == after.kind == "tensor" and before.dtype == after.dtype
    return kinds and not is_saved and math.prod(before.shape) != math.prod(after.shape)


def _compare_keyed(
    noun: str,
    before: Mapping[ValueKey, SampledValue] | None,
    after: Mapping[ValueKey, SampledValue] | None,
    again: Mapping[ValueKey, SampledValue] | None,
    eager: Mapping[ValueKey, SampledValue] | None,
) -> Comparison:
    found = compare_values(before or {}, after or {}, again, eager)
    notes = [f"not compared, differs when unchanged: {key[-1]}" for key in found.unstable]
    if len(found.unstable) > MOST_UNSTABLE * len(before or ()):
        why = f"{format_count(len(found.unstable), noun)} differ when nothing is changed"
        return Comparison(difference=why, decided=False, notes=tuple(notes))
    difference = None
    if found.key is not None:
        difference = f"{noun} {str(found.key[-1]).lstrip('.')}: {found.difference}"
    equal = format_count(found.equal, noun) if found.equal else ""
    return Comparison(equal, difference, found.size, notes=tuple(notes))


def _compare_random_state(before: Timeline, after: Timeline, again: Timeline | None) -> Comparison:
    """Compare how far random generators have come; those that only one state uses are none."""
    ours, theirs = _key_generators(before), _key_generators(after)
    unchanged = ours if again is None else _key_generators(again)
    notes = list[str]()
    for key in sorted(ours.keys() & theirs.keys()):
        if unchanged.get(key) != ours[key]:
            notes.append(f"not compared, differs when unchanged: random state of {key[1]}")
        elif ours[key] != theirs[key]:
            return Comparison(difference=f"it draws other random numbers of {key[1]}")
    return Comparison("random state" if ours.keys() & theirs.keys() else "", notes=tuple(notes))


def _key_generators(timeline: Timeline) -> dict[tuple[ProcessKey, str], str]:
    keys = key_processes(timeline)
    return {
        (keys.get(state.process, (0, 0)), name): digest
        for state in timeline.random_states
        for name, digest in state.digests
    }
