"""Guards in use: the tensors that those of each compile are on, what evaluating them costs, how
often the graph of each frame runs in some warm calls, and which cache entries serve calls.

torch runs each graph behind `torch.compiler.disable`, so that the begin of one is a call that is
watched anyway. After so many warm calls nothing is looked at any more; which entries serve is
watched from a recompile until each entry of the frame has served a call since, and shows whether a
value is a variant that the program comes back to.
"""

from __future__ import annotations

import re
import threading
import time
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from compilediag_harness.base.object_graph import WeakByIdentity
from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations
from compilediag_harness.blame.guard_sources import evaluate_source
from compilediag_harness.collectors import invocations
from compilediag_harness.collectors.false_guards import strip_comments
from compilediag_harness.collectors.leaf_checks import TENSOR_CHECK
from compilediag_harness.torch_internals import torch_calls, torch_guards, torch_open_calls
from compilediag_harness.wire import (
    EntryServed,
    GuardsEvaluated,
    InputsGuarded,
    Location,
    TensorGuard,
    WarmCallsTimed,
    clip,
)

MAX_TENSORS, MAX_CONDITIONS, MAX_TEXT = 64, 512, 1024
"""Of one compile; of one with more, or with a longer text, nothing is recorded."""

_GIVEN = re.compile(r"L(\['\w+'\])(\[[^\[\]]+\])*")
"""The source of a local variable, or of a member of one that is a container."""


def record_inputs(
    session: Session, compile_id: str, scope: Mapping[str, Any], manager: Any
) -> None:
    """Record the conditions on the tensors of a compile that just built its guards, as torch writes
    them, with the locals it built them for: from these texts follows which other sizes its graph
    serves. Nothing of the program's is stored."""
    tensors: list[TensorGuard] = []
    texts = [strip_comments(text) for text in torch_guards.list_size_conditions(manager)]
    for source, text in torch_guards.iterate_tensor_guards(manager):
        guard = TENSOR_CHECK.match(text) if _GIVEN.fullmatch(source) else None
        tensor = None if guard is None else evaluate_source(source, {"L": scope})
        layout = torch_guards.read_layout(tensor)
        if guard is not None and layout is not None:
            tensors.append(TensorGuard(source, text[: guard.start("size")], *layout))
            for name in ("size", "stride"):
                numbers = enumerate(guard[name].strip("[]").split(", "))
                texts += [f"{source}.{name}()[{at}] == {n}" for at, n in numbers if n.isdigit()]
    few = 0 < len(tensors) <= MAX_TENSORS and len(texts) <= MAX_CONDITIONS
    if few and max(map(len, (*texts, *(its.source for its in tensors)))) <= MAX_TEXT:
        session.emit_in_step(InputsGuarded, compile_id, session.epoch, tuple(tensors), tuple(texts))


_EVALUATIONS = 9
_BUDGET_NS = 2_000_000
"""Of a compile, which takes a hundred times as long where guards are so many that this is reached.
"""

_KINDS, _LINES, _TEXTS, _TEXT_CHARS = 12, 5, 5, 160


def evaluate_guards(
    session: Session, compile_id: str, scope: Mapping[str, Any], guards: Iterable[Any], manager: Any
) -> float:
    """Records the guards of one compile; returns the seconds that took, which are our own."""
    started = time.monotonic()
    guards = tuple(guards)
    taken: list[float] = []
    if not any(".item()" in code for guard in guards for code in guard.code_list or ()):
        # Such a guard reads a tensor: on a device each evaluation would wait for it.
        taken = torch_guards.time_guards(manager, scope, _EVALUATIONS, _BUDGET_NS)
    leaves = torch_guards.count_evaluated(manager, _TEXTS)
    counted, texts = (Counter[str](), list[str]()) if leaves is None else leaves
    kinds = counted.most_common(_KINDS)
    # A Guard object that needed nothing to be evaluated has no code.
    stacks = (guard.user_stack for guard in guards if guard.code_list)
    found = map(source_locations.find_innermost_user_line, stacks)
    is_library = source_locations.is_library
    users = Counter(line for line in found if line is not None and not is_library(line.file))
    lines = users.most_common(_LINES)
    session.emit_in_step(
        GuardsEvaluated,
        *(compile_id, session.epoch),
        # The first fills what the guards remember of dicts that did not change.
        eval_us=round(median(taken[1:]), 3) if len(taken) > 1 else None,
        kinds=tuple(kind for kind, _ in kinds),
        counts=tuple(count for _, count in kinds),
        lines=tuple(line for line, _ in lines),
        line_counts=tuple(count for _, count in lines),
        evaluated=None if leaves is None else counted.total(),
        in_python=None if leaves is None else counted[torch_guards.PYTHON_LEAF],
        python_texts=tuple(clip(text, _TEXT_CHARS) for text in texts),
    )
    return time.monotonic() - started


MAX_CALLS = 256
"""Calls looked at in one process."""

MAX_OF_A_CALLABLE = 32

MAX_ROWS = 512
"""Pairs of a callable and a frame whose graph ran in its calls."""


@dataclass(slots=True)
class _Sample:
    """One call in progress."""

    function: Any
    attempts: int
    """Compiles of the process when it began."""
    graphs: list[Any] = field(default_factory=list[Any])
    """The code whose graph ran, each time."""


@dataclass(slots=True)
class _Sum:
    calls: int = 0
    runs: Counter[Location] = field(default_factory=Counter[Location])


class _ThreadState(threading.local):
    sample: _Sample | None = None


class WarmCalls:
    """Looks at warm calls of compiled callables for one session: those that compile nothing."""

    def __init__(self, session: Session, attempts: Callable[[], int]) -> None:
        """`attempts` counts the compiles of the process so far, begun or ended."""
        self._session = session
        self._attempts = attempts
        self._thread = _ThreadState()
        # Reentrant: a finalizer or signal handler that runs in our code may call compiled code.
        self._lock = threading.RLock()
        self._sums: dict[Location, _Sum] = {}
        self._keys: Counter[int] = Counter()
        self._left = MAX_CALLS
        self._removers: list[Callable[[], None]] = []

    def install(self) -> None:
        self._removers = [
            torch_calls.watch_outermost_calls(self._handle_call_begin, self._handle_call_end),
            torch_calls.watch_disabled_calls(None, self._handle_disabled_begin),
        ]

    def uninstall(self) -> None:
        while self._removers:
            self._removers.pop()()

    def finish(self) -> None:
        with self._lock:
            self._left = 0  # no such call adds to what is read here
            rows = [
                (index, frame, runs)
                for index, total in enumerate(self._sums.values())
                for frame, runs in total.runs.items()
            ][:MAX_ROWS]
            if not self._sums:
                return
            self._session.emit(
                WarmCallsTimed(
                    t=self._session.now(),
                    functions=tuple(self._sums),
                    calls=tuple(total.calls for total in self._sums.values()),
                    callers=tuple(index for index, _, _ in rows),
                    frames=tuple(frame for _, frame, _ in rows),
                    runs=tuple(runs for _, _, runs in rows),
                )
            )

    def _handle_call_begin(self, key: int) -> None:
        if self._left <= 0 or self._keys[key] >= MAX_OF_A_CALLABLE:
            self._thread.sample = None
            return
        calls = torch_open_calls.this_thread.open
        self._thread.sample = _Sample(calls[-1].function, self._attempts())

    def _handle_disabled_begin(self, function: Any) -> None:
        sample = self._thread.sample
        if sample is None:
            return
        try:
            wrapper = torch_open_calls.this_thread.open[-1].frame
            ran = torch_calls.find_graph_code(wrapper, function)
            if ran is not None:  # else one of torch's own, which come first, or the program's
                sample.graphs.append(ran)
        except Exception as error:
            self._thread.sample = None
            self._session.record_fault("begin of a graph", error)

    def _handle_call_end(self, key: int) -> None:
        sample, self._thread.sample = self._thread.sample, None
        if sample is None or not sample.graphs:
            return
        if self._attempts() != sample.attempts:
            return  # it compiled something
        with self._session.catch_faults("warm call"):
            where = source_locations.get_definition(invocations.get_forward(sample.function))
            with self._lock:
                self._left -= 1
                self._keys[key] += 1
                total = self._sums.setdefault(where, _Sum())
                total.calls += 1
                total.runs.update(map(source_locations.get_location, sample.graphs))
                done = self._left <= 0
            # After the block: `finish` reads what the block adds to.
            if done:
                self.uninstall()
                self.finish()


@dataclass(slots=True)
class _Recompiled:
    """One code object since it was compiled last."""

    code: weakref.ref[types.CodeType]
    newest: str
    """The id of that compile."""
    epoch: int
    waiting: set[str] | None = None
    """The entries that have served no call since; None until its own call runs."""


class ServedEntries:
    """Reports for one session which entries serve calls after each recompile."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._watched: dict[int, _Recompiled] = {}
        """By the identity of the code object."""
        self._entries = WeakByIdentity[types.CodeType, tuple[int, str]]()
        """Of the code that torch made for an entry: the identity of the code that it was made of,
        and the compile id."""
        self._remove: Callable[[], None] | None = None

    def watch(self, code: types.CodeType, compile_id: str) -> None:
        """Watch the entries of `code`, which is being compiled again."""
        self._watched[id(code)] = _Recompiled(weakref.ref(code), compile_id, self._session.epoch)
        # What was of no watched code may be of this one.
        self._entries = WeakByIdentity[types.CodeType, tuple[int, str]]()
        if self._remove is None:
            self._remove = torch_calls.watch_disabled_calls(None, self._handle_disabled_begin)

    def uninstall(self) -> None:
        self._watched.clear()
        if self._remove is not None:
            self._remove()
            self._remove = None

    def _handle_disabled_begin(self, function: Any) -> None:
        try:  # no context manager: it is entered at every call of a graph
            wrapper = torch_open_calls.this_thread.open[-1].frame
            made = wrapper.f_back
            key, compile_id = (0, "") if made is None else self._find_entry(made.f_code)
            frame = self._watched.get(key)
            if frame is None or (frame.waiting is not None and compile_id not in frame.waiting):
                return
            if torch_calls.find_graph_code(wrapper, function) is None:
                return  # a function of the program's that compiled code calls
            self._record_run(key, frame, compile_id)
        except Exception as error:
            self._session.record_fault("entry that serves a call", error)

    def _record_run(self, key: int, frame: _Recompiled, compile_id: str) -> None:
        again = frame.waiting is not None or compile_id != frame.newest
        code = frame.code()
        if frame.waiting is None and code is not None:
            entries = torch_guards.get_cache_entries(code)
            frame.waiting = {str(entry.compile_id) for entry in entries}
        if again and frame.waiting is not None:
            frame.waiting.discard(compile_id)
        self._session.emit_in_step(EntryServed, compile_id, frame.epoch, again)
        if not frame.waiting:
            self._watched.pop(key, None)
        if not self._watched:
            self.uninstall()

    def _find_entry(self, made: types.CodeType) -> tuple[int, str]:
        """Find the code that `made` was made of, by its identity, and the compile that made it."""
        known = self._entries.get(made)
        if known is not None:
            return known
        for key, frame in tuple(self._watched.items()):
            code = frame.code()
            for entry in () if code is None else torch_guards.get_cache_entries(code):
                if entry.code is made:
                    self._entries[made] = key, str(entry.compile_id)
                    return key, str(entry.compile_id)
        return self._entries.setdefault(made, (0, ""))
