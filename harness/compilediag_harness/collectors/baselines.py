"""What each compile looked like when its guards were built: user lines, root objects, hooks.

Kept weakly: a code object, a module or an argument that dies takes its baseline with it.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from compilediag_harness.source import source_locations
from compilediag_harness.torch_internals import torch_guards
from compilediag_harness.wire import Location


@dataclass(slots=True)
class Baseline:
    """One compile of one code object."""

    compile_id: str
    roots: dict[str, weakref.ref[Any]]
    """Locals at compile time that can be referenced weakly, tensors left out."""
    root_types: dict[str, type]
    lines: dict[tuple[str, str], Location]
    """(source, kind of guard) to the user's line; kind "" is any guard of the source."""
    own_lines: dict[tuple[str, str], Location]
    """By the same, the innermost line of the program's own, where that is another one."""
    inference_mode: bool | None
    lengths: dict[str, int]
    """Of guarded containers, by their source."""


class Baselines:
    """All baselines of this process, by code object and compile id."""

    def __init__(self, tensor_type: type) -> None:
        self.tensor_type = tensor_type
        self._by_code = weakref.WeakKeyDictionary[types.CodeType, dict[str, Baseline]]()
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
        inference_mode = torch_guards.inference_mode()
        guards = tuple(guards)
        lines, own_lines = _lines(guards)
        facts = (lines, own_lines, inference_mode, _lengths(guards))
        baseline = Baseline(compile_id, roots, root_types, *facts)
        self._by_code.setdefault(code, {})[compile_id] = baseline
        self._fresh.append(weakref.ref(code))

    def of(self, code: types.CodeType, compile_id: str) -> Baseline | None:
        """The baseline of one cache entry."""
        return self._by_code.get(code, {}).get(compile_id)

    def functions_in(self, code: types.CodeType, compile_id: str) -> set[tuple[str, str]]:
        """(file, name) of the functions whose code went into one cache entry, as far as its guards
        are of their lines."""
        baseline = self.of(code, compile_id)
        lines = baseline.lines.values() if baseline is not None else ()
        found = {(line.file, line.function.split(".")[-1]) for line in lines}
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


def _lengths(guards: Iterable[Any]) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for guard in guards:
        with contextlib.suppress(Exception):
            length = torch_guards.length_of(guard)
            if length is not None:
                lengths[str(guard.name)] = length
    return lengths


_LinesByGuard = dict[tuple[str, str], Location]


def _lines(guards: Iterable[Any]) -> tuple[_LinesByGuard, _LinesByGuard]:
    """The user's line of every guard of a compile, by source and kind, and the program's own where
    that is another one."""
    lines: _LinesByGuard = {}
    own_lines: _LinesByGuard = {}
    known: dict[Location, Location] = {}
    for guard in guards:
        try:
            source, kind = str(guard.name), torch_guards.guard_kind(guard)
            stack = list(guard.user_stack or ())
            location = source_locations.innermost_user_line(stack)
            own = source_locations.innermost_own_line(stack)
        except Exception:
            continue
        if location is None:
            continue
        location = known.setdefault(location, location)  # a line has many guards
        lines.setdefault((source, kind), location)
        lines.setdefault((source, ""), location)
        if own is not None and own.file != location.file:
            own = known.setdefault(own, own)
            own_lines.setdefault((source, kind), own)
            own_lines.setdefault((source, ""), own)
    return lines, own_lines
