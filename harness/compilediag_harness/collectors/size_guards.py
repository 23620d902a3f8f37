"""Which line of the traced code asked for the value of a dynamic size, and which made it a number.

torch evaluates a condition where the code needs one: at a branch, a reshape, an addition of two
tensors. What follows from it holds for the whole graph. Costs nothing but while something compiles.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations
from compilediag_harness.torch_internals import torch_compiles, torch_sizes
from compilediag_harness.wire import Location, SizeGuard, SizesGuarded, clip

MAX_GUARDS = 64
"""Conditions kept of one attempt: the first ones; those of a large export are thousands."""
_MAX_PENDING = 64
"""Compiles without an end whose conditions are kept."""
_STACK = 16
_CALLS = 24
_TEXT_CHARS = 200
OPERATION = "run_node"
"""Dynamo's call of an operation of the graph with fake tensors."""
_TRACED_FROM = ("step", "symbolic_convert.py")
"""Dynamo's interpreter of one instruction: what is above it is not about the condition."""


@dataclass
class _Attempt:
    number: int
    guards: list[SizeGuard] = field(default_factory=list[SizeGuard])
    left_out: int = 0
    recent: bool = False
    """The condition added last is in `guards`."""


class SizeGuardCollector:
    """Collects the conditions of each attempt to compile, and reports them when it ends."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._attempts: dict[str, _Attempt] = {}
        self._env: Any = None
        """Weak reference to what the export in progress knows of sizes: an export has no id."""

    def added(self, env: Any, condition: torch_sizes.SizeCondition) -> None:
        """torch guards a condition; never raises."""
        with self._session.shielded("size condition"):
            attempt = self._attempt(env)
            attempt.recent = len(attempt.guards) < MAX_GUARDS
            if not attempt.recent:
                attempt.left_out += 1
                return
            lines = _lines_of(condition)
            texts = (clip(source_locations.text_of(line) or "", _TEXT_CHARS) for line in lines)
            attempt.guards.append(
                SizeGuard(
                    expression=clip(condition.expression, 1024),
                    sizes=condition.sizes[:32],
                    fixed=(),
                    torch_calls=tuple(_until_traced(condition.frames[:_CALLS])),
                    stack=tuple(lines),
                    texts=tuple(texts),
                )
            )

    def fixed(self, env: Any, sources: tuple[str, ...]) -> None:
        """The condition added last made sizes constants; never raises."""
        with self._session.shielded("size made constant"):
            attempt = self._attempt(env)
            if attempt.recent and attempt.guards:
                last = attempt.guards[-1]
                fixed = tuple(dict.fromkeys((*last.fixed, *sources)))
                attempt.guards[-1] = replace(last, fixed=fixed)

    def ended(self, compile_id: str) -> None:
        """An attempt to compile ended: its conditions are reported."""
        attempt = self._attempts.pop(compile_id, None)
        if attempt is not None and attempt.guards:
            session = self._session
            session.emit(
                SizesGuarded(
                    session.now(),
                    session.step,
                    compile_id,
                    session.epoch,
                    tuple(attempt.guards),
                    attempt.left_out,
                )
            )

    def finish(self) -> None:
        """Reports what has no end: exports, and a compile that ended the program."""
        for compile_id in tuple(self._attempts):
            self.ended(compile_id)

    def _attempt(self, env: Any) -> _Attempt:
        compile_id = torch_compiles.current_compile_id()
        if not compile_id and (self._env is None or self._env() is not env):
            self.ended("")
            self._env = weakref.ref(env)
        number = torch_sizes.current_attempt()
        attempt = self._attempts.get(compile_id)
        if attempt is None or attempt.number != number:
            # A restart traces anew: what the attempt before laid down does not hold.
            attempt = self._attempts[compile_id] = _Attempt(number)
            if len(self._attempts) > _MAX_PENDING:
                self.ended(next(iter(self._attempts)))
        return attempt


def _lines_of(condition: torch_sizes.SizeCondition) -> list[Location]:
    """The traced code. `torch.export` runs it instead: there it is what is no part of torch among
    the calls in progress. The calls below a compiled function are not about its sizes."""
    if condition.traced or torch_compiles.current_compile_id():
        lines = [Location(each.filename, each.lineno or 0, each.name) for each in condition.traced]
    else:
        lines = [
            Location(code.co_filename, line, code.co_name)
            for code, line in reversed(condition.frames)
            if not source_locations.is_library(code.co_filename)
        ]
    return lines[-_STACK:]


def _until_traced(frames: Iterable[tuple[types.CodeType, int]]) -> Iterable[str]:
    name_of_step, file_of_step = _TRACED_FROM
    for code, _ in frames:
        name, file = code.co_name, code.co_filename
        if name == name_of_step and file.endswith(file_of_step):
            return
        if not source_locations.is_torch(file):
            return
        yield name
        if name == OPERATION:
            return
