"""The timed phases of compiles in a trace: torch's `chromium_event` records, begin and end.

There are more of them than of all other records together, so those of a compile are kept as bytes
and decoded at once. Their thread is always 0, so those of several threads lie among each other;
their compile keeps them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from compilediag.readers.lines import parse_object
from compilediag_harness.wire.compiles import PhaseStack, TimedPhases

STACKS_KEPT = 12_000
"""Most compiles whose phases are followed: as many as have rows that are kept."""

PAYLOADS_KEPT = 256
"""Most records of one compile that are not decoded yet."""

_MAX_NAME_CHARS = 200
_MAX_MICROSECONDS = 2.0**53


class _Timing(msgspec.Struct, gc=False):
    """The fields that are used."""

    name: str
    ts: float
    ph: str = ""


_DECODER = msgspec.json.Decoder(list[_Timing])


class TracePhases:
    """The phases of the compiles of one process, until their rows come."""

    def __init__(self, count_lost: Callable[[], None]) -> None:
        """`count_lost` is called for each record that is none of torch's."""
        self._count_lost = count_lost
        self._seen = False
        self._payloads: dict[str, list[bytes]] = {}
        """By compile; those that are not decoded yet."""
        self._stacks: dict[str, PhaseStack] = {}
        self._full = False

    def take_record(self, payload: bytes, compile_id: str) -> None:
        """One record of `compile_id`; "" is none: an import that the first compile waits for."""
        payloads = self._payloads.get(compile_id)
        if payloads is None:
            payloads = self._payloads[compile_id] = []
        payloads.append(payload)
        if len(payloads) >= PAYLOADS_KEPT or len(self._payloads) > STACKS_KEPT:
            self._decode(compile_id)

    def of_row(self, compile_id: str) -> TimedPhases | None:
        """The phases of the compile whose row comes now; None where the trace has no timing, or
        more than is kept."""
        self._decode(compile_id)
        if not (self._seen or any(map(self._decode, list(self._payloads)))):
            return None
        stack = self._stacks.pop(compile_id, None)
        if stack is None:
            return None if self._full else TimedPhases((), ())
        found = stack.take()
        self._keep(compile_id, stack)
        return found

    def decode_rest(self) -> None:
        """Counts what is lost of the records whose compile has no row."""
        for compile_id in list(self._payloads):
            self._decode(compile_id)

    def _decode(self, compile_id: str) -> bool:
        """Follows the phases of a compile to its last record; whether any record was one."""
        timings = self._timings_in(self._payloads.pop(compile_id, ()))
        self._seen = self._seen or bool(timings)
        stack = self._stacks.pop(compile_id, None) or PhaseStack()
        for timing in timings if compile_id else ():
            if timing.ph == "B":
                stack.began(timing.name[:_MAX_NAME_CHARS], round(timing.ts * 1000))
            elif timing.ph == "E":
                stack.ended(timing.name[:_MAX_NAME_CHARS], round(timing.ts * 1000))
        self._keep(compile_id, stack)
        return self._seen

    def _timings_in(self, payloads: Iterable[bytes]) -> list[_Timing]:
        try:
            timings = _DECODER.decode(b"[%s]" % b",".join(payloads))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            timings = [timing for payload in payloads if (timing := self._lenient(payload))]
        known = [timing for timing in timings if 0 <= timing.ts < _MAX_MICROSECONDS]
        for _ in range(len(timings) - len(known)):
            self._count_lost()
        return known

    def _lenient(self, payload: bytes) -> _Timing | None:
        """A record that is no plain JSON, or has fields of other types."""
        fields = parse_object(payload) or {}
        name, at_us, ph = fields.get("name"), fields.get("ts"), fields.get("ph")
        if isinstance(name, str) and isinstance(at_us, (int, float)) and at_us is not True:
            return _Timing(name, at_us, ph if isinstance(ph, str) else "")
        self._count_lost()
        return None

    def _keep(self, compile_id: str, stack: PhaseStack) -> None:
        """Keeps a stack that holds anything for the row of its compile."""
        if stack.open or stack.own_ns:
            self._full = self._full or len(self._stacks) >= STACKS_KEPT
            if not self._full:
                self._stacks[compile_id] = stack
