"""Containers and attributes that held something before a call, and how they get it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from compilediag_harness.shapes.kinds import is_a


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()
"""In place of a value where there is none."""


class Holder(NamedTuple):
    """Something that holds other values, as it was."""

    put_back: Callable[[Any], None]
    """Makes it hold what is given."""
    now: Callable[[], Any]
    before: Any


def put_back(holders: Iterable[Holder]) -> None:
    """Makes everything hold what it held."""
    for holder in holders:
        if not _same_content(holder.before, holder.now()):
            holder.put_back(holder.before)


def _same_content(one: Any, other: Any) -> bool:
    if is_a(one, dict) and is_a(other, dict):
        first, second = cast(dict[Any, Any], one), cast(dict[Any, Any], other)
        return [*map(id, first), *map(id, first.values())] == [
            *map(id, second),
            *map(id, second.values()),
        ]
    if is_a(one, (list, set)) and type(one) is type(other):
        first, second = sorted(map(id, one)), sorted(map(id, other))
        return first == second if is_a(one, set) else [*map(id, one)] == [*map(id, other)]
    return one is other


def refill(of: Any, value: Any, items: Any) -> None:
    """Replaces all items of a container, also where a subclass has methods of its own."""
    of.clear(value)
    (of.update if hasattr(of, "update") else of.extend)(value, items)
