"""The samples of synchronisations: out of their records, and added up by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from compilediag_harness.wire import Location, PackedBuffer, SyncsSampled


@dataclass(frozen=True, slots=True)
class SyncSite:
    """Reads of one kind on one of the user's lines, in one sampled step."""

    place: Location
    kind: str
    """"item", "bool", "cpu"...; see `SyncsSampled`."""
    loop: int | None
    """First line of the innermost loop around it in its function, where one is known."""
    spans: tuple[str, ...]
    """Names of the spans that were open, outermost first."""
    count: int
    seconds: float | None = None
    """Inside the calls, waiting included; None: not timed."""


@dataclass(frozen=True, slots=True)
class SyncSample:
    """Where one whole step made the host wait for tensor data; empty where it did not."""

    process: int
    step: int
    on_device: bool
    """The tensors were on a device; False: the reads would wait if they were."""
    complete: bool
    """False when the step held more than were counted."""
    sites: tuple[SyncSite, ...]
    seconds: float | None = None
    """Inside all of the reads; None where not every one was timed."""
    noting_s: Mapping[str, float] = field(default_factory=dict[str, float])
    """What noting them made the step longer by, by phase."""
    packed: tuple[PackedBuffer, ...] = ()
    """Buffers that the step filled and then wrote into."""


@dataclass(frozen=True, slots=True)
class SyncLine:
    """Reads of one kind on one line, over all sampled steps of a process."""

    place: Location
    kind: str
    loop: int | None
    count: int
    most: int
    """In the step that held most."""
    steps: tuple[int, ...]
    """Sampled steps that held any."""
    seconds: float | None = None
    """Inside the calls, in all of these steps; None where they were not timed in one of them."""


def sample_of(process: int, event: SyncsSampled) -> SyncSample:
    """One step. Tuples of different lengths come from a doctored record: what all have is kept."""
    columns = event.places, event.kinds, event.loops, event.spans, event.counts
    rows = list(zip(*columns, strict=False))
    timed = len(event.seconds) == len(rows)
    seconds = event.seconds if timed else (None,) * len(rows)
    return SyncSample(
        process,
        event.step,
        event.on_device,
        event.complete,
        tuple(
            SyncSite(place, kind, loop or None, names, count, spent)
            for (place, kind, loop, names, count), spent in zip(rows, seconds, strict=True)
            if count > 0
        ),
        sum(event.seconds) if timed and event.complete else None,
        event.noting_s,
        event.packed,
    )


def lines_of(
    samples: Iterable[SyncSample], wanted: Callable[[SyncSite], bool] = lambda _: True
) -> tuple[SyncLine, ...]:
    """The lines of the samples of one process, those with most reads first."""
    grouped: dict[tuple[Location, str], list[tuple[int, SyncSite]]] = {}
    for sample in samples:
        for site in sample.sites:
            if wanted(site):
                grouped.setdefault((site.place, site.kind), []).append((sample.step, site))
    return tuple(sorted(map(_line, grouped.values()), key=lambda line: -line.count))


def _line(found: Sequence[tuple[int, SyncSite]]) -> SyncLine:
    """Reads of one kind on one line, each with its step."""
    sites = [site for _, site in found]
    by_step: Counter[int] = Counter()
    for step, site in found:
        by_step[step] += site.count
    seconds = [site.seconds for site in sites if site.seconds is not None]
    return SyncLine(
        place=sites[0].place,
        kind=sites[0].kind,
        loop=next((site.loop for site in reversed(sites) if site.loop is not None), None),
        count=sum(by_step.values()),
        most=max(by_step.values()),
        steps=tuple(sorted(by_step)),
        seconds=sum(seconds) if len(seconds) == len(sites) else None,
    )
