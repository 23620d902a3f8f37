"""Which functions a compiled callable stands for: by the place where they are defined."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from compilediag_harness.blame.source_locations import definition_of
from compilediag_harness.wire import Location

MAX_WRAPPERS = 16


def wrapped_functions(torch: Any, function: Any) -> list[Any]:
    """A function and those that it wraps, as `functools.wraps` leaves them: one wrapper may stand
    around the functions of many classes. Of a module, and of a method of one, its `forward`."""
    owner = getattr(function, "__self__", function)
    if isinstance(owner, torch.nn.Module):
        function = getattr(type(owner), "forward", function)  # pyright: ignore[reportUnknownArgumentType]
    found = [function]
    while len(found) < MAX_WRAPPERS:
        inner = getattr(found[-1], "__dict__", {}).get("__wrapped__")
        if inner is None or not hasattr(inner, "__code__"):
            break
        found.append(inner)
    return found


def places_of(functions: list[Any]) -> list[tuple[Location, Any]]:
    """Place and code of each."""
    return [(definition_of(each), getattr(each, "__code__", None)) for each in functions]


def is_place_of(wanted: Location, place: Location, changed_files: Collection[str]) -> bool:
    """Whether a function of a plan is the one at a place. In `changed_files` it may stand at
    another line than in the plan."""
    if wanted.file != place.file:
        return False
    same_name = wanted.function.rpartition(".")[2] == place.function.rpartition(".")[2]
    return wanted.line == place.line or (place.file in changed_files and same_name)
