"""Effects of the program's code that a graph does not have, with no word from torch: operations in
place that are left out, and random numbers that every call repeats."""

from __future__ import annotations

from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.blame.source_locations import find_innermost_user_line
from compilediag_harness.torch_internals.torch_compiles import get_attempt, get_compile_id
from compilediag_harness.wire import EffectLost, Location, clip

_MAX_EFFECTS = 64
"""Most of one attempt."""
_SETS_STATE = ("seed", "setstate")


class LostEffectCollector:
    """Collects effects that the attempt in progress loses, and reports those of guarded code."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._attempt: tuple[str, int] | None = None
        self._effects: dict[tuple[str, str, bool, Location | None], None] = {}

    def record_write(self, source: str, operation: str, where: Location | None) -> None:
        """torch leaves an operation in place out of a graph."""
        self._record(source, operation, drawn=False, where=where)

    def record_random_call(self, source: str, operation: str, drawn: bool, stack: Any) -> None:
        """Dynamo traces a call of a method of a `random.Random`."""
        if drawn or operation in _SETS_STATE:
            where = find_innermost_user_line(stack)
            self._record(source, operation, drawn=drawn, where=where)

    def _record(self, source: str, operation: str, *, drawn: bool, where: Location | None) -> None:
        with self._session.catch_faults("lost effect"):
            attempt = get_compile_id(), get_attempt()
            if attempt != self._attempt:  # a restart traces anew, and may find none
                self._attempt, self._effects = attempt, {}
            if len(self._effects) < _MAX_EFFECTS:
                self._effects[clip(source, 512), clip(operation, 64), drawn, where] = None

    def report(self, compile_id: str) -> None:
        """Guarded code exists. Where the code sets the state of a `random.Random` itself, draws may
        repeat in eager too: nothing is said of that one."""
        effects, session = self._effects, self._session
        if self._attempt == (compile_id, get_attempt()):
            own = {source for source, operation, *_ in effects if operation in _SETS_STATE}
            for effect in effects:
                if effect[0] not in own:
                    session.emit_in_step(EffectLost, compile_id, session.epoch, *effect)
        self._effects = {}
