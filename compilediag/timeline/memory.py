"""The memory of each CUDA device over a run, and what it hints at.

Growth is measured from the first reading in steady state to the last: what the first steps
allocate is no growth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compilediag.receipt.schema.memory import GrowingBucket
from compilediag_harness.wire import DeviceMemoryRead

STEADY_FROM_STEP = 2
"""Steps before it allocate gradients and the state of optimizers."""

MIN_BYTES = 64 << 20
"""Growth, and unused split blocks, below it are not worth a hint."""

FLAT = 0.1
"""Allocated is flat when it grows by less than this share of what reserved grows by."""

SPLIT_SHARE = 0.25
"""Share of the reserved bytes in inactive split blocks that is worth a hint."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device of one process."""

    process: int
    device: int
    last: DeviceMemoryRead
    peak: dict[str, int]
    """Over all readings: the program may reset torch's own peaks."""
    growth: GrowingBucket | None
    """None: fewer than two readings in steady state, or nothing grew."""
    hint: str | None


def devices_of(process: int, reads: Iterable[DeviceMemoryRead]) -> list[DeviceMemory]:
    """The devices of one process, by their index."""
    by_device: dict[int, list[DeviceMemoryRead]] = {}
    for read in reads:
        by_device.setdefault(read.device, []).append(read)
    return [_device(process, device, by_device[device]) for device in sorted(by_device)]


def _device(process: int, device: int, reads: Sequence[DeviceMemoryRead]) -> DeviceMemory:
    peak: dict[str, int] = {}
    for read in reads:
        for name, value in read.peak.items():
            peak[name] = max(peak.get(name, 0), value)
    steady = [read for read in reads if read.step >= STEADY_FROM_STEP]
    return DeviceMemory(
        process=process,
        device=device,
        last=reads[-1],
        peak=peak,
        growth=_growth(steady),
        hint=_hint(reads[-1], steady),
    )


def _growth(steady: Sequence[DeviceMemoryRead]) -> GrowingBucket | None:
    """Pools before their sum, because they are more specific."""
    if len(steady) < 2:
        return None
    grown = _grown(steady)
    pools = {name: value for name, value in grown.items() if "." in name} or grown
    bucket = max(pools, key=lambda name: pools[name], default=None)
    if bucket is None or pools[bucket] <= 0:
        return None
    return GrowingBucket(
        bucket=bucket,
        grown_bytes=pools[bucket],
        first_step=steady[0].step,
        last_step=steady[-1].step,
    )


def _grown(steady: Sequence[DeviceMemoryRead]) -> dict[str, int]:
    first, last = steady[0].current, steady[-1].current
    return {name: last[name] - first[name] for name in last if name in first}


def _hint(last: DeviceMemoryRead, steady: Sequence[DeviceMemoryRead]) -> str | None:
    """The gravest of what the counters show."""
    ooms, retries = last.counts.get("num_ooms", 0), last.counts.get("num_alloc_retries", 0)
    if ooms:
        return f"out of memory {ooms} times"
    if retries:
        return f"the allocator emptied its cache and tried again {retries} times: memory is tight"
    grown = _grown(steady) if len(steady) >= 2 else {}
    reserved, allocated = grown.get("reserved_bytes", 0), grown.get("allocated_bytes", 0)
    if reserved >= MIN_BYTES and allocated < FLAT * reserved:
        return (
            f"fragmentation: reserved grew by {_mib(reserved)} MiB while allocated "
            f"{'grew by' if allocated >= 0 else 'shrank by'} {_mib(abs(allocated))} MiB"
        )
    split, held = last.current.get("inactive_split_bytes", 0), last.current.get("reserved_bytes", 0)
    if split >= MIN_BYTES and split >= SPLIT_SHARE * held:
        return f"fragmentation: {split / held:.0%} of reserved is in unused split blocks"
    if allocated >= MIN_BYTES:
        return f"allocated grew by {_mib(allocated)} MiB since step {steady[0].step}"
    return None


def _mib(size: int) -> int:
    return round(size / (1 << 20))
