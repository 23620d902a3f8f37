"""What each compile looked like when its guards were built: user lines, root objects, hooks.

Kept weakly: a code object, a module or an argument that dies takes its baseline with it.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from compilediag_harness.base.weak_by_identity import WeakByIdentity
from compilediag_harness.blame import source_locations
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import Location

_LinesByGuard = dict[tuple[str, str], Location]


@dataclass(slots=True)
class Baseline:
    """One compile of one code object."""

    roots: dict[str, weakref.ref[Any]]
    """Locals at compile time that can be referenced weakly, tensors left out."""
    root_types: dict[str, type]
    inference_mode: bool | None
    lines: _LinesByGuard = field(default_factory=_LinesByGuard)
    """(source, kind of guard) to the user's line; kind "" is any guard of the source."""
    own_lines: _LinesByGuard = field(default_factory=_LinesByGuard)
    """By the same, the innermost line of the program's own, where that is another one."""
    functions: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """(file, name) of the functions that the user's lines are in."""
    lengths: dict[str, int] = field(default_factory=dict[str, int])
    """Of guarded containers, by their source."""

    def add(self, guard: Any, known: dict[Location, Location]) -> None:
        """Notes the lines of one guard, and the length that it requires. `known`: the lines noted
        so far, for a line has many guards."""
        source, kind = str(guard.name), torch_guards.guard_kind(guard)
        stack = list(guard.user_stack or ())
        location = source_locations.innermost_user_line(stack)
        if location is not None:
            self.functions.add((location.file, location.function.split(".")[-1]))
            _note(self.lines, source, kind, known.setdefault(location, location))
            own = source_locations.innermost_own_line(stack)
            if own is not None and own.file != location.file:
                _note(self.own_lines, source, kind, known.setdefault(own, own))
        length = torch_guards.length_of(guard)
        if length is not None:
            self.lengths[source] = length


def _note(lines: _LinesByGuard, source: str, kind: str, location: Location) -> None:
    lines.setdefault((source, kind), location)
    lines.setdefault((source, ""), location)


class Baselines:
    """All baselines of this process, by code object and compile id."""

    def __init__(self, tensor_type: type) -> None:
        self.tensor_type = tensor_type
        self._by_code = WeakByIdentity[types.CodeType, dict[str, Baseline]]()
        self._fresh: list[weakref.ref[types.CodeType]] = []
        """Code objects compiled since `take_fresh`."""

    def remember(
        self, code: types.CodeType, compile_id: str, scope: dict[str, Any], guards: Iterable[Any]
    ) -> None:
        """Records one compile."""
        values = {name: v for name, v in scope.items() if not isinstance(v, self.tensor_type)}
        roots: dict[str, weakref.ref[Any]] = {}
        for name, value in values.items():
            with contextlib.suppress(TypeError):  # integers, tuples... have no weak references
                roots[name] = weakref.ref(value)
        root_types: dict[str, type] = {name: type(value) for name, value in values.items()}
        baseline = Baseline(roots, root_types, torch_guards.inference_mode())
        known: dict[Location, Location] = {}
        for guard in guards:
            with contextlib.suppress(Exception):
                baseline.add(guard, known)
        self._by_code.setdefault(code, {})[compile_id] = baseline
        self._fresh.append(weakref.ref(code))

    def of(self, code: types.CodeType, compile_id: str) -> Baseline | None:
        """The baseline of one cache entry."""
        return (self._by_code.get(code) or {}).get(compile_id)

    def functions_in(self, code: types.CodeType, compile_id: str) -> set[tuple[str, str]]:
        """(file, name) of the functions whose code went into one cache entry, as far as its guards
        are of their lines."""
        baseline = self.of(code, compile_id)
        found = baseline.functions if baseline is not None else set[tuple[str, str]]()
        return found | {(code.co_filename, code.co_name)}

    def newest(self, code: types.CodeType) -> Baseline | None:
        """The baseline of the newest compile of `code`."""
        known = self._by_code.get(code)
        return list(known.values())[-1] if known else None

    def take_fresh(self) -> list[types.CodeType]:
        """Code objects compiled since the last call, each once."""
        taken = [code for ref in self._fresh if (code := ref()) is not None]
        self._fresh.clear()
        return list(dict.fromkeys(taken))

    def instance_changed(
        self, code: types.CodeType, compile_id: str, name: str | None, value: Any
    ) -> bool | None:
        """Whether local `name` held another object of the same type when the entry was compiled."""
        baseline = self.of(code, compile_id)
        if baseline is None or name is None or name not in baseline.roots:
            return None
        if baseline.root_types[name] is not type(value):
            return None
        return baseline.roots[name]() is not value

    def inference_mode_changed(self, code: types.CodeType, compile_id: str) -> bool | None:
        """Whether inference mode is on, where it is not as when the entry was compiled."""
        baseline, now = self.of(code, compile_id), torch_guards.inference_mode()
        return None if baseline is None or baseline.inference_mode == now else now
