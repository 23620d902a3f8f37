"""Memory of the host and of CUDA devices, reads that wait for a device, and CUDA graphs."""

from __future__ import annotations

from collections import Counter

from compilediag.diagnosis.figures.recorded import get_logged_allocator
from compilediag.receipt.schema.record import make_record
from compilediag.receipt.schema.running import (
    Allocator,
    CudagraphSection,
    DeviceRecord,
    MemorySection,
    SyncLineRecord,
    SyncsSection,
)
from compilediag.timeline.devices import DeviceUse, group_reads_by_line, parse_skip_reason
from compilediag.timeline.ownership import classify_ownership
from compilediag.timeline.timeline import Timeline, find_lead_process

_CURRENT = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes")
_COUNTS = (
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
    "num_sync_all_streams",
)


def build_memory_section(timeline: Timeline) -> MemorySection:
    """Build the section of memory: the highest host peak of any process, in bytes, and the devices
    of the lead process."""
    peaks = [
        process.ended.host_peak_bytes
        for process in timeline.processes
        if process.ended is not None and process.ended.host_peak_bytes is not None
    ]
    lead = timeline.lead
    devices = [device for device in timeline.device_memory if device.process == lead]
    fullest = max(devices, key=lambda device: device.peak.get("reserved_bytes", 0), default=None)
    none = () if has_gpu(timeline) is False else None
    return MemorySection(
        host_peak_bytes=max(peaks, default=None),
        devices=tuple(_make_device_record(device) for device in devices) or none,
        allocator=make_record(Allocator, _make_device_record(fullest))
        if fullest is not None
        else get_logged_allocator(timeline),
        hint=None if fullest is None else fullest.hint,
    )


def has_gpu(timeline: Timeline) -> bool | None:
    """True if there is a CUDA device; None where it was not recorded."""
    lead = find_lead_process(timeline)
    if lead is None or "gpus" not in lead.facts:
        return None
    return bool(lead.facts["gpus"])


def _make_device_record(device: DeviceUse) -> DeviceRecord:
    last = device.last
    return make_record(
        DeviceRecord,
        device,
        **{name: last.current.get(name) for name in _CURRENT},
        **{name: last.counts.get(name) for name in _COUNTS},
        allocated_peak_bytes=device.peak.get("allocated_bytes"),
        reserved_peak_bytes=device.peak.get("reserved_bytes"),
        largest_growing_bucket=device.growth,
    )


def build_cudagraph_section(timeline: Timeline) -> CudagraphSection:
    """Build the section of CUDA graphs of the lead process. Not applicable without a CUDA device:
    torch then counts every graph as skipped."""
    applicable = has_gpu(timeline)
    lead = timeline.lead
    run = next((graphs for graphs in timeline.cudagraphs if graphs.process == lead), None)
    if applicable is False and (run is None or not run.recordings):
        return CudagraphSection(applicable=False)
    if run is None:
        # The trees were never imported: there was nothing to record.
        ended = (process := find_lead_process(timeline)) is not None and process.ended is not None
        none = 0 if applicable and ended else None
        return CudagraphSection(applicable=applicable, recordings=none, replays=none)
    if run.lost is not None:
        return CudagraphSection(applicable=applicable, pool_bytes=run.pool_bytes)
    # As torch warned: it warns of most only once, and of some not at all.
    skips = (parse_skip_reason(warning.text) for warning in timeline.warnings)
    # Of one callable: rows of two may cost very different work, and are not added up.
    own = [
        fixed_shape
        for fixed_shape in timeline.fixed_shapes
        if fixed_shape.process == lead and fixed_shape.graph_calls
    ]
    return make_record(
        CudagraphSection,
        run,
        applicable=True,
        recordings_by_reason=run.reasons,
        skips_by_reason=Counter(reason for reason in skips if reason is not None),
        distinct_shapes=run.distinct_sizes,
        threads=len({recording.thread for recording in run.recorded}),
        padding_waste_fraction=own[0].graph_padding if len(own) == 1 else None,
    )


MAX_LINES = 256
"""Most lines listed: those with most reads."""


def build_syncs_section(timeline: Timeline) -> SyncsSection | None:
    """Build the section of synchronising reads; None when no step was sampled: zero would be a
    claim about the others."""
    process = timeline.lead
    samples = [sample for sample in timeline.syncs if sample.process == process]
    if not samples:
        return None
    lines = group_reads_by_line(samples)
    timed = [sample.seconds for sample in samples if sample.seconds is not None]
    return SyncsSection(
        sampled_steps=len(samples),
        on_device=any(sample.on_device for sample in samples),
        complete=all(sample.complete for sample in samples) and len(lines) <= MAX_LINES,
        lines=tuple(
            make_record(
                SyncLineRecord,
                line,
                file=line.place.file,
                line=line.place.line,
                function=line.place.function,
                ownership=classify_ownership(line.place.file, timeline.user_roots),
                loop_line=line.loop,
                most_in_a_step=line.most,
                steps=len(line.steps),
            )
            for line in lines[:MAX_LINES]
        ),
        seconds=sum(timed) if len(timed) == len(samples) else None,
    )
