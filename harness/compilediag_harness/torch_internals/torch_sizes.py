"""torch's symbolic sizes: each condition that a graph is built under, and the sizes it fixes."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from compilediag_harness.torch_internals.dynamo_skip import out_of_tracebacks
from compilediag_harness.torch_internals.torch_names import (
    SYMBOLIC_SHAPES,
    Remover,
    loaded,
    lookup,
    replace_with,
)

_OWN = ("symbolic_shapes.py", "sym_node.py", "recording.py")
"""Files of what evaluates conditions, in the folder of symbolic shapes."""

_MAX_FRAMES = 192


class SizeCondition(NamedTuple):
    """A condition on symbolic sizes that torch evaluated, and guards from then on."""

    expression: str
    """As sympy prints it: "Eq(s77, 4)"."""
    sizes: tuple[tuple[str, str], ...]
    """Each symbol of it and the source of a size that has it: ("s77", "L['x'].size()[0]")."""
    traced: list[Any]
    """The stack of the code that Dynamo traces, outermost first; empty where it traces none."""
    frames: list[tuple[types.CodeType, int]]
    """Code and line of the calls in progress, innermost first, from what asked for the value on."""


def on_conditions(
    added: Callable[[Any, SizeCondition], None], fixed: Callable[[Any, tuple[str, ...]], None]
) -> Remover | None:
    """Calls `added(shape_env, condition)` with each condition, and `fixed(shape_env, sources)` when
    the one added last made sizes constants. Both must not raise."""
    env = lookup(loaded(SYMBOLIC_SHAPES), "ShapeEnv")
    log, replacing = getattr(env, "_log_guard", None), getattr(env, "_set_replacement", None)
    if log is None or replacing is None:
        return None

    @functools.wraps(log)
    def log_guard(self: Any, prefix: Any, g: Any, *args: Any, **kwargs: Any) -> Any:
        _leave_out_our_lines()
        if "suppressed" not in str(prefix):
            added(self, _condition(self, g))
        with out_of_tracebacks:
            return log(self, prefix, g, *args, **kwargs)

    @functools.wraps(replacing)
    def set_replacement(self: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
        before = _constant(self, a)
        with out_of_tracebacks:
            result = replacing(self, a, *args, **kwargs)
        if before is None and _constant(self, a) is not None:
            fixed(self, tuple(source for _, source in _sources(self, {a})))
        return result

    undo = (replace_with(env, "_log_guard", log_guard),)
    undo += (replace_with(env, "_set_replacement", set_replacement),)

    def remove() -> None:
        for each in undo:
            each()

    return remove


@functools.cache
def _leave_out_our_lines() -> None:
    """torch names a line of its own beside a guard, the innermost that is in none of these files:
    not one of ours. Looked up while torch compiles, since it imports modules."""
    with contextlib.suppress(Exception):
        skipped = lookup(loaded(SYMBOLIC_SHAPES), "uninteresting_files")
        if skipped is not None:
            skipped().add(__file__)


def current_attempt() -> int:
    """Number of the attempt in progress at the current compile: a restart begins another one."""
    current = lookup(loaded("torch._guards"), "CompileContext.current_trace_id")
    trace = current() if current is not None else None
    attempt = getattr(trace, "attempt", 0)
    return attempt if isinstance(attempt, int) else 0


def _condition(env: Any, expression: Any) -> SizeCondition:
    symbols: Any = getattr(expression, "free_symbols", ())
    extract = lookup(loaded("torch._guards"), "TracingContext.extract_stack")
    traced = list(extract()) if extract is not None else []
    # Above this: `log_guard`, and torch's own evaluation.
    frame: types.FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    frames: list[tuple[types.CodeType, int]] = []
    while frame is not None and len(frames) < _MAX_FRAMES:
        if frames or not frame.f_code.co_filename.endswith(_OWN):
            frames.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return SizeCondition(str(expression), tuple(_sources(env, symbols)), traced, frames)


def _sources(env: Any, symbols: Any) -> list[tuple[str, str]]:
    """Sizes that have one of the symbols, also those that were found equal to it before."""
    replaced: dict[Any, Any] = getattr(env, "replacements", None) or {}
    known: dict[Any, Any] = getattr(env, "source_to_var", None) or {}
    found: list[tuple[str, str]] = []
    for source, own in known.items():
        symbol = own if own in symbols else replaced.get(own)
        if symbol is not None and symbol in symbols:
            found.append((str(symbol), str(source)))
    return found


def _constant(env: Any, symbol: Any) -> Any | None:
    replaced: dict[Any, Any] = getattr(env, "replacements", None) or {}
    value = replaced.get(symbol)
    return value if getattr(value, "is_number", False) else None
