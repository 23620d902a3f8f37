"""Causes that one act changed, as one group: the root first, then what follows from it.

A batch of another length changes all its tensors alike, in the compiled function and in what it
calls; a number is guarded in two ways; a call such as `model.set_adapter("de")` sets a name and
flips flags. Causes that only happen to change at the same time stay apart: parts of one act change
in the same recompiles, or step, by the same line or by the same amount.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compilediag.diagnosis.causes.behind_breaks import BehindBreaks, whole_function
from compilediag.diagnosis.causes.changed_sizes import changed_dimensions
from compilediag.diagnosis.causes.group import Group
from compilediag.diagnosis.findings import Act, Cause
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.invocations import varying_sizes
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import UserCall, resumed_function

_OF_TENSORS = frozenset(("CD103", "CD105", "CD106"))
"""Codes of tensors: a batch of another length or dtype changes all its tensors alike, and a cache
that grows its keys and its values."""
_OF_VALUES = frozenset(("CD104", "CD107", "CD109", "CD116"))
"""Codes of values that Dynamo guards as they are, or as a number of a shape condition."""
_CONSEQUENCES = frozenset(("CD106",))
"""Codes of what an act flips beside the value that it is called for, in some of the recompiles."""
COMBINATION = "CD120"
"""The code of values that were compiled for before, and not together."""
ANOTHER_INSTANCE = "instance"
"""The kind of what another instance of a class, or another call within one step, is called with."""
_LOCAL = re.compile(r"L\['\w+'\]")
_RANKS = {"CD111": 0, "CD106": 2, "CD105": 3, "CD118": 3}
"""Modes come before values, values before what they do to tensors."""
_VALUE_RANK = 1


def by_act(groups: Sequence[Group], timeline: Timeline, behind: BehindBreaks) -> list[Group]:
    """The groups of a run, those that one act made under the first of them."""
    order = {group.id: position for position, group in enumerate(groups)}
    found = _of_instances(groups)
    found = _one_value(found)
    found = _alike(found, _independent_sizes(timeline))
    found = _numbers_of_containers(found)
    found = sorted(_in_callees(found, behind), key=lambda group: order[group.id])
    found = _in_combinations(_conditions_of_sizes(found))
    found = _of_one_line(found, steps_known=bool(timeline.steps))
    return sorted(found, key=lambda group: order[group.id])


def _one_value(groups: Iterable[Group]) -> list[Group]:
    """One value of one frame that is guarded at several places: as it is, then as a number."""
    found: dict[Hashable, list[Group]] = {}
    for group in groups:
        value = group.code in _OF_VALUES and group.variable and not group.planned
        value = value and group.id.kind != ANOTHER_INSTANCE
        frames = frozenset((item.frame.file, item.frame.function) for item in group.recompiles)
        key = (group.code, group.variable, frames) if value else group.id
        found.setdefault(key, []).append(group)
    return [
        replace(first, follows=(*first.follows, *others)) if others else first
        for first, *others in found.values()
    ]


# --- instances of one class ------------------------------------------------------------------


def _of_instances(groups: Sequence[Group]) -> list[Group]:
    """Another instance of a class as one: its parameters in all frames that its call goes through,
    and what it is called with."""
    differences: dict[Hashable, set[Hashable]] = {}
    for group in groups:
        for cause, item in zip(group.causes, group.recompiles, strict=True):
            if group.code == "CD117":
                change = cause.expected, cause.actual
                differences.setdefault(item.id, set()).add(change)

    def when(group: Group) -> Hashable:
        """The steps in which instances differed, and in what."""
        return frozenset(
            (item.process, item.epoch, item.step, frozenset(differences[item.id]))
            for item in group.recompiles
        )

    own: dict[Hashable, list[Group]] = {}
    inputs: list[Group] = []
    found: list[Group] = []
    for group in groups:
        if group.code == "CD117":
            own.setdefault(when(group), []).append(group)
        elif group.id.kind == ANOTHER_INSTANCE:
            inputs.append(group)
        else:
            found.append(group)
    whose = {item.id: key for key, of in own.items() for g in of for item in g.recompiles}
    for group in inputs:
        keys = {whose.get(item.id) for item in group.recompiles}
        key = next(iter(keys))
        if len(keys) == 1 and key is not None:
            own[key].append(group)
        else:
            own[group.id] = [group]
    joined = [
        replace(first, follows=tuple(others)) if others else first
        for first, *others in own.values()
    ]
    return [*found, *joined]


def _conditions_of_sizes(groups: Sequence[Group]) -> list[Group]:
    """Sizes with the conditions of the graph on the same sizes, at the same line, in the same
    recompiles: one that a later size meets has a fix of its own."""
    found: list[Group] = []
    conditions: list[Group] = []
    for group in groups:
        about = group.code == "CD118" and "size()" in group.first.guard
        (conditions if about else found).append(group)
    for group in conditions:
        whole = next((n for n, sizes in enumerate(found) if _is_condition_of(group, sizes)), None)
        if whole is None:
            found.append(group)
        else:
            found[whole] = replace(found[whole], follows=(*found[whole].follows, *group.parts))
    return found


def _is_condition_of(condition: Group, sizes: Group) -> bool:
    """The same tensor of the same frame, at one line."""
    return any(
        part.code == "CD105"
        and not part.planned
        and part.location == condition.location
        and part.variable in re.split(r"[^\w.\[\]']+", condition.variable)
        and {item.id for item in part.recompiles} >= {item.id for item in condition.recompiles}
        for part in sizes.parts
    )


def _in_combinations(groups: Sequence[Group]) -> list[Group]:
    """Combinations of known values with those of fewer of the same values, in the same frame."""
    found = [group for group in groups if group.code != COMBINATION]
    wholes: list[Group] = []
    for group in sorted((g for g in groups if g.code == COMBINATION), key=lambda g: -_width(g)):
        at = next((n for n, whole in enumerate(wholes) if _is_within(group, whole)), None)
        if at is None:
            wholes.append(group)
        else:
            wholes[at] = replace(wholes[at], follows=(*wholes[at].follows, *group.parts))
    return [*found, *wholes]


def _width(group: Group) -> int:
    return len(group.first.parts)


def _is_within(group: Group, whole: Group) -> bool:
    own, others = (
        {(part.rule, part.variable, part.kind) for part in each.first.parts}
        for each in (group, whole)
    )
    frames, places = ({item.frame for item in each.recompiles} for each in (group, whole))
    return own <= others and frames <= places


# --- tensors that changed alike --------------------------------------------------------------


def _alike(groups: Iterable[Group], independent: Callable[[Group, Group], bool]) -> list[Group]:
    """Groups of tensors that differ in nothing but the tensor as one."""
    acts: dict[Hashable, list[list[Group]]] = {}
    for group in groups:
        changes = tuple(map(_change, group.causes))
        compiles = tuple(recompile.id for recompile in group.recompiles)
        key = (group.code, group.id.kind, group.planned, compiles, changes)
        sets = acts.setdefault(key if group.code in _OF_TENSORS else group.id, [])
        same = next((item for item in sets if not independent(item[0], group)), None)
        if same is None:
            sets.append([group])
        else:
            same.append(group)
    return [
        replace(first, together=tuple(others)) for sets in acts.values() for first, *others in sets
    ]


def _change(cause: Cause) -> Hashable:
    """What changed about a tensor, whichever of its dimensions it was."""
    changed = changed_dimensions(cause.expected, cause.actual)
    return frozenset(item[1:] for item in changed) or (cause.expected, cause.actual)


def _independent_sizes(timeline: Timeline) -> Callable[[Group, Group], bool]:
    """Whether the calls of a function show that the sizes of two arguments differ from call to
    call, though they once changed alike."""
    columns: dict[tuple[int, str, int], Mapping[str, int]] = {}
    for item in timeline.invocations:
        varying = varying_sizes(((s.shapes, s.count) for s in item.shapes), item.tensors)
        if varying is not None:
            key = (item.process, item.function.file, item.function.line)
            columns[key] = {place: n for n, places in enumerate(varying.dims) for place in places}

    def independent(first: Group, second: Group) -> bool:
        for recompile in first.recompiles:
            frame = recompile.frame
            known = columns.get((recompile.process, frame.file, frame.line), {})
            one, other = (
                {known[place] for place in _changed_places(group) if place in known}
                for group in (first, second)
            )
            if one and other and not one & other:
                return True
        return False

    return independent


def _changed_places(group: Group) -> set[str]:
    """As `VaryingSizesRecord` names them: "x:0"."""
    return {
        f"{cause.variable}:{item.dimension}"
        for cause in group.causes
        for item in changed_dimensions(cause.expected, cause.actual)
    }


def _numbers_of_containers(groups: Sequence[Group]) -> list[Group]:
    """Sizes of tensors in an argument object with the number in the same object that changed by the
    same amount each time: its own record of their length."""
    found: list[Group] = []
    numbers = [item for item in groups if item.code == "CD107" and not item.planned]
    taken: set[int] = set()
    for group in groups:
        follows = [item for item in numbers if id(item) not in taken and _is_length(group, item)]
        taken.update(map(id, follows))
        parts = (part for item in follows for part in item.parts)
        found.append(replace(group, follows=(*group.follows, *parts)) if follows else group)
    return [group for group in found if id(group) not in taken]


def _is_length(sizes: Group, number: Group) -> bool:
    holder = _container(sizes.variable)
    if sizes.code != "CD105" or sizes.planned or holder is None:
        return False
    if holder != _container(number.variable):
        return False
    again = ([item.id for item in group.recompiles] for group in (sizes, number))
    if next(again) != next(again):
        return False
    return all(
        {(item.before, item.after) for item in changed_dimensions(size.expected, size.actual)}
        == {(own.expected, own.actual)}
        for size, own in zip(sizes.causes, number.causes, strict=True)
    )


def _container(variable: str) -> str | None:
    """The argument of which a variable is a member; a module holds much beside its inputs."""
    root = re.split(r"[.\[]", variable, maxsplit=1)[0]
    return root if root not in (variable, "self", "fn") else None


def _in_callees(groups: Sequence[Group], behind: BehindBreaks) -> list[Group]:
    """Sizes of a frame with those that the same call changed alike in frames it goes on to, and
    with numbers that such a frame has in their place."""
    found: list[Group] = []
    at: dict[Hashable, list[int]] = {}
    for group in sorted(groups, key=lambda item: item.recompiles[0].t):
        number = group.code == "CD107" and all(i.id in behind.breaks for i in group.recompiles)
        sizes = not group.planned and (group.code == "CD105" or number or _is_passed_on(group))
        near = at.get(_moments(group)[0], ()) if sizes else ()
        caller = next((n for n in near if _is_callee(found[n], group, behind)), None)
        if caller is not None:
            found[caller] = replace(found[caller], follows=(*found[caller].follows, *group.parts))
            continue
        for moment in _moments(group) if sizes else ():
            at.setdefault(moment, []).append(len(found))
        found.append(group)
    return found


def _is_passed_on(group: Group) -> bool:
    """Another property of a tensor that a call passes, as its result has it too: whether it needs
    gradients. A parameter's is its own."""
    return group.code == "CD106" and all(_LOCAL.fullmatch(cause.source) for cause in group.causes)


def _moments(group: Group) -> list[Hashable]:
    """When each change was, and what: a number changes as the size it was taken from."""
    return [
        (
            *(recompile.process, recompile.epoch, recompile.step),
            "CD105" if cause.rule == "CD107" else cause.rule,
            frozenset([(cause.expected, cause.actual)])
            if cause.rule == "CD107"
            else _change(cause),
        )
        for cause, recompile in zip(group.causes, group.recompiles, strict=True)
    ]


def _is_callee(caller: Group, callee: Group, behind: BehindBreaks) -> bool:
    """Every recompile of the one followed, with the same change, one of the other."""
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
    entered = callee.entered_at
    if entered is None:
        return False
    # A library's frames are both entered by the program's one call of the broken one.
    within = caller.id in behind.broke and _is_same_call(entered, caller.entered_at)
    return within or here == (entered.file, entered.function)


def _is_same_call(one: UserCall, other: UserCall | None) -> bool:
    if other is None or not one.text:
        return False
    return (one.file, one.line, one.text) == (other.file, other.line, other.text)


# --- values that one line changed ------------------------------------------------------------


def _of_one_line(groups: Sequence[Group], *, steps_known: bool) -> list[Group]:
    """Groups whose values the same line of the program changed, each time between the same two
    calls: the root is what the others follow from."""
    found: list[Group] = []
    roots: list[_Changes] = []
    at: dict[Hashable, list[int]] = {}
    for group in sorted(groups, key=_before):
        own = _Changes.of(group, steps_known=steps_known)
        first: Mapping[Hashable, Act] = own.lines[0] if own.lines else {}
        near = (n for line in first for n in at.get(line, ()))
        root = next((n for n in near if own.follow(roots[n], group.code)), None)
        if root is not None:
            act = found[root].act or roots[root].innermost(first)
            others = (*found[root].follows, *group.parts)
            found[root] = replace(found[root], act=act, follows=others)
            continue
        for line in own.all:
            at.setdefault(line, []).append(len(found))
        found.append(group)
        roots.append(own)
    return found


def _before(group: Group) -> tuple[int, int]:
    return _RANKS.get(group.code, _VALUE_RANK), -len(group.recompiles)


@dataclass(frozen=True, slots=True)
class _Changes:
    """When the values of a group changed, and by which lines that may have been."""

    times: frozenset[Hashable]
    lines: tuple[Mapping[Hashable, Act], ...]
    """For each recompile, with its time: the innermost line first."""
    all: frozenset[Hashable]

    @classmethod
    def of(cls, group: Group, *, steps_known: bool) -> _Changes:
        """Without steps only one recompile is known to be one time."""
        times: list[Hashable] = [
            (item.process, item.epoch, item.step) if steps_known else item.id
            for item in group.recompiles
        ]
        found = () if group.planned else zip(times, group.causes, group.recompiles, strict=True)
        lines = tuple(_at(time, _lines_between(cause, again)) for time, cause, again in found)
        every = frozenset(line for each in lines for line in each)
        return cls(frozenset(times), lines, every)

    def innermost(self, lines: Collection[Hashable]) -> Act | None:
        """The first of these lines that is among its own."""
        own = ((line, act) for each in self.lines for line, act in each.items())
        return next((act for line, act in own if line in lines), None)

    def follow(self, root: _Changes, code: str) -> bool:
        """Whether, each time these changed, so did the root's, by the same line; those that the
        root does not imply each time that it does."""
        if code not in _CONSEQUENCES and root.times != self.times:
            return False
        return all(not root.all.isdisjoint(each) for each in self.lines)


def _at(time: Hashable, lines: Iterable[tuple[Hashable, Act]]) -> dict[Hashable, Act]:
    return {(time, name): act for name, act in lines}


def _lines_between(cause: Cause, recompile: Recompile) -> Iterator[tuple[Hashable, Act]]:
    """The lines between the two calls: of those that were seen, the changing one and its callers
    within the function that makes the calls, which runs on; else those that are probable, as one.
    """
    texts = {(item.file, item.line): item.text for item in cause.changed_by}
    if cause.changed is None:
        entered = recompile.entered_at
        call = None if entered is None else (entered.file, entered.line)
        # The compiled call cannot be made earlier: what changes inside it has no line here.
        others = [item for item in cause.changed_by if (item.file, item.line) != call]
        if others:
            first = others[0]
            texts = {(item.file, item.line): item.text for item in others}
            lines = len(texts)
            act = record_from(Act, first, evidence="probable", lines=lines)
            yield frozenset(texts), act
            # What follows from another value does so by one of the lines that write it.
            if cause.rule in _CONSEQUENCES:
                yield from ((frozenset((place,)), act) for place in texts)
        return
    stack, entered = cause.changed.stack, recompile.entered_at
    maker = None if entered is None else (entered.file, entered.function)
    last = next((n for n, line in enumerate(stack) if (line.file, line.function) == maker), 0)
    for depth in () if cause.changed.in_call else range(min(last + 1, len(stack))):
        line = stack[depth]
        text = texts.get((line.file, line.line), "")
        yield stack[depth:], record_from(Act, line, evidence="witnessed", text=text)
