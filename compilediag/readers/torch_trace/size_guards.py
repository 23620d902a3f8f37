"""Records about symbolic sizes: which line of the traced code asked for the value of a size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from compilediag.readers.torch_trace.metadata import (
    Metadata,
    SizeGuardRecord,
    StackEntry,
    calls_of_stack,
    compile_id_of,
    count_of,
    items_of,
    short_text,
    text_of,
)
from compilediag.timeline.ownership import ownership_of
from compilediag_harness.wire import Location, SizeGuard

GUARDS_KEPT = 64
"""Conditions kept of one attempt, as of a live run."""

OPEN_KEPT = 64
"""Compiles without an end whose conditions are kept."""

_SYMBOLS_KEPT = 512
_STACK = 16
_CALLS = 24
_SYMBOL = re.compile(r"[A-Za-z_]\w{0,63}")
_OWN = ("/symbolic_shapes.py", "/sym_node.py", "/recording.py", "/_logging/_internal.py")
"""Files of what evaluates conditions, and writes the record."""
_TRACER = ("/_dynamo/symbolic_convert.py", "step")
_OPERATION = "run_node"


@dataclass
class _Attempt:
    number: int
    sources: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Sizes by symbol."""
    guards: list[SizeGuard] = field(default_factory=list[SizeGuard])
    left_out: int = 0
    recent: bool = False
    """The condition added last is in `guards`."""


class SizeGuardRecords:
    """The conditions of the compiles in progress of one process, as the live collector has them.
    Of sizes that share a symbol a trace names the first only, unless it became a constant."""

    def __init__(self, strings: Mapping[int, str]) -> None:
        self._strings = strings
        self._attempts: dict[str, _Attempt] = {}

    @property
    def open(self) -> tuple[str, ...]:
        """Compile ids with conditions; "" are the exports."""
        return tuple(key for key, attempt in self._attempts.items() if attempt.guards)

    def of(self, compile_id: str) -> tuple[tuple[SizeGuard, ...], int]:
        """The conditions of a compile that ended, and how many more there were."""
        found = self._attempts.pop(compile_id, None)
        return (tuple(found.guards), found.left_out) if found is not None else ((), 0)

    def take(self, line: Metadata) -> bool:
        """One record; False where it is of another kind."""
        compile_id, number = compile_id_of(line), count_of(line.attempt) or 0
        if line.create_symbol is not None:
            symbol, source = text_of(line.create_symbol.symbol), text_of(line.create_symbol.source)
            sources = self._attempt(compile_id, number).sources
            if symbol and source and len(sources) < _SYMBOLS_KEPT:
                sources[symbol] = [source]
        elif line.guard_added_fast is not None:
            self._added(self._attempt(compile_id, number), line.guard_added_fast, compile_id)
        elif line.symbolic_shape_specialization is not None:
            # A symbol became a constant, by the condition added last.
            attempt = self._attempt(compile_id, number)
            sources = items_of(line.symbolic_shape_specialization.sources)[:32]
            if attempt.recent:
                last = attempt.guards[-1]
                fixed = (*last.fixed, *(short_text(source, 256) for source in sources))
                attempt.guards[-1] = replace(last, fixed=tuple(dict.fromkeys(fixed)))
        else:
            return False
        return True

    def _attempt(self, compile_id: str, number: int) -> _Attempt:
        attempt = self._attempts.get(compile_id)
        if attempt is None or attempt.number != number:
            attempt = self._attempts[compile_id] = _Attempt(number)
            if len(self._attempts) > OPEN_KEPT:
                del self._attempts[next(iter(self._attempts))]
        return attempt

    def _added(self, attempt: _Attempt, record: SizeGuardRecord, compile_id: str) -> None:
        attempt.recent = len(attempt.guards) < GUARDS_KEPT
        if not attempt.recent:
            attempt.left_out += 1
            return
        expression = short_text(record.expr, 1024)
        symbols = dict.fromkeys(_SYMBOL.findall(expression))
        calls = calls_of_stack(record.stack)
        traced = calls_of_stack(record.user_stack)
        if not traced and not compile_id:
            # An export runs the code: it stands among the calls in progress.
            traced = [line for line in calls if ownership_of(self._file(line)) != "torch"]
        traced = traced[-_STACK:]
        attempt.guards.append(
            SizeGuard(
                expression=expression,
                sizes=tuple(
                    (symbol, source)
                    for symbol in symbols
                    for source in attempt.sources.get(symbol, ())
                ),
                fixed=(),
                torch_calls=self._calls(calls),
                stack=tuple(Location(self._file(at), at.line, _name(at)) for at in traced),
                texts=tuple(text_of(at.text, 200) or "" for at in traced),
            )
        )

    def _file(self, line: StackEntry) -> str:
        return self._strings.get(line.file, "")

    def _calls(self, stack: list[StackEntry]) -> tuple[str, ...]:
        """Functions of torch between the traced code and the condition, innermost first."""
        found: list[str] = []
        for line in reversed(stack):
            file = self._file(line)
            if not found and file.endswith(_OWN):
                continue
            name = _name(line)
            is_step = file.endswith(_TRACER[0]) and name == _TRACER[1]
            if is_step or ownership_of(file) != "torch" or len(found) == _CALLS:
                break
            found.append(name)
            if name == _OPERATION:
                break
        return tuple(found)


def _name(entry: StackEntry) -> str:
    return text_of(entry.function, 256) or ""
