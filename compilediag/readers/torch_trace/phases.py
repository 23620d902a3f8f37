"""The timed phases of compiles in a trace: torch's `chromium_event` records, begin and end.

Their thread is always 0, so those of several threads lie among each other; their compile keeps
them apart.
"""

from __future__ import annotations

from typing import Any

import msgspec

from compilediag.readers import lenient_json
from compilediag_harness.wire.phase_stack import PhaseStack, TimedPhases

STACKS_KEPT = 12_000
"""Most compiles whose phases are followed: as many as have rows that are kept."""

_MAX_NAME_CHARS = 200
_MAX_MICROSECONDS = 2.0**53
_BEGIN, _END = "B", "E"


class _Timing(msgspec.Struct):
    """The fields that are used, of any type."""

    name: Any = None
    ph: Any = None
    ts: Any = None


_DECODER = msgspec.json.Decoder(_Timing)


class TracePhases:
    """The phases of the compiles of one process, until their rows come."""

    def __init__(self) -> None:
        self._seen = False
        self._stacks: dict[str, PhaseStack] = {}
        self._full = False

    def take_record(self, payload: bytes, compile_id: str) -> bool:
        """One record of `compile_id`; False where it is none of torch's."""
        timing = _timing_of(payload)
        if timing is None:
            return False
        self._seen = True
        # Without an id it is of no compile: an import that the first one waits for.
        if timing.ph not in (_BEGIN, _END) or not compile_id:
            return True
        name, at_ns = timing.name[:_MAX_NAME_CHARS], round(timing.ts * 1000)
        stack = self._stacks.get(compile_id)
        if timing.ph == _END:
            if stack is not None:
                stack.ended(name, at_ns)
                self._forget_if_done(compile_id, stack)
        elif stack is not None or self._has_room():
            self._stacks.setdefault(compile_id, PhaseStack()).began(name, at_ns)
        return True

    def _has_room(self) -> bool:
        self._full = self._full or len(self._stacks) >= STACKS_KEPT
        return not self._full

    def of_row(self, compile_id: str) -> TimedPhases | None:
        """The phases of the compile whose row comes now; None where the trace has no timing, or
        more than is kept."""
        if not self._seen:
            return None
        stack = self._stacks.get(compile_id)
        if stack is None:
            return None if self._full else TimedPhases((), ())
        found = stack.take()
        self._forget_if_done(compile_id, stack)
        return found

    def _forget_if_done(self, compile_id: str, stack: PhaseStack) -> None:
        if not stack.open and not stack.own_ns:
            del self._stacks[compile_id]


def _timing_of(payload: bytes) -> _Timing | None:
    try:
        timing = _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fields = lenient_json.parse_object(payload) or {}
        timing = _Timing(fields.get("name"), fields.get("ph"), fields.get("ts"))
    known = isinstance(timing.name, str) and type(timing.ts) in (int, float)
    return timing if known and 0 <= timing.ts < _MAX_MICROSECONDS else None
