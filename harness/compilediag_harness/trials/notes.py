"""What became of each part of a plan: kept until the process has a session, then written."""

from __future__ import annotations

from compilediag_harness.base.session import Session
from compilediag_harness.wire import TrialApplied


class Notes:
    """Of one process. A part that nothing in the process came to is never noted."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._noted: dict[tuple[str, str | None], None] = {}

    def note(self, change: str, problem: str | None = None) -> None:
        """A part was applied, or why it was not; the same is noted once."""
        if (change, problem) in self._noted:
            return
        self._noted[change, problem] = None
        if self._session is not None:
            self._session.emit(TrialApplied(self._session.now(), change, problem))

    def attach(self, session: Session) -> None:
        """Writes what was noted so far, and from now on."""
        self._session = session
        for change, problem in self._noted:
            session.emit(TrialApplied(session.now(), change, problem))
