"""Every call of a compiled callable from eager code, with the shapes of its tensors.

Shapes are read before the call begins, from its arguments, and no tensor is kept alive. Calls are
recorded one by one up to a limit, so that they can be counted by step; after it they are added up.

No torch function of the program's runs for it, no symbol is guarded on, no device waited for.
"""

from __future__ import annotations

import math
import time
import types
import weakref
from typing import Any, cast

from compilediag_harness.base.session import Session, SessionSink, SessionSinks
from compilediag_harness.blame.source_locations import get_definition, is_library, is_ours
from compilediag_harness.shapes import shape_log
from compilediag_harness.torch_internals import (
    torch_api,
    torch_calls,
    torch_names,
    torch_open_calls,
)
from compilediag_harness.wire import CompiledCallsMade, EagerStanceCalls, Location

EAGER = frozenset(("force_eager", "eager_on_recompile"))
"""Stances under which no call compiles, and nothing is reported."""

_program_set: str | None = None
"""The stance that the program set last; None where it has set none since we look."""
_set_at: Location | None = None


def record_stance(stance: str, frame: types.FrameType | None) -> None:
    """Record a stance that was set in `frame`: at the innermost line below it that is not torch's.
    A trial of `FixedShape` sets one for itself and puts back the program's, which stays its own."""
    global _program_set, _set_at
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        _program_set, _set_at = stance, None
    elif not is_ours(frame.f_code.co_filename):
        code = frame.f_code
        _program_set, _set_at = stance, Location(code.co_filename, frame.f_lineno, code.co_name)


def find_eager_stance() -> tuple[str, Location | None] | None:
    """Find the stance in force, if it compiles nothing and the program set it; and the line that
    did, None where it was set before we looked. None where there is no such stance."""
    known = torch_calls.get_stance()
    ours = _program_set is not None and known != _program_set
    return None if known not in EAGER or ours else (known, _set_at)


Shapes = tuple[tuple[str, tuple[Any, ...]], ...]
"""Path of each tensor among the arguments, "" for those by position, and its sizes."""

MAX_TENSORS = 16
"""Tensors of one call that are looked at."""

MAX_MEMBERS = 64
"""Arguments, or members of one argument, that are looked at."""

_CUT = ("...", ())


class ShapeReader:
    """Reads the shapes of plain tensors, in arguments and one container deep. Subclasses may
    run the program's own code when their shape is read: of them the class is recorded."""

    def __init__(self, torch_module: Any) -> None:
        self._without_torch_function = torch_api.get_torch_function_disabler()
        self._tensor: type = torch_module.Tensor
        self._plain = (torch_module.Tensor, torch_module.nn.Parameter)

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes:
        shapes: list[tuple[str, tuple[Any, ...]]] = []
        with self._without_torch_function():
            for value in args if len(args) <= MAX_MEMBERS else args[:MAX_MEMBERS]:
                self._add("", value, shapes)
            if kwargs:
                for name in list(kwargs)[:MAX_MEMBERS]:
                    self._add(name, kwargs[name], shapes)
        if len(shapes) > MAX_TENSORS:
            shapes[MAX_TENSORS:] = [_CUT]
        return tuple(shapes)

    def _add(self, path: str, value: Any, shapes: list[tuple[str, tuple[Any, ...]]]) -> None:
        """Adds a tensor, or the tensors of a plain container; other containers may run any code."""
        # type() and not isinstance(): a proxy's `__class__` may be the program's code.
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is list or kind is tuple:
            for member in value[:MAX_MEMBERS]:
                self._add_tensor(path, member, shapes)
        elif kind is dict:
            for key in list(value)[:MAX_MEMBERS]:
                if type(key) is str:
                    self._add_tensor(f"{path}.{key}" if path else key, value[key], shapes)
        else:
            self._add_tensor(path, value, shapes)

    def _add_tensor(self, path: str, value: Any, shapes: list[tuple[str, tuple[Any, ...]]]) -> None:
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind in self._plain:
            shapes.append((path, _read_sizes(value)))
        elif issubclass(kind, self._tensor):
            shapes.append((path, (kind.__name__,)))


MAX_RECORDED = 50_000
"""Calls of one process that are recorded one by one."""

MAX_ROWS = 4096
"""Calls are written at the end of a step once a batch is due, or in a call when so many wait."""

MAX_CALLABLES = 256
"""Callables that are distinguished; the others are one, without a name."""

MAX_SHAPES = 256
"""Combinations of callable and shapes that are distinguished between two writings."""

OTHERS = -1


class Invocations(SessionSink):
    """The calls that one session has not received yet."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        torch: Any = torch_names.get_imported("torch")
        self._reader = ShapeReader(torch)
        self._known: dict[int, tuple[int, Any]] = {}
        self._locations: list[Location] = []
        self._tensors: list[tuple[str, ...]] = []
        self._left = MAX_RECORDED
        self.forget_calls = torch_calls.watch_outermost_calls(self.record_call)
        session.step_listeners.append(self.handle_step_end)

    def discard(self) -> None:
        super().discard()
        self._sums: dict[tuple[int, Shapes | None], list[int]] = {}
        self._padded: dict[int, int] = {}
        self._eager: dict[tuple[int, str, Location | None], int] = {}
        """Calls under a stance that compiles nothing, by callable, stance and where it was set."""
        self._order: list[tuple[int, float]] = []

    def record_call(self, key: int) -> None:
        try:
            call = torch_open_calls.get_call_arguments()
            if call is None:
                return
            shapes = self._reader.read(call.args, call.kwargs)
            with self.lock:
                index = self._resolve_index(key, call)
                self._add_call(index, shapes)
                if shape_log.inside.depth:
                    self._padded[index] = self._padded.get(index, 0) + 1
                stance = find_eager_stance()
                if stance is not None:
                    eager = (index, *stance)
                    self._eager[eager] = self._eager.get(eager, 0) + 1
            if len(self._order) >= MAX_ROWS:
                self.finish()
        except Exception as error:
            self.session.record_fault("compiled call", error)

    def finish(self) -> None:
        with self.lock:
            sums, order, padded, eager = self._sums, self._order, self._padded, self._eager
            self._sums, self._order, self._padded, self._eager = {}, [], {}, {}
            locations, tensors = list(self._locations), list(self._tensors)
        now = self.written = self.session.now()
        if not sums:
            return
        indices = sorted({index for index, _ in sums} - {OTHERS})
        shapes = list(dict.fromkeys(read for _, read in sums))
        first = [get_first_sizes(read) for read in shapes]
        self.session.emit(
            CompiledCallsMade(
                t=now,
                numbers=tuple(indices),
                functions=tuple(locations[index] for index in indices),
                shapes=tuple(None if read is None else format_shapes(read) for read in shapes),
                samples=tuple(sizes[0] if sizes else None for sizes in first),
                elements=tuple(math.prod(sizes) if sizes else None for sizes in first),
                callables=tuple(index for index, _ in sums),
                shape_places=tuple(shapes.index(read) for _, read in sums),
                counts=tuple(count for _, count in sums.values()),
                order=tuple(row for row, _ in order),
                at=tuple(self.session.convert_time(moment) for _, moment in order),
                tensors=tuple(tensors[index] for index in indices),
                padded=tuple(padded.get(index, 0) for index in indices),
            )
        )
        if eager:
            others = Location("", 0, "other callables")
            called = (others if index == OTHERS else locations[index] for index, _, _ in eager)
            _, stances, set_at = zip(*eager, strict=True)
            counts = tuple(eager.values())
            self.session.emit(EagerStanceCalls(now, tuple(called), stances, counts, set_at))

    def _add_call(self, index: int, shapes: Shapes | None) -> None:
        key = (index, shapes)
        sums = self._sums
        if key not in sums and len(sums) >= MAX_SHAPES:
            key = (index, None)
        row_and_count = sums.setdefault(key, [len(sums), 0])
        row_and_count[1] += 1
        if self._left:
            self._left -= 1
            # Read here, after the step clock's own reading: a call that begins a step is in it.
            self._order.append((row_and_count[0], time.monotonic()))

    def _resolve_index(self, key: int, call: torch_open_calls.CallArguments) -> int:
        """The index of a callable. Keys are addresses: one of another object, made after the
        first was freed, is another callable."""
        target = torch_open_calls.find_callable(call.function)
        known = self._known.get(key)
        if known is not None and (known[1] is None or known[1]() is target):
            return known[0]
        # Invariant: an index is never used again: events that were written refer to it.
        index = len(self._locations)
        if index >= MAX_CALLABLES:
            return OTHERS
        try:
            reference = weakref.ref(target)
        except TypeError:
            reference = None
        runs = get_forward(call.function)
        self._locations.append(get_definition(runs))
        # Its tensors by the parameters that they are passed to.
        code = getattr(runs, "__code__", None)
        bound = getattr(call.function, "__self__", None) is not None
        parameters = () if code is None else code.co_varnames[int(bound) : code.co_argcount]
        tensors: Shapes = ()
        if len(call.args) <= len(parameters):
            arguments = {**dict(zip(parameters, call.args, strict=False)), **call.kwargs}
            tensors = self._reader.read((), arguments)
        self._tensors.append(tuple(path for path, _ in tensors))
        self._known[key] = (index, reference)
        return index


def get_forward(function: Any) -> Any:
    """Get the function that a compiled call calls; of a module the `forward` of its class. torch
    must be imported."""
    owner, torch = getattr(function, "__self__", None), cast(Any, torch_names.get_imported("torch"))
    is_module = isinstance(owner, torch.nn.Module)
    return getattr(cast(Any, type(owner)), "forward", function) if is_module else function


sinks = SessionSinks(Invocations)
"""Installed after the steps, whose clock must be read first at the begin of a call."""


def uninstall(session: Session) -> None:
    """Stops counting for `session`; call `sinks.finish` before."""
    for sink in sinks.all:
        if sink.session is session:
            sink.forget_calls()
    sinks.uninstall(session)


def _read_sizes(tensor: Any) -> tuple[Any, ...]:
    try:
        # The `torch.Size` itself is stored: a tuple of numbers, which does not hold the tensor.
        sizes = tensor.shape
    except RuntimeError:  # a nested tensor has none
        return ("nested",)
    if any(type(size) is not int for size in sizes):  # to look closer would guard on it
        return ("symbolic",)
    return sizes


def format_shapes(shapes: Shapes) -> str:
    """Format shapes as one would write them: "[8, 16], mask=[8]"."""
    texts: list[str] = []
    for path, sizes in shapes:
        bracketed = f"[{', '.join(map(str, sizes))}]"
        text = f"{path}={bracketed}" if path else bracketed
        texts.append(path if (path, sizes) == _CUT else text)
    return ", ".join(texts)


def get_first_sizes(shapes: Shapes | None) -> tuple[int, ...]:
    """Get the sizes of the first tensor that has any: its samples, and the tokens of each."""
    first = next((sizes for _, sizes in shapes or () if sizes), ())
    return first if all(type(size) is int for size in first) else ()
