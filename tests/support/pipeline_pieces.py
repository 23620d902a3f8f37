"""A session that receives pipelines, and what it has received of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from compilediag_harness.base.session import Session
from compilediag_harness.extensions import pipeline
from compilediag_harness.wire import Event, PipelineWorked

Listening = tuple[Session, list[Event]]


@contextmanager
def listening_to_pipelines() -> Iterator[Listening]:
    events: list[Event] = []
    session = Session(events.append, origin=0.0)
    pipeline.sinks.install(session)
    yield session, events
    pipeline.sinks.uninstall(session)


def blocks(events: list[Event]) -> list[tuple[str, float, float, int, int]]:
    """Stage, start, seconds, samples and slot of every block, in their order."""
    return [
        row
        for event in events
        if isinstance(event, PipelineWorked)
        for row in zip(
            *(event.stages, event.starts, event.walls, event.samples, event.infer_slots),
            strict=True,
        )
    ]
