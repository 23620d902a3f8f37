"""Records that hold many events, taken apart into one event each.

Pure. What a record says of one event is in parallel tuples; where they are not of one length, the
record was doctored, and what all of them tell is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compilediag_harness.wire import Event, SpanEnded, SpansEnded


def apart(events: Iterable[Event]) -> Iterator[Event]:
    """The events, with each batch of spans as its spans, in the order they ended."""
    for event in events:
        if isinstance(event, SpansEnded):
            yield from _spans(event)
        else:
            yield event


def _spans(batch: SpansEnded) -> Iterator[SpanEnded]:
    kinds = list(zip(batch.names, batch.depths, batch.threads, batch.phases, strict=False))
    columns = (batch.kinds, batch.steps, batch.starts_ns, batch.walls_ns)
    for kind, step, start_ns, wall_ns in zip(*columns, strict=False):
        if 0 <= kind < len(kinds):
            name, depth, thread, phase = kinds[kind]
            start, wall_s = start_ns / 1e9, wall_ns / 1e9
            yield SpanEnded(start + wall_s, step, name, start, wall_s, depth, thread, phase or None)
