"""Merges causes with a common cause into one group: the root first, then what follows from it.

What has a common cause changes in the same recompiles, or step, by the same line or by the same
amount, as all tensors of a batch do; what only happens to change at the same time stays apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from compilediag.diagnosis.causes.behind_breaks import BehindBreaks
from compilediag.diagnosis.causes.cause_group import APART, Group, add_values, find_changed_dims
from compilediag.diagnosis.codes import REGISTER, VALUES
from compilediag.diagnosis.findings import Cause, CommonCause
from compilediag.receipt.schema.compiles import mask_indices
from compilediag.receipt.schema.record import make_record
from compilediag.timeline.compiles import FrameId
from compilediag.timeline.invocations import find_varying_sizes
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.base.resumed_frames import find_resumed_function, get_whole_function
from compilediag_harness.wire import UserCall

ANOTHER_INSTANCE = "instance"
"""The kind of what another instance of a class, or another call within one step, is called with."""
_LOCAL = re.compile(r"L\['\w+'\](?:\[\d+\])*")
"""An argument, or an item of one."""
_RANKS = {"mode": 0, "metadata": 2, "size": 3, "condition": 3}
"""Modes come before values (1), values before what they do to tensors."""
_TENSORS = ("tensor", "size", "metadata")
"""A batch of another length or dtype changes all its tensors alike, and a cache that grows its keys
and its values."""


def merge_by_common_cause(
    groups: Sequence[Group], timeline: Timeline, behind: BehindBreaks, values: ValuesByGraph
) -> list[Group]:
    """Put the groups of a run that have a common cause under the first of them, in their order."""
    order = {group.id: position for position, group in enumerate(groups)}
    unrelated = _make_independence_test(timeline)
    merged = _merge_alike(_merge_value(_merge_instances(groups)), unrelated)
    merged = _merge_items(merged, unrelated)
    # Sizes of an argument object take its own record of their length, a number.
    merged = _attach_followers(merged, lambda group: group.changed == "scalar", _is_length)
    merged = _merge_callees(sorted(merged, key=lambda group: order[group.id]), behind)
    merged.sort(key=lambda group: order[group.id])
    merged = _attach_followers(merged, _is_on_sizes, _is_condition_of)
    merged.sort(key=lambda group: -len(group.first.parts))
    merged = _attach_followers(merged, lambda group: group.owner == "several", _is_within)
    merged = _merge_one_line(merged, steps_known=bool(timeline.steps))
    merged = _merge_indices(merged)
    merged.sort(key=lambda group: (group.changed != "tensor", -len(group.recompiles)))
    merged = _attach_followers(
        merged,
        lambda group: len({(writer.file, writer.function) for writer, _ in group.writers}) == 1,
        lambda group, tensor: _is_set_with(group, tensor, values),
    )
    return sorted(merged, key=lambda group: order[group.id])


def _attach_followers(
    groups: Iterable[Group],
    may_follow: Callable[[Group], bool],
    follows: Callable[[Group, Group], bool],
) -> list[Group]:
    """Put each group that may follow below the first it follows from; else after all others."""
    merged: list[Group] = []
    for group in sorted(groups, key=may_follow):
        roots = enumerate(merged) if may_follow(group) else ()
        root = next((n for n, other in roots if follows(group, other)), None)
        if root is None:
            merged.append(group)
        else:
            merged[root] = merged[root].add_follower(group)
    return merged


def _merge_value(groups: Iterable[Group]) -> list[Group]:
    """Merge one value of one frame, guarded at several places: as it is, then as a number; and a
    mode of the process that changed once, for every frame."""
    merged: dict[Hashable, Group] = {}
    for group in groups:
        value = group.code in VALUES and group.variable and not group.planned
        value = value and group.id.kind != ANOTHER_INSTANCE
        frames = frozenset((event.frame.file, event.frame.function) for event in group.recompiles)
        key = (group.code, group.variable, frames) if value else group.id
        if group.owner == "process" and group.variable:
            key = (group.code, group.variable, frozenset(_list_moments(group)))
        merged[key] = merged[key].add_follower(group) if key in merged else group
    return list(merged.values())


def _merge_instances(groups: Sequence[Group]) -> list[Group]:
    """Merge what is another instance of a class: its parameters in all frames that its call goes
    through, and what it is called with."""
    differences: dict[Hashable, set[Hashable]] = {}
    for group in groups:
        for cause, recompile in zip(group.causes, group.recompiles, strict=True):
            if group.owner == "instance":
                change = cause.expected, cause.actual
                differences.setdefault(recompile.id, set()).add(change)
    own: dict[Hashable, Group] = {}
    inputs: list[Group] = []
    rest: list[Group] = []
    for group in groups:
        if group.owner == "instance":
            # The steps in which instances differed, and in what.
            when = frozenset(
                (
                    recompile.process,
                    recompile.epoch,
                    recompile.step,
                    frozenset(differences[recompile.id]),
                )
                for recompile in group.recompiles
            )
            own[when] = own[when].add_follower(group) if when in own else group
        elif group.id.kind == ANOTHER_INSTANCE:
            inputs.append(group)
        else:
            rest.append(group)
    whose = {r.id: when for when, of in own.items() for g in of.parts for r in g.recompiles}
    for group in inputs:
        first, *others = {whose.get(recompile.id) for recompile in group.recompiles}
        if first is None or others:
            own[group.id] = group
        else:
            own[first] = own[first].add_follower(group)
    return [*rest, *own.values()]


def _is_on_sizes(group: Group) -> bool:
    """A condition of the graph on sizes."""
    return group.changed == "condition" and "size()" in group.first.guard


def _is_condition_of(condition: Group, sizes: Group) -> bool:
    """True if both are of the same tensor of the same frame, at one line, in the same recompiles: a
    condition that a later size meets has a fix of its own."""
    return _is_on_sizes(condition) and any(
        part.changed == "size"
        and not part.planned
        and part.location == condition.location
        and part.variable in re.split(r"[^\w.\[\]']+", condition.variable)
        and {recompile.id for recompile in part.recompiles}
        >= {recompile.id for recompile in condition.recompiles}
        for part in sizes.parts
    )


def _is_within(group: Group, whole: Group) -> bool:
    """True if both combine known values in one frame, one of them fewer of the same values."""
    own, others = (
        {(part.rule, part.variable, part.kind) for part in combination.first.parts}
        for combination in (group, whole)
    )
    frames, places = (
        {recompile.frame for recompile in combination.recompiles} for combination in (group, whole)
    )
    return group.owner == whole.owner == "several" and own <= others and frames <= places


# --- tensors that changed alike --------------------------------------------------------------


def _merge_alike(groups: Iterable[Group], unrelated: Callable[[Group, Group], bool]) -> list[Group]:
    """Merge groups of tensors that differ in nothing but the tensor."""
    by_key: dict[Hashable, list[list[Group]]] = {}
    for group in groups:
        changes = tuple(map(_identify_change, group.causes))
        compiles = tuple(recompile.id for recompile in group.recompiles)
        key = (group.code, group.id.kind, group.planned, compiles, changes)
        sets = by_key.setdefault(key if group.changed in _TENSORS else group.id, [])
        same = next((alike for alike in sets if not unrelated(alike[0], group)), None)
        if same is None:
            sets.append([group])
        else:
            same.append(group)
    return [replace(head, together=tuple(tail)) for sets in by_key.values() for head, *tail in sets]


def _merge_items(groups: Iterable[Group], unrelated: Callable[[Group, Group], bool]) -> list[Group]:
    """Merge groups of items of one argument whose sizes changed alike in one recompile: the layers
    of a model take one item each of a cache, and so recompile for some of them alone."""
    merged: list[Group] = []
    at: dict[Hashable, int] = {}
    for group in groups:
        holder = _find_container(group.variable)
        is_item = group.changed == "size" and not group.planned and holder is not None
        changes = [
            (holder, recompile.id, _identify_change(cause))
            for cause, recompile in zip(group.causes, group.recompiles, strict=True)
            if is_item
        ]
        first = next((at[change] for change in changes if change in at), len(merged))
        if first == len(merged) or unrelated(merged[first], group):
            first = len(merged)
            merged.append(group)
        else:
            merged[first] = merged[first].add_follower(group)
        for change in changes:
            at.setdefault(change, first)
    return merged


def _merge_indices(groups: Iterable[Group]) -> list[Group]:
    """Merge groups of values that changed alike and differ in nothing but their object, such as an
    attribute of each layer; and what else changed of the same several objects."""
    by_key: dict[Hashable, list[Group]] = {}
    for group in groups:
        member = mask_indices(group.variable).rpartition(".")[2]
        same = group.code, member, group.id.kind, group.planned
        changes = tuple((cause.expected, cause.actual) for cause in group.causes)
        compiles = tuple(recompile.id for recompile in group.recompiles)
        alone = len(group.parts) == 1
        # Not the place: each is guarded where a line of the frame reads it first.
        key = (*same, compiles, changes) if alone else group.id
        by_key.setdefault(key, []).append(group)
    merged: dict[Hashable, Group] = {}
    for head, *tail in by_key.values():
        group = replace(head, together=head.together + tuple(tail))
        holders = frozenset(variable.rpartition(".")[0] for variable in group.variables)
        compiles = tuple(recompile.id for recompile in group.recompiles)
        key = (holders, compiles) if tail and len(holders) > 1 else group.id
        merged[key] = merged[key].add_follower(group) if key in merged else group
    return list(merged.values())


def _identify_change(cause: Cause) -> Hashable:
    """Make equal for tensors in which the same changed, whichever of their dimensions it was."""
    changed = find_changed_dims(cause.expected, cause.actual)
    return frozenset(change[1:] for change in changed) or (cause.expected, cause.actual)


def _make_independence_test(timeline: Timeline) -> Callable[[Group, Group], bool]:
    """Make a test of two groups: the calls of a function show that the sizes of two arguments
    differ from call to call, though they once changed alike."""
    columns: dict[tuple[int, str, int], Mapping[str, int]] = {}
    for calls in timeline.invocations:
        varying = find_varying_sizes(((s.shapes, s.count) for s in calls.shapes), calls.tensors)
        if varying is not None:
            key = (calls.process, calls.function.file, calls.function.line)
            columns[key] = {place: n for n, places in enumerate(varying.dims) for place in places}

    def find_changed(group: Group, known: Mapping[str, int]) -> set[int]:
        places = (
            f"{cause.variable}:{change.dimension}"
            for cause in group.causes
            for change in find_changed_dims(cause.expected, cause.actual)
        )
        return {known[place] for place in places if place in known}

    def are_independent(first: Group, second: Group) -> bool:
        frames = ((event.process, event.frame.file, event.frame.line) for event in first.recompiles)
        by_frame = (columns.get(frame, {}) for frame in frames)
        sizes = ((find_changed(first, known), find_changed(second, known)) for known in by_frame)
        return any(one and other and not one & other for one, other in sizes)

    return are_independent


def _is_length(number: Group, sizes: Group) -> bool:
    """True if a number in an argument object changed by as much as the sizes in it, each time."""
    if sizes.changed != "size" or sizes.planned or number.planned:
        return False
    holder = _find_container(sizes.variable)
    if holder is None or holder != _find_container(number.variable):
        return False
    if [event.id for event in sizes.recompiles] != [event.id for event in number.recompiles]:
        return False
    return all(
        {(change.before, change.after) for change in find_changed_dims(size.expected, size.actual)}
        == {(own.expected, own.actual)}
        for size, own in zip(sizes.causes, number.causes, strict=True)
    )


def _find_container(variable: str) -> str | None:
    """Find the argument of which a variable is a member; None for members of a module, which holds
    much beside its inputs."""
    root = re.split(r"[.\[]", variable, maxsplit=1)[0]
    return root if root not in (variable, "self", "fn") else None


def _merge_callees(groups: Sequence[Group], behind: BehindBreaks) -> list[Group]:
    """Merge sizes of a frame with those that the same call changed alike in frames it goes on to,
    and with numbers that such a frame has in their place."""
    merged: list[Group] = []
    at: dict[Hashable, list[int]] = {}
    for group in sorted(groups, key=lambda candidate: candidate.recompiles[0].t):
        number = group.changed == "scalar" and all(i.id in behind.breaks for i in group.recompiles)
        # Whether a tensor needs gradients is passed on with it; a parameter's is its own.
        passed = group.changed == "metadata" and all(
            _LOCAL.fullmatch(c.source) for c in group.causes
        )
        moments = _list_moments(group)
        if group.planned or not (group.changed == "size" or number or passed):
            moments = []
        near = at.get(moments[0], ()) if moments else ()
        caller = next((n for n in near if _is_callee(merged[n], group, behind)), None)
        if caller is not None:
            merged[caller] = merged[caller].add_follower(group)
            continue
        for moment in moments:
            at.setdefault(moment, []).append(len(merged))
        merged.append(group)
    return merged


def _list_moments(group: Group) -> list[Hashable]:
    """List when each change was, and what: a number changes as the size it was taken from."""
    return [
        (
            *(recompile.process, recompile.epoch, recompile.step),
            "size" if group.changed in ("size", "scalar") else group.code,
            frozenset([(cause.expected, cause.actual)])
            if group.changed == "scalar"
            else _identify_change(cause),
        )
        for cause, recompile in zip(group.causes, group.recompiles, strict=True)
    ]


def _is_callee(caller: Group, callee: Group, behind: BehindBreaks) -> bool:
    """True if every recompile of the one followed, with the same change, one of the other."""
    before: dict[Hashable, list[Recompile]] = {}
    for part in caller.parts:
        for moment, recompile in zip(_list_moments(part), part.recompiles, strict=True):
            before.setdefault(moment, []).append(recompile)
    return all(
        any(
            own.t <= recompile.t and _is_rest_or_callee(own, recompile, behind)
            for own in before.get(moment, ())
        )
        for moment, recompile in zip(_list_moments(callee), callee.recompiles, strict=True)
    )


def _is_rest_or_callee(caller: Recompile, callee: Recompile, behind: BehindBreaks) -> bool:
    """True if a frame is what is left of another after a graph break, or is called by it."""
    outer, inner = caller.frame, callee.frame
    if caller.id == callee.id:
        return False
    here = outer.file, get_whole_function(outer.function)
    is_rest = find_resumed_function(inner.function) is not None
    if is_rest and here == (inner.file, get_whole_function(inner.function)):
        return True
    call, other = callee.entered_at, caller.entered_at
    if call is None or here == (call.file, call.function):
        return call is not None
    # A library's frames are both called from the program's one call of the broken one.
    if other is None or not call.text or caller.id not in behind.broke:
        return False
    return (call.file, call.line, call.text) == (other.file, other.line, other.text)


# --- values that one function sets together ---------------------------------------------------

ValuesByGraph = Mapping[tuple[FrameId, str], Mapping[str, str]]
"""The value of each variable of a frame in each graph, as far as it is known."""

_FLAGS = ("True", "False", "None")
_TRAINS, _EVALUATES = re.compile(r"\.train\((?:True)?\)"), re.compile(r"\.eval\(|train\(False")
_UNSET = re.compile(r"(?:None|False|.* absent|0 (?:items?|keys?))$")


def collect_values(
    recompiles: Iterable[tuple[Recompile, Iterable[tuple[str, Iterable[Cause]]]]],
) -> dict[tuple[FrameId, str], dict[str, str]]:
    """Collect the values by graph from recompiles, each with what was false of its entries."""
    values: dict[tuple[FrameId, str], dict[str, str]] = {}
    for event, false in recompiles:
        for entry_id, causes in false:
            for cause in causes:
                if cause.kind == "type" or REGISTER[cause.rule].changed not in APART:
                    pairs = (entry_id, cause.expected), (event.compile_id, cause.actual)
                    add_values(values.setdefault((event.id.frame, cause.variable), {}), pairs)
    return values


def _is_set_with(group: Group, tensor: Group, values: ValuesByGraph) -> bool:
    """True if the function that makes a tensor sets the value too, and each time: between graphs of
    which both are known, the one never changed without the other. A flag says less than the tensor:
    it may stay."""
    if tensor.changed != "tensor" or tensor.planned or group.planned:
        return False
    if {(w.file, w.function) for w, _ in tensor.writers} != {
        (w.file, w.function) for w, _ in group.writers
    }:
        return False
    together = False
    for frame in {event.id.frame for event in group.recompiles}:
        own, its = (values.get((frame, part.variable), {}) for part in (group, tensor))
        for one, other in combinations(own.keys() & its.keys(), 2):
            changed, made = own[one] != own[other], its[one] != its[other]
            if changed > made or (made > changed and own[one] not in _FLAGS):
                return False
            together = together or changed
    return together


# --- values that one line changed ------------------------------------------------------------


def _merge_one_line(groups: Sequence[Group], *, steps_known: bool) -> list[Group]:
    """Merge groups whose values the same line of the program changed, each time between the same
    two calls: the root is what the others follow from."""
    merged: list[Group] = []
    roots: list[tuple[set[Hashable], dict[Hashable, CommonCause]]] = []
    """When the values of each changed, and by which lines that may have been."""
    at: dict[Hashable, list[int]] = {}
    for group in sorted(
        groups, key=lambda candidate: (_RANKS.get(candidate.changed, 1), -len(candidate.recompiles))
    ):
        # Without steps only one recompile is known to be one time.
        times: list[Hashable] = [
            (recompile.process, recompile.epoch, recompile.step) if steps_known else recompile.id
            for recompile in group.recompiles
        ]
        own = [
            {(time, line): common for line, common in _iterate_lines(cause, recompile)}
            for time, cause, recompile in zip(times, group.causes, group.recompiles, strict=True)
            if not group.planned
        ]
        first = own[0] if own else {}
        for root in (n for line in first for n in at.get(line, ())):
            root_times, lines = roots[root]
            # Consequences need not follow each time that the root changes; a common cause flips
            # metadata beside the value that it is called for, in some of the recompiles.
            fits_times = group.changed == "metadata" or root_times == set(times)
            if fits_times and all(not lines.keys().isdisjoint(between) for between in own):
                common = merged[root].common_cause or next(
                    common for line, common in lines.items() if line in first
                )
                merged[root] = replace(merged[root].add_follower(group), common_cause=common)
                break
        else:
            every: dict[Hashable, CommonCause] = {}
            for between in own:
                every |= {line: common for line, common in between.items() if line not in every}
            for line in every:
                at.setdefault(line, []).append(len(merged))
            merged.append(group)
            roots.append((set(times), every))
    return merged


def _is_for_another(site: UserCall, cause: Cause) -> bool:
    """True for a line that sets the other mode, and for one that sets a flag of tensors where the
    tensor is an argument, which may be another one in each call."""
    if cause.kind == "train_eval":
        other = _TRAINS if cause.actual == "False" else _EVALUATES
        return other.search(site.text) is not None
    return REGISTER[cause.rule].changed == "metadata" and _LOCAL.fullmatch(cause.source) is not None


def _iterate_lines(cause: Cause, recompile: Recompile) -> Iterator[tuple[Hashable, CommonCause]]:
    """Iterate the lines between the two calls: of those that were seen, the changing one and its
    callers within the function that makes the calls, which runs on; else the probable, as one."""
    called_from = recompile.entered_at
    if cause.changed is None:
        if cause.is_set_within and not _UNSET.match(cause.actual or ""):
            return  # the call that is compiled sets it on, as a position in a queue
        call = None if called_from is None else (called_from.file, called_from.line)
        # The compiled call cannot be made earlier: what changes inside it has no line here.
        others = [
            site
            for site in cause.changed_by
            if (site.file, site.line) != call and not _is_for_another(site, cause)
        ]
        if others:
            places = dict.fromkeys((site.file, site.line) for site in others)
            common = make_record(CommonCause, others[0], evidence="probable", lines=len(places))
            yield frozenset(places), common
            # What follows from another value does so by one of the lines that write it.
            if REGISTER[cause.rule].changed == "metadata":
                yield from ((frozenset((place,)), common) for place in places)
    elif not cause.changed.in_call:
        stack = cause.changed.stack
        texts = {(site.file, site.line): site.text for site in cause.changed_by}
        maker = None if called_from is None else (called_from.file, called_from.function)
        last = next((n for n, line in enumerate(stack) if (line.file, line.function) == maker), 0)
        for depth, line in enumerate(stack[: last + 1]):
            text = texts.get((line.file, line.line), "")
            yield stack[depth:], make_record(CommonCause, line, evidence="witnessed", text=text)
