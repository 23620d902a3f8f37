"""Merges causes with a common cause into one group: the root first, then what follows from it.

A batch of another length changes all its tensors alike, in the compiled function and in what it
calls; a number is guarded in two ways; a call such as `model.set_adapter("de")` sets a name and
flips flags. Causes that only happen to change at the same time stay apart: what has a common cause
changes in the same recompiles, or step, by the same line or by the same amount.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from compilediag.diagnosis.causes.behind_breaks import BehindBreaks, whole_function
from compilediag.diagnosis.causes.group import Group, changed_dimensions
from compilediag.diagnosis.codes import VALUES, info
from compilediag.diagnosis.findings import Act, Cause
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.invocations import varying_sizes
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import resumed_function

ANOTHER_INSTANCE = "instance"
"""The kind of what another instance of a class, or another call within one step, is called with."""
_LOCAL = re.compile(r"L\['\w+'\]")
_RANKS = {"mode": 0, "metadata": 2, "size": 3, "condition": 3}
"""Modes come before values (1), values before what they do to tensors."""
_TENSORS = ("tensor", "size", "metadata")
"""A batch of another length or dtype changes all its tensors alike, and a cache that grows its keys
and its values."""


def by_act(groups: Sequence[Group], timeline: Timeline, behind: BehindBreaks) -> list[Group]:
    """Put the groups of a run that have a common cause under the first of them, in their order."""
    order = {group.id: position for position, group in enumerate(groups)}
    found = _alike(_one_value(_of_instances(groups)), _independent_sizes(timeline))
    # Sizes of an argument object take its own record of their length, a number.
    found = _below(found, lambda group: group.changed == "scalar", _is_length)
    found = _in_callees(sorted(found, key=lambda group: order[group.id]), behind)
    found.sort(key=lambda group: order[group.id])
    found = _below(found, _is_on_sizes, _is_condition_of)
    found.sort(key=lambda group: -len(group.first.parts))
    found = _below(found, lambda group: group.owner == "several", _is_within)
    found = _of_one_line(found, steps_known=bool(timeline.steps))
    return sorted(found, key=lambda group: order[group.id])


def _below(
    groups: Iterable[Group],
    may_follow: Callable[[Group], bool],
    follows: Callable[[Group, Group], bool],
) -> list[Group]:
    """Put each group that may follow below the first that it follows from; else after all
    others."""
    found: list[Group] = []
    for group in sorted(groups, key=may_follow):
        roots = enumerate(found) if may_follow(group) else ()
        root = next((n for n, other in roots if follows(group, other)), None)
        if root is None:
            found.append(group)
        else:
            found[root] = found[root].with_follower(group)
    return found


def _one_value(groups: Iterable[Group]) -> list[Group]:
    """Merge one value of one frame that is guarded at several places: as it is, then as a
    number."""
    found: dict[Hashable, Group] = {}
    for group in groups:
        value = group.code in VALUES and group.variable and not group.planned
        value = value and group.id.kind != ANOTHER_INSTANCE
        frames = frozenset((item.frame.file, item.frame.function) for item in group.recompiles)
        key = (group.code, group.variable, frames) if value else group.id
        found[key] = found[key].with_follower(group) if key in found else group
    return list(found.values())


def _of_instances(groups: Sequence[Group]) -> list[Group]:
    """Merge what is another instance of a class: its parameters in all frames that its call goes
    through, and what it is called with."""
    differences: dict[Hashable, set[Hashable]] = {}
    for group in groups:
        for cause, item in zip(group.causes, group.recompiles, strict=True):
            if group.owner == "instance":
                change = cause.expected, cause.actual
                differences.setdefault(item.id, set()).add(change)
    own: dict[Hashable, Group] = {}
    inputs: list[Group] = []
    found: list[Group] = []
    for group in groups:
        if group.owner == "instance":
            # The steps in which instances differed, and in what.
            when = frozenset(
                (item.process, item.epoch, item.step, frozenset(differences[item.id]))
                for item in group.recompiles
            )
            own[when] = own[when].with_follower(group) if when in own else group
        elif group.id.kind == ANOTHER_INSTANCE:
            inputs.append(group)
        else:
            found.append(group)
    whose = {r.id: when for when, of in own.items() for g in of.parts for r in g.recompiles}
    for group in inputs:
        first, *others = {whose.get(item.id) for item in group.recompiles}
        if first is None or others:
            own[group.id] = group
        else:
            own[first] = own[first].with_follower(group)
    return [*found, *own.values()]


def _is_on_sizes(group: Group) -> bool:
    """A condition of the graph on sizes."""
    return group.changed == "condition" and "size()" in group.first.guard


def _is_condition_of(condition: Group, sizes: Group) -> bool:
    """Whether both are of the same tensor of the same frame, at one line, in the same recompiles: a
    condition that a later size meets has a fix of its own."""
    return _is_on_sizes(condition) and any(
        part.changed == "size"
        and not part.planned
        and part.location == condition.location
        and part.variable in re.split(r"[^\w.\[\]']+", condition.variable)
        and {item.id for item in part.recompiles} >= {item.id for item in condition.recompiles}
        for part in sizes.parts
    )


def _is_within(group: Group, whole: Group) -> bool:
    """Whether both are combinations of known values in one frame, one of fewer of the same
    values."""
    own, others = (
        {(part.rule, part.variable, part.kind) for part in each.first.parts}
        for each in (group, whole)
    )
    frames, places = ({item.frame for item in each.recompiles} for each in (group, whole))
    return group.owner == whole.owner == "several" and own <= others and frames <= places


# --- tensors that changed alike --------------------------------------------------------------


def _alike(groups: Iterable[Group], independent: Callable[[Group, Group], bool]) -> list[Group]:
    """Merge groups of tensors that differ in nothing but the tensor."""
    acts: dict[Hashable, list[list[Group]]] = {}
    for group in groups:
        changes = tuple(map(_change, group.causes))
        compiles = tuple(recompile.id for recompile in group.recompiles)
        key = (group.code, group.id.kind, group.planned, compiles, changes)
        sets = acts.setdefault(key if group.changed in _TENSORS else group.id, [])
        same = next((item for item in sets if not independent(item[0], group)), None)
        if same is None:
            sets.append([group])
        else:
            same.append(group)
    return [
        replace(first, together=tuple(others)) for sets in acts.values() for first, *others in sets
    ]


def _change(cause: Cause) -> Hashable:
    """Make equal for tensors in which the same changed, whichever of their dimensions it was."""
    changed = changed_dimensions(cause.expected, cause.actual)
    return frozenset(item[1:] for item in changed) or (cause.expected, cause.actual)


def _independent_sizes(timeline: Timeline) -> Callable[[Group, Group], bool]:
    """Make a test of two groups: the calls of a function show that the sizes of two arguments
    differ from call to call, though they once changed alike."""
    columns: dict[tuple[int, str, int], Mapping[str, int]] = {}
    for item in timeline.invocations:
        varying = varying_sizes(((s.shapes, s.count) for s in item.shapes), item.tensors)
        if varying is not None:
            key = (item.process, item.function.file, item.function.line)
            columns[key] = {place: n for n, places in enumerate(varying.dims) for place in places}

    def changed(group: Group, known: Mapping[str, int]) -> set[int]:
        places = (
            f"{cause.variable}:{item.dimension}"
            for cause in group.causes
            for item in changed_dimensions(cause.expected, cause.actual)
        )
        return {known[place] for place in places if place in known}

    def independent(first: Group, second: Group) -> bool:
        frames = ((item.process, item.frame.file, item.frame.line) for item in first.recompiles)
        found = (columns.get(frame, {}) for frame in frames)
        sizes = ((changed(first, known), changed(second, known)) for known in found)
        return any(one and other and not one & other for one, other in sizes)

    return independent


def _is_length(number: Group, sizes: Group) -> bool:
    """Whether a number in an argument object changed by as much as the sizes in it, each time."""
    if sizes.changed != "size" or sizes.planned or number.planned:
        return False
    holder = _container(sizes.variable)
    if holder is None or holder != _container(number.variable):
        return False
    if [item.id for item in sizes.recompiles] != [item.id for item in number.recompiles]:
        return False
    return all(
        {(item.before, item.after) for item in changed_dimensions(size.expected, size.actual)}
        == {(own.expected, own.actual)}
        for size, own in zip(sizes.causes, number.causes, strict=True)
    )


def _container(variable: str) -> str | None:
    """Find the argument of which a variable is a member; None for members of a module, which holds
    much beside its inputs."""
    root = re.split(r"[.\[]", variable, maxsplit=1)[0]
    return root if root not in (variable, "self", "fn") else None


def _in_callees(groups: Sequence[Group], behind: BehindBreaks) -> list[Group]:
    """Merge sizes of a frame with those that the same call changed alike in frames it goes on to,
    and with numbers that such a frame has in their place."""
    found: list[Group] = []
    at: dict[Hashable, list[int]] = {}
    for group in sorted(groups, key=lambda item: item.recompiles[0].t):
        number = group.changed == "scalar" and all(i.id in behind.breaks for i in group.recompiles)
        # Whether a tensor needs gradients is passed on with it; a parameter's is its own.
        passed = group.changed == "metadata" and all(
            _LOCAL.fullmatch(c.source) for c in group.causes
        )
        moments = _moments(group)
        if group.planned or not (group.changed == "size" or number or passed):
            moments = []
        near = at.get(moments[0], ()) if moments else ()
        caller = next((n for n in near if _is_callee(found[n], group, behind)), None)
        if caller is not None:
            found[caller] = found[caller].with_follower(group)
            continue
        for moment in moments:
            at.setdefault(moment, []).append(len(found))
        found.append(group)
    return found


def _moments(group: Group) -> list[Hashable]:
    """List when each change was, and what: a number changes as the size it was taken from."""
    return [
        (
            *(recompile.process, recompile.epoch, recompile.step),
            "size" if group.changed in ("size", "scalar") else group.code,
            frozenset([(cause.expected, cause.actual)])
            if group.changed == "scalar"
            else _change(cause),
        )
        for cause, recompile in zip(group.causes, group.recompiles, strict=True)
    ]


def _is_callee(caller: Group, callee: Group, behind: BehindBreaks) -> bool:
    """Whether every recompile of the one followed, with the same change, one of the other."""
    before: dict[Hashable, list[Recompile]] = {}
    for part in caller.parts:
        for moment, recompile in zip(_moments(part), part.recompiles, strict=True):
            before.setdefault(moment, []).append(recompile)
    return all(
        any(
            own.t <= recompile.t and _goes_on_to(own, recompile, behind)
            for own in before.get(moment, ())
        )
        for moment, recompile in zip(_moments(callee), callee.recompiles, strict=True)
    )


def _goes_on_to(caller: Recompile, callee: Recompile, behind: BehindBreaks) -> bool:
    """Whether a frame is what is left of another after a graph break, or is called by it."""
    outer, inner = caller.frame, callee.frame
    if caller.id == callee.id:
        return False
    here = outer.file, whole_function(outer.function)
    is_rest = resumed_function(inner.function) is not None
    if is_rest and here == (inner.file, whole_function(inner.function)):
        return True
    entered, other = callee.entered_at, caller.entered_at
    if entered is None or here == (entered.file, entered.function):
        return entered is not None
    # A library's frames are both called from the program's one call of the broken one.
    if other is None or not entered.text or caller.id not in behind.broke:
        return False
    return (entered.file, entered.line, entered.text) == (other.file, other.line, other.text)


# --- values that one line changed ------------------------------------------------------------


def _of_one_line(groups: Sequence[Group], *, steps_known: bool) -> list[Group]:
    """Merge groups whose values the same line of the program changed, each time between the same
    two calls: the root is what the others follow from."""
    found: list[Group] = []
    roots: list[tuple[set[Hashable], dict[Hashable, Act]]] = []
    """When the values of each changed, and by which lines that may have been."""
    at: dict[Hashable, list[int]] = {}
    for group in sorted(
        groups, key=lambda item: (_RANKS.get(item.changed, 1), -len(item.recompiles))
    ):
        # Without steps only one recompile is known to be one time.
        times: list[Hashable] = [
            (item.process, item.epoch, item.step) if steps_known else item.id
            for item in group.recompiles
        ]
        own = [
            {(time, line): act for line, act in _lines_between(cause, recompile)}
            for time, cause, recompile in zip(times, group.causes, group.recompiles, strict=True)
            if not group.planned
        ]
        first = own[0] if own else {}
        for root in (n for line in first for n in at.get(line, ())):
            root_times, lines = roots[root]
            # Consequences need not follow each time that the root changes; a common cause flips
            # metadata beside the value that it is called for, in some of the recompiles.
            each_time = group.changed == "metadata" or root_times == set(times)
            if each_time and all(not lines.keys().isdisjoint(each) for each in own):
                act = found[root].act or next(act for line, act in lines.items() if line in first)
                found[root] = replace(found[root].with_follower(group), act=act)
                break
        else:
            every: dict[Hashable, Act] = {}
            for each in own:
                every |= {line: act for line, act in each.items() if line not in every}
            for line in every:
                at.setdefault(line, []).append(len(found))
            found.append(group)
            roots.append((set(times), every))
    return found


def _lines_between(cause: Cause, recompile: Recompile) -> Iterator[tuple[Hashable, Act]]:
    """Iterate the lines between the two calls: of those that were seen, the changing one and its
    callers within the function that makes the calls, which runs on; else those that are probable,
    as one."""
    entered = recompile.entered_at
    if cause.changed is None:
        call = None if entered is None else (entered.file, entered.line)
        # The compiled call cannot be made earlier: what changes inside it has no line here.
        others = [item for item in cause.changed_by if (item.file, item.line) != call]
        if others:
            places = dict.fromkeys((item.file, item.line) for item in others)
            act = record_from(Act, others[0], evidence="probable", lines=len(places))
            yield frozenset(places), act
            # What follows from another value does so by one of the lines that write it.
            if info(cause.rule).changed == "metadata":
                yield from ((frozenset((place,)), act) for place in places)
    elif not cause.changed.in_call:
        stack = cause.changed.stack
        texts = {(item.file, item.line): item.text for item in cause.changed_by}
        maker = None if entered is None else (entered.file, entered.function)
        last = next((n for n, line in enumerate(stack) if (line.file, line.function) == maker), 0)
        for depth, line in enumerate(stack[: last + 1]):
            text = texts.get((line.file, line.line), "")
            yield stack[depth:], record_from(Act, line, evidence="witnessed", text=text)
