"""Memory of the host and of CUDA devices, and of the host around each compile."""

from __future__ import annotations

from compilediag.diagnosis.figures.train_log import logged_allocator
from compilediag.receipt.schema.compile_costs import CompileMemorySection
from compilediag.receipt.schema.memory import Allocator, DeviceRecord, MemorySection
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.memory import DeviceMemory
from compilediag.timeline.timeline import Timeline, lead_process

COMPILES_KEPT = 200
"""Most compiles listed: those that grew most."""

_CURRENT = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes")
_COUNTS = (
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
    "num_sync_all_streams",
)


def memory_section(timeline: Timeline) -> MemorySection:
    """The highest host peak of any process; the devices of the lead process."""
    peaks = [
        process.ended.host_peak_bytes
        for process in timeline.processes
        if process.ended is not None and process.ended.host_peak_bytes is not None
    ]
    lead = timeline.lead
    devices = [item for item in timeline.device_memory if item.process == lead]
    fullest = max(devices, key=lambda item: item.peak.get("reserved_bytes", 0), default=None)
    none = () if has_gpu(timeline) is False else None
    return MemorySection(
        host_peak_bytes=max(peaks, default=None),
        devices=tuple(_device(item) for item in devices) or none,
        allocator=logged_allocator(timeline) if fullest is None else _allocator(fullest),
        hint=None if fullest is None else fullest.hint,
    )


def has_gpu(timeline: Timeline) -> bool | None:
    """Whether there is a CUDA device; None where it was not recorded."""
    lead = lead_process(timeline)
    if lead is None or "gpus" not in lead.facts:
        return None
    return bool(lead.facts["gpus"])


def _allocator(item: DeviceMemory) -> Allocator:
    return record_from(Allocator, _device(item))


def _device(item: DeviceMemory) -> DeviceRecord:
    last = item.last
    return record_from(
        DeviceRecord,
        item,
        **{name: last.current.get(name) for name in _CURRENT},
        **{name: last.counts.get(name) for name in _COUNTS},
        allocated_peak_bytes=item.peak.get("allocated_bytes"),
        reserved_peak_bytes=item.peak.get("reserved_bytes"),
        largest_growing_bucket=item.growth,
    )


def compile_memory(timeline: Timeline) -> CompileMemorySection | None:
    """None where the memory around no compile was read."""
    own = [item for item in timeline.compile_memory if item.process == timeline.lead]
    if not own:
        return None
    # The process's highest so far when a compile raised it: of several the highest is the last.
    peaks = [item.peak_bytes for item in own if item.peak_bytes is not None]
    return CompileMemorySection(
        compiles=len(own),
        grown_bytes=sum(item.grown_bytes for item in own),
        peak_bytes=max(peaks, default=None),
        events=tuple(sorted(own, key=lambda item: -item.grown_bytes)[:COMPILES_KEPT]),
    )
