"""The collectors of the harness, attached to this process for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from compilediag_harness import attach
from compilediag_harness.base.process_options import ProcessOptions
from compilediag_harness.base.session import Session
from compilediag_harness.wire import Event, FaultOccurred, TrialPlan

if TYPE_CHECKING:
    AnyEvent = TypeVar("AnyEvent", bound=Event)


class Events(list[Event]):
    """The events of one session."""

    session: Session

    def of(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        """Those of one kind."""
        return [event for event in self if isinstance(event, kind)]


@contextmanager
def attached(session: Session) -> Iterator[None]:
    """Around a block; the session has all its events after it."""
    attach.install(session)
    try:
        yield
        attach.finish(session)
    finally:
        attach.uninstall(session)


@contextmanager
def watched(
    options: ProcessOptions | None = None, trial: TrialPlan | None = None
) -> Iterator[Events]:
    """Every collector around a block, in which Dynamo begins anew; no fault of ours occurred. With
    a plan the block is a trial."""
    import torch

    torch._dynamo.reset()
    events = Events()
    events.session = session = Session(events.append)
    session.options = options or session.options
    if trial is not None:
        from compilediag_harness.trials.trial import ActiveTrial

        begun: Any = ActiveTrial(trial)
        session.trial = begun
    try:
        with attached(session):
            yield events
    finally:
        torch._dynamo.reset()
    assert not events.of(FaultOccurred), events.of(FaultOccurred)
