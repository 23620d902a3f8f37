"""Conditions on dynamic sizes that graphs were built under, by compile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from compilediag.timeline.compiles import CompileId
from compilediag_harness.wire import SizeGuard, SizesGuarded


@dataclass(frozen=True, slots=True)
class GuardedSizes:
    """The conditions of one compile of one process, in their order."""

    process: int
    compile_id: str
    """"" for an export."""
    epoch: int
    guards: tuple[SizeGuard, ...]


def guarded_sizes_of(process: int, events: Iterable[SizesGuarded]) -> list[GuardedSizes]:
    """The conditions of each compile of a process."""
    return [GuardedSizes(process, event.compile_id, event.epoch, event.guards) for event in events]


def by_compile(found: Iterable[GuardedSizes]) -> dict[CompileId, tuple[SizeGuard, ...]]:
    """The conditions of each compile; its backward, compiled later, adds to them."""
    guards: dict[CompileId, tuple[SizeGuard, ...]] = {}
    for item in found:
        key = CompileId(item.process, item.epoch, item.compile_id)
        guards[key] = (*guards.get(key, ()), *item.guards)
    return guards
