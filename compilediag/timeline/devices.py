"""The devices of a run: their memory, the synchronisations with them, CUDA graphs.

Growth of memory is measured from the first reading in steady state to the last: what the first
steps allocate is no growth.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from compilediag.receipt.schema.running import GrowingBucket
from compilediag.timeline.compiles import get_compile_id
from compilediag_harness import wire

STEADY_FROM_STEP = 2
"""Steps before it allocate gradients and the state of optimizers."""

MIN_BYTES = 64 << 20
"""Growth, and unused split blocks, below it are not worth a hint."""

FLAT = 0.1
"""Allocated is flat when it grows by less than this share of what reserved grows by."""

SPLIT_SHARE = 0.25
"""Share of the reserved bytes in inactive split blocks that is worth a hint."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One device of one process."""

    process: int
    device: int
    last: wire.DeviceMemoryRead
    peak: dict[str, int]
    """Over all readings: the program may reset torch's own peaks."""
    growth: GrowingBucket | None
    """None: fewer than two readings in steady state, or nothing grew."""
    hint: str | None


def collect_devices(process: int, reads: Iterable[wire.DeviceMemoryRead]) -> list[DeviceUse]:
    """Collect the devices of one process, by their index."""
    by_device: dict[int, list[wire.DeviceMemoryRead]] = {}
    for read in reads:
        by_device.setdefault(read.device, []).append(read)
    return [_make_use(process, device, own) for device, own in sorted(by_device.items())]


def _make_use(process: int, device: int, reads: Sequence[wire.DeviceMemoryRead]) -> DeviceUse:
    peak: dict[str, int] = {}
    for read in reads:
        for name, value in read.peak.items():
            peak[name] = max(peak.get(name, 0), value)
    steady = [read for read in reads if read.step >= STEADY_FROM_STEP]
    grown: dict[str, int] = {}
    if len(steady) >= 2:
        first, last = steady[0].current, steady[-1].current
        grown = {name: last[name] - first[name] for name in last if name in first}
    # Pools before their sum, because they are more specific.
    pools = {name: value for name, value in grown.items() if "." in name} or grown
    bucket = max(pools, key=lambda name: pools[name], default=None)
    growth = None
    if bucket is not None and pools[bucket] > 0:
        growth = GrowingBucket(
            bucket=bucket,
            grown_bytes=pools[bucket],
            first_step=steady[0].step,
            last_step=steady[-1].step,
        )
    hint = _find_hint(reads[-1], grown, steady[0].step if steady else 0)
    return DeviceUse(process, device, reads[-1], peak, growth, hint)


def _find_hint(last: wire.DeviceMemoryRead, grown: Mapping[str, int], since: int) -> str | None:
    """Find the gravest of what the counters show, as a sentence; None where nothing stands out."""
    ooms, retries = last.counts.get("num_ooms", 0), last.counts.get("num_alloc_retries", 0)
    if ooms:
        return f"out of memory {ooms} times"
    if retries:
        return f"the allocator emptied its cache and tried again {retries} times: memory is tight"
    reserved, allocated = grown.get("reserved_bytes", 0), grown.get("allocated_bytes", 0)
    if reserved >= MIN_BYTES and allocated < FLAT * reserved:
        return (
            f"fragmentation: reserved grew by {_round_mib(reserved)} MiB while allocated "
            f"{'grew by' if allocated >= 0 else 'shrank by'} {_round_mib(abs(allocated))} MiB"
        )
    split, held = last.current.get("inactive_split_bytes", 0), last.current.get("reserved_bytes", 0)
    if split >= MIN_BYTES and split >= SPLIT_SHARE * held:
        return f"fragmentation: {split / held:.0%} of reserved is in unused split blocks"
    if allocated >= MIN_BYTES:
        return f"allocated grew by {_round_mib(allocated)} MiB since step {since}"
    return None


def _round_mib(size: int) -> int:
    return round(size / (1 << 20))


@dataclass(frozen=True, slots=True)
class SyncReads:
    """Reads of one kind on one of the user's lines."""

    place: wire.Location
    kind: str
    """"item", "bool", "cpu"...; see `SyncsSampled`."""
    loop: int | None
    """First line of the innermost loop around it in its function, where one is known."""
    count: int


@dataclass(frozen=True, slots=True)
class SyncSite(SyncReads):
    """Those in one sampled step."""

    spans: tuple[str, ...]
    """Names of the spans that were open, outermost first."""
    seconds: float | None = None
    """Inside the calls, waiting included; None: not timed."""


@dataclass(frozen=True, slots=True)
class SampledStep:
    """The lines at which one step made the host wait for tensor data; empty where it did not."""

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
    packed: tuple[wire.PackedBuffer, ...] = ()
    """Buffers that the step filled and then wrote into."""


@dataclass(frozen=True, slots=True)
class SyncLine(SyncReads):
    """Those over all sampled steps of a process."""

    most: int
    steps: tuple[int, ...]
    """Sampled steps that held any."""
    seconds: float | None = None
    """Inside the calls, in all of these steps; None where they were not timed in one of them."""


def collect_samples(process: int, events: Iterable[wire.SyncsSampled]) -> Iterator[SampledStep]:
    """Collect the sampled steps; of tuples of different lengths what all have remains."""
    for event in events:
        columns = event.places, event.kinds, event.loops, event.spans, event.counts
        rows = list(zip(*columns, strict=False))
        timed = len(event.seconds) == len(rows)
        seconds = event.seconds if timed else (None,) * len(rows)
        sites = tuple(
            SyncSite(place, kind, loop or None, count, names, spent)
            for (place, kind, loop, names, count), spent in zip(rows, seconds, strict=True)
            if count > 0
        )
        spent_s = sum(event.seconds) if timed and event.complete else None
        about = (event.step, event.on_device, event.complete)
        yield SampledStep(process, *about, sites, spent_s, event.noting_s, event.packed)


def group_reads_by_line(
    samples: Iterable[SampledStep], wanted: Callable[[SyncSite], bool] = lambda _: True
) -> tuple[SyncLine, ...]:
    """Group the reads of one process's samples by line and kind, those with most reads first."""
    grouped: dict[tuple[wire.Location, str], list[tuple[int, SyncSite]]] = {}
    for sample in samples:
        for site in sample.sites:
            if wanted(site):
                grouped.setdefault((site.place, site.kind), []).append((sample.step, site))
    lines: list[SyncLine] = []
    for (place, kind), reads in grouped.items():
        by_step: Counter[int] = Counter()
        for step, site in reads:
            by_step[step] += site.count
        loop = next((site.loop for _, site in reversed(reads) if site.loop is not None), None)
        seconds = [site.seconds for _, site in reads if site.seconds is not None]
        spent = sum(seconds) if len(seconds) == len(reads) else None
        counts = by_step.values()
        steps = tuple(sorted(by_step))
        lines.append(SyncLine(place, kind, loop, sum(counts), max(counts), steps, spent))
    return tuple(sorted(lines, key=lambda line: -line.count))


_SKIP = re.compile(r"skipping cudagraphs? due to (?P<reason>.+)", re.DOTALL | re.IGNORECASE)
_VARIES = re.compile(r"\d+")
_LIMIT = "exceeding max re-recording limit"


class GraphCounts(NamedTuple):
    """The graphs of one compile."""

    recordings: int
    replays: int
    warmups: int


@dataclass(frozen=True, slots=True)
class CudagraphRun:
    """The CUDA graphs of one process."""

    process: int
    recorded: tuple[wire.CudagraphRecorded, ...]
    """One by one: all, or the first so many."""
    counts: dict[str, GraphCounts]
    """By compile id; of all recordings."""
    skips: int | None
    """torch's own count, silent ones included; None where the process did not end in order."""
    live_graphs: int | None
    pool_bytes: int | None
    lost: str | None
    """Why nothing could be watched, if so."""

    @property
    def recordings(self) -> int:
        return sum(graph.recordings for graph in self.counts.values())

    @property
    def replays(self) -> int:
        return sum(graph.replays for graph in self.counts.values())

    @property
    def warmups(self) -> int:
        return sum(graph.warmups for graph in self.counts.values())

    @property
    def reasons(self) -> dict[str, int]:
        """Recordings by reason; those that were only counted are "not told", as in receipts."""
        by_reason = dict(Counter(recording.reason for recording in self.recorded))
        if left := self.recordings - len(self.recorded):
            by_reason["not told"] = left
        return by_reason

    @property
    def distinct_sizes(self) -> int:
        """Distinct sizes of the inputs, over all recorded functions: each size of `dynamic=False`
        has a compile id of its own."""
        return len({(get_compile_id(it).frame, it.mode, it.sizes) for it in self.recorded})


def collect_cudagraphs(
    process: int, events: Sequence[wire.CudagraphRecorded | wire.CudagraphsRan]
) -> list[CudagraphRun]:
    """Collect the CUDA graphs of one process, from at least one event."""
    recorded = [event for event in events if isinstance(event, wire.CudagraphRecorded)]
    batches = [event for event in events if isinstance(event, wire.CudagraphsRan)]
    last = batches[-1] if batches else None
    sums: dict[str, list[int]] = {}
    for batch in batches:
        rows = zip(batch.compile_ids, batch.recordings, batch.replays, batch.warmups, strict=False)
        for compile_id, *more in rows:
            total = sums.get(compile_id, [0, 0, 0])
            sums[compile_id] = [a + b for a, b in zip(total, more, strict=True)]
    # Of a process that was killed the last batch is missing: what was recorded one by one counts.
    for compile_id, count in Counter(recording.compile_id for recording in recorded).items():
        total = sums.setdefault(compile_id, [0, 0, 0])
        total[0] = max(total[0], count)
    counts = {compile_id: GraphCounts(*total) for compile_id, total in sums.items()}
    ended = (None, None, None, None)
    if last is not None:
        ended = (last.skips, last.live_graphs, last.pool_bytes, last.lost)
    return [CudagraphRun(process, tuple(recorded), counts, *ended)]


def parse_skip_reason(text: str) -> str | None:
    """Parse torch's reason for leaving a CUDA graph out from its warning; numbers are left out, so
    that equal reasons are equal. None for another text."""
    matched = _SKIP.search(text)
    if matched is None:
        return None
    if _LIMIT in text:
        return "re-recording limit"
    reason = matched["reason"].split("\n")[0].split(". Found from")[0]
    return _VARIES.sub("N", reason.strip().rstrip(".:"))[:200]
