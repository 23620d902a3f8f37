"""The memory section of a receipt."""

from __future__ import annotations

from compilediag.receipt.build.identity import process_at
from compilediag.receipt.build.train_log import logged_allocator
from compilediag.receipt.schema.memory import Allocator, DeviceRecord, GrowingBucket, MemorySection
from compilediag.timeline.memory import DeviceMemory
from compilediag.timeline.timeline import Timeline


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
    """Whether there is a CUDA device; None when not known."""
    lead = process_at(timeline, timeline.lead)
    if lead is None or "gpus" not in lead.facts:
        return None
    return bool(lead.facts["gpus"])


def _allocator(item: DeviceMemory) -> Allocator:
    last = item.last
    return Allocator(
        allocated_peak_bytes=item.peak.get("allocated_bytes"),
        reserved_peak_bytes=item.peak.get("reserved_bytes"),
        inactive_split_bytes=last.current.get("inactive_split_bytes"),
        num_alloc_retries=last.counts.get("num_alloc_retries"),
        num_ooms=last.counts.get("num_ooms"),
        largest_growing_bucket=_bucket(item),
    )


def _bucket(item: DeviceMemory) -> GrowingBucket | None:
    growth = item.growth
    if growth is None:
        return None
    return GrowingBucket(
        bucket=growth.bucket,
        grown_bytes=growth.grown_bytes,
        first_step=growth.first_step,
        last_step=growth.last_step,
    )


def _device(item: DeviceMemory) -> DeviceRecord:
    last = item.last
    return DeviceRecord(
        device=item.device,
        allocated_bytes=last.current.get("allocated_bytes"),
        allocated_peak_bytes=item.peak.get("allocated_bytes"),
        reserved_bytes=last.current.get("reserved_bytes"),
        reserved_peak_bytes=item.peak.get("reserved_bytes"),
        active_bytes=last.current.get("active_bytes"),
        inactive_split_bytes=last.current.get("inactive_split_bytes"),
        num_alloc_retries=last.counts.get("num_alloc_retries"),
        num_ooms=last.counts.get("num_ooms"),
        num_device_alloc=last.counts.get("num_device_alloc"),
        num_device_free=last.counts.get("num_device_free"),
        num_sync_all_streams=last.counts.get("num_sync_all_streams"),
        largest_growing_bucket=_bucket(item),
        hint=item.hint,
    )
