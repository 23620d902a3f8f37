"""Host memory around each compile: two reads of what the kernel counts anyway, no thread that
samples, and nothing is reset that the program could read itself."""

from __future__ import annotations

from compilediag_harness.base.session import Session
from compilediag_harness.torch_internals.host_memory import Resident, resident
from compilediag_harness.wire import CompileMemoryRead

_MAX_OPEN = 256


class CompileMemory:
    """The compiles in progress of one session, by compile id."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: dict[str, Resident] = {}

    def began(self, compile_id: str) -> None:
        """torch began a compile. Those it does not announce, because another is in progress, have
        no record."""
        found = resident()
        if found is not None and len(self._before) < _MAX_OPEN:
            self._before[compile_id] = found

    def ended(self, compile_id: str, *, forward: bool) -> None:
        """Its metrics row was written."""
        before = self._before.pop(compile_id, None)
        after = resident() if before is not None else None
        if before is None or after is None:
            return
        session = self._session
        session.emit(
            CompileMemoryRead(
                t=session.now(),
                step=session.step,
                compile_id=compile_id,
                epoch=session.epoch,
                forward=forward,
                before=before.now,
                after=after.now,
                peak_before=before.peak,
                peak_after=after.peak,
            )
        )

    def forget(self) -> None:
        """Ids start again."""
        self._before.clear()
