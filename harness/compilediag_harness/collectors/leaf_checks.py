"""Which leaf guards of a frame's cache entries are false now, looked at for all entries at once.

A frame with a raised recompile limit has thousands of entries: every source is evaluated once for
all of them, and the leaves of an entry are read from torch once.
"""

from __future__ import annotations

import functools
import time
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import chain, islice
from typing import Any, NamedTuple

from compilediag_harness.torch_internals import torch_guards

MISSING = object()
"""The value of a source that could not be evaluated."""

_FEW_ENTRIES = 8
"""torch's default recompile limit. The leaves of more entries than that are kept..."""

_KEPT_LEAVES = 256
"""... where an entry has at most so many: torch makes a Python object of each that is read."""


class _Leaves(NamedTuple):
    all: Iterable[torch_guards.Leaf]
    subjects: Set[str]
    """Complete when all leaves were read."""


_kept: weakref.WeakKeyDictionary[Any, _Leaves] = weakref.WeakKeyDictionary()
"""By torch's guard manager, which goes with its cache entry."""


class Examined(NamedTuple):
    """The false leaves of one cache entry, in guard order."""

    entry: Any
    false: tuple[torch_guards.Leaf, ...]
    scope: dict[str, Any]
    """The names its guards are written in."""
    values: dict[str, Any]
    """The live value of each source, `MISSING` where it could not be evaluated."""
    checked: int
    unevaluated: int
    finished: bool
    """False: the deadline came before all leaves were checked."""


class LeafChecks:
    """Checks cache entries of one frame against its live values."""

    def __init__(self, f_locals: dict[str, Any], deadline: float, entries: int = 1) -> None:
        """`deadline`: `time.thread_time()` after which nothing more is checked; `entries`: how many
        there are to check."""
        self._locals = f_locals
        self._deadline = deadline
        self._keeps = entries > _FEW_ENTRIES
        self._values: dict[int, dict[str, Any]] = {}
        """Of the sources evaluated so far, by the identity of the globals they are read from."""
        self.accepted: set[str] = set()
        """Subjects whose present value some entry accepts with all its leaves on them."""

    def of(self, entry: Any, lengths: Mapping[str, int] | None = None) -> Examined:
        """Every false leaf of an entry; `lengths`: of its guarded containers, by their source."""
        scope = torch_guards.scope_of(entry, self._locals)
        values = self._values.setdefault(id(scope["G"]), {"L": self._locals, "G": scope["G"]})
        if time.thread_time() > self._deadline:
            return Examined(entry, (), scope, values, 0, 0, finished=False)
        false: list[torch_guards.Leaf] = []
        failed: set[str] = set()
        checked = unevaluated = 0
        leaves = self._leaves_of(entry, lengths)
        for leaf in leaves.all:
            checked += 1
            if not checked % 64 and time.thread_time() > self._deadline:
                found = (tuple(false), scope, values, checked, unevaluated)
                return Examined(entry, *found, finished=False)
            source, _, check, _ = leaf
            value = values.get(source, MISSING)
            if check is not None and value is not MISSING:
                # Almost every guard of thousands of entries goes this way.
                try:
                    holds = bool(check(value))
                except Exception:
                    holds = None
            else:
                holds = _evaluated(leaf, entry, scope, values)
            if holds:
                continue
            failed.add(leaf.subject)
            if holds is None:
                unevaluated += 1
            else:
                false.append(leaf)
        self.accepted |= leaves.subjects - failed
        found = (tuple(false), scope, values, checked, unevaluated)
        return Examined(entry, *found, finished=True)

    def _leaves_of(self, entry: Any, lengths: Mapping[str, int] | None) -> _Leaves:
        """Read one by one, for there may be very many; kept where there are few of each entry."""
        manager = entry.guard_manager
        if self._keeps and (known := _kept.get(manager)) is not None:
            return known
        subjects: set[str] = set()
        read = _noting(torch_guards.leaves_of(entry, lengths), subjects)
        if not self._keeps:
            return _Leaves(read, subjects)
        first = tuple(islice(read, _KEPT_LEAVES + 1))
        if len(first) > _KEPT_LEAVES:
            return _Leaves(chain(first, read), subjects)
        found = _kept[manager] = _Leaves(first, subjects)
        return found


def _noting(leaves: Iterable[torch_guards.Leaf], subjects: set[str]) -> Iterator[torch_guards.Leaf]:
    for leaf in leaves:
        subjects.add(leaf.subject)
        yield leaf


def _evaluated(
    leaf: torch_guards.Leaf, entry: Any, scope: dict[str, Any], values: dict[str, Any]
) -> bool | None:
    """Whether a leaf is true now, whose source was not evaluated before or could not be, or which
    is a shape condition; None when it cannot be evaluated (a missing argument, an object whose
    attribute access fails)."""
    try:
        if leaf.check is None:
            names = dict(getattr(entry.guard_manager, "global_scope", None) or {})
            # torch evaluates the same text in the same scopes to find its reason.
            result = eval(as_code(leaf.condition), names, scope)
            return result if isinstance(result, bool) else None
        if leaf.source in values:
            return None
        values[leaf.source] = MISSING  # until the source could be evaluated
        value = values[leaf.source] = eval(as_code(leaf.source), scope)
        return bool(leaf.check(value))
    except Exception:
        return None


@functools.lru_cache(8192)
def as_code(text: str) -> types.CodeType:
    """A source as code: entries of a frame, and frames of a program, share their sources."""
    return compile(text.lstrip(" \t"), "<guard>", "eval")  # as `eval` reads a text
