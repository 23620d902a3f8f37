"""What was new at a recompile: values that no cache entry accepts, or that none accepts together.

The process knows for each guarded source whether some entry accepts its present value. One leaf
guards all of a tensor and one all of torch's global state: a part of those is known where some
entry has nothing against that part.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from compilediag.diagnosis.causes.conditions import Condition
from compilediag.diagnosis.causes.nearest import (
    OBJECT_GONE,
    STRUCTURE,
    Invalidated,
    identity_of,
    of_this_instance,
)
from compilediag.diagnosis.guards.source import Path

_HIDES = ("type", "rank")
"""What else an entry expected of a tensor cannot be compared then."""

_MAX_PARTS, _MAX_TRIED = 4, 16
"""Values of a combination: more of them would say nothing; and values that may be in one, those
that most entries refuse."""


def with_parts(entries: Sequence[Sequence[Condition]]) -> list[tuple[Condition, ...]]:
    """The conditions of all entries, where a part of something new is known if an entry accepts
    that part."""
    refused = [{_part(each) for each in entry} for entry in entries]
    accepted = set[str]().union(*map(_accepted_in_mode, entries))
    of_that_kind = _of_known_kind(entries)

    def novel(condition: Condition) -> bool | None:
        if not condition.novel:
            return condition.novel
        if condition.guard.check in OBJECT_GONE and condition.subject in of_that_kind:
            return False
        if condition.guard.check not in ("tensor", "state"):
            return condition.false.source not in accepted
        what, aspect = _part(condition)
        hides = {(what, each) for each in (aspect, None, *_HIDES)}
        # No entry accepts all of it: one that refuses nothing of it does not guard it at all.
        return all(hides & parts for parts in refused if any(part[0] == what for part in parts))

    return [tuple(replace(each, novel=novel(each)) for each in entry) for entry in entries]


def with_variables(entries: Sequence[Sequence[Condition]]) -> list[tuple[Condition, ...]]:
    """The causes found in all entries that there are, where a variable that each of them refuses is
    new: one may have nothing against its length, another one nothing against its keys."""
    refused = [{identity_of(each) for each in entry} for entry in entries]
    everywhere = set[Hashable].intersection(*refused)
    of_that_kind = _of_known_kind(entries)

    def novel(condition: Condition) -> bool | None:
        if condition.guard.check in OBJECT_GONE and condition.subject in of_that_kind:
            return condition.novel
        return identity_of(condition) in everywhere or condition.novel

    return [tuple(replace(each, novel=novel(each)) for each in entry) for entry in entries]


def _of_known_kind(entries: Sequence[Sequence[Condition]]) -> set[Path | None]:
    """Containers of whose length or keys an entry refuses something: what it was compiled for was
    no None and nothing of another type."""
    conditions = (condition for entry in entries for condition in entry)
    return {each.subject for each in conditions if each.guard.check in STRUCTURE} - {None}


def _accepted_in_mode(entry: Sequence[Condition]) -> set[str]:
    """Sources of tensors that the entry refuses for nothing but a mode that is another one now."""
    gone = Invalidated.under(entry)
    hidden = {each.false.source for each in entry if gone.hides(each)}
    return hidden - {each.false.source for each in entry if not gone.hides(each)}


def _part(condition: Condition) -> tuple[Hashable, str | None]:
    guard = condition.guard
    aspect = guard.aspect
    if guard.check == "state" and aspect is not None:
        aspect = ".".join(aspect.split()[0].split(".")[:2])
    return ("state" if guard.check == "state" else condition.false.source), aspect


def combination_in(entries: Sequence[Sequence[Condition]]) -> tuple[Condition, ...]:
    """The fewest known values that no entry accepts together; empty where one value is new, or may
    be."""
    own = of_this_instance(entries)
    conditions = [condition for entry in own for condition in entry]
    refused = [{identity_of(condition) for condition in entry} for entry in own]
    first = {identity_of(each): each for each in reversed(conditions) if each.novel is False}
    often = Counter(identity for parts in refused for identity in parts if identity in first)
    everywhere = set[Hashable].intersection(*refused) if refused else set[Hashable]()
    if everywhere or any(condition.novel for condition in conditions):
        return ()
    # In an order of their own: that of a set differs from process to process.
    tried = sorted(often, key=lambda identity: (-often[identity], _order(first[identity])))
    tried = tried[:_MAX_TRIED]
    for size in range(2, min(_MAX_PARTS, len(tried)) + 1):
        for chosen in itertools.combinations(tried, size):
            if all(parts.intersection(chosen) for parts in refused):
                return tuple(sorted(map(first.__getitem__, chosen), key=_order))
    return ()


def _order(condition: Condition) -> tuple[int, str, str]:
    """The same in every recompile, whichever entry comes first."""
    return condition.decision.order, condition.variable, condition.guard.aspect or ""
