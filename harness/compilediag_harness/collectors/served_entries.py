"""The cache entries that serve calls of a frame once it has been compiled again.

They show whether a value is a variant that the program comes back to. Graphs are watched from a
recompile until each entry of the frame has served a call since: a program without recompiles pays
nothing.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compilediag_harness.base.object_graph import WeakByIdentity
from compilediag_harness.base.session import Session
from compilediag_harness.torch_internals import torch_calls, torch_guards, torch_open_calls
from compilediag_harness.wire import EntryServed


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
