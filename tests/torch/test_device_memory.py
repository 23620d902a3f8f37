"""Memory of CUDA devices, with allocators made by hand: there is no GPU where the tests run."""

import sys
import types
from typing import Any

import pytest
from timelines import process, timeline

from compilediag.diagnosis.figures.devices import build_memory_section
from compilediag.receipt.schema.running import GrowingBucket
from compilediag.timeline.devices import collect_devices
from compilediag.timeline.timeline import fold
from compilediag_harness.base.session import Session
from compilediag_harness.collectors.memory import DeviceMemory
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.wire import DeviceMemoryRead, Event

MIB = 1 << 20


def size(current: int, peak: int | None = None, large: int | None = None) -> dict[str, Any]:
    """One counter as torch nests it."""
    own = {"current": current, "peak": peak or current, "allocated": 10**9, "freed": 10**9}
    pool = {**own, "current": large if large is not None else current}
    return {"all": own, "large_pool": pool, "small_pool": {**own, "current": 0}}


def stats(allocated: int = MIB, reserved: int = 4 * MIB, **counts: int) -> dict[str, Any]:
    """The statistics of one allocator."""
    return {
        "allocated_bytes": size(allocated, 2 * allocated),
        "reserved_bytes": size(reserved),
        "active_bytes": size(allocated),
        "inactive_split_bytes": size(7),
        "num_alloc_retries": 0,
        "num_ooms": 0,
        "max_split_size": -1,
        "oversize_allocations": {"current": 1},
        **counts,
    }


def read(step: int, allocated: int, reserved: int, **more: Any) -> DeviceMemoryRead:
    current = {
        "allocated_bytes": allocated,
        "allocated_bytes.large_pool": allocated,
        "reserved_bytes": reserved,
        "reserved_bytes.large_pool": reserved,
        "inactive_split_bytes": more.get("split", 0),
    }
    peak = {"allocated_bytes": allocated, "reserved_bytes": reserved}
    counts = {"num_alloc_retries": more.get("retries", 0), "num_ooms": more.get("ooms", 0)}
    return DeviceMemoryRead(float(step), step, more.get("device", 0), current, peak, counts)


# --- reading ---


def test_the_allocator_is_read_at_growing_distances() -> None:
    """A run of a thousand steps is read ten times, not a thousand."""
    asked: list[int] = []
    events: list[Event] = []

    def answer() -> dict[int, dict[str, Any]]:
        asked.append(1)
        return {}

    memory = DeviceMemory(Session(events.append), answer)
    read_after: list[int] = []
    for step in range(1000):
        memory.handle_step_end(step, False)
        if len(asked) > len(read_after):
            read_after.append(step)
    assert read_after == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert events == []


def test_what_is_read() -> None:
    """Cheap counters only, by pool; what is no number, or not there, is left out."""
    events: list[Event] = []
    session = Session(events.append)
    session.step = 5
    given = stats(MIB, 4 * MIB, num_ooms=1)
    del given["active_bytes"]
    DeviceMemory(session, lambda: {0: stats(), 3: given}).read()
    first, second = (event for event in events if isinstance(event, DeviceMemoryRead))
    assert (first.device, first.step, second.device) == (0, 5, 3)
    assert second.current == {
        "allocated_bytes": MIB,
        "allocated_bytes.small_pool": 0,
        "allocated_bytes.large_pool": MIB,
        "reserved_bytes": 4 * MIB,
        "reserved_bytes.small_pool": 0,
        "reserved_bytes.large_pool": 4 * MIB,
        "inactive_split_bytes": 7,
        "inactive_split_bytes.small_pool": 0,
        "inactive_split_bytes.large_pool": 7,
    }
    assert second.peak["allocated_bytes"] == 2 * MIB
    assert second.counts == {"num_alloc_retries": 0, "num_ooms": 1}


def fake_cuda(initialised: bool, per_device: list[dict[str, Any]]) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        is_initialized=lambda: initialised,
        device_count=lambda: len(per_device) if initialised else pytest.fail("CUDA was asked"),
        memory_stats_as_nested_dict=per_device.__getitem__,
    )


def test_cuda_is_never_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the program uses CUDA nothing but that is asked; later, devices that were used."""
    monkeypatch.setitem(sys.modules, "torch.cuda", fake_cuda(False, [stats()]))
    assert torch_api.read_device_memory() == {}
    unused = {"reserved_bytes": size(0)}
    monkeypatch.setitem(sys.modules, "torch.cuda", fake_cuda(True, [unused, {}, stats()]))
    assert list(torch_api.read_device_memory()) == [2]
    monkeypatch.delitem(sys.modules, "torch.cuda")
    assert torch_api.read_device_memory() == {}


# --- folding ---


def test_growth_is_that_of_steady_state() -> None:
    """What the first steps allocate is no growth; the pool is named, not the sum."""
    (device,) = collect_devices(0, [read(1, 0, 0), read(2, 100, 300), read(8, 150, 900)])
    assert device.growth == GrowingBucket(
        bucket="reserved_bytes.large_pool", grown_bytes=600, first_step=2, last_step=8
    )
    (short,) = collect_devices(0, [read(1, 0, 0), read(2, 100, 300)])
    assert short.growth is None
    (steady,) = collect_devices(0, [read(2, 100, 300), read(8, 100, 300)])
    assert steady.growth is None


def test_peaks_survive_a_reset_of_the_program() -> None:
    """`reset_peak_memory_stats` in the program takes nothing from what was read before."""
    (device,) = collect_devices(0, [read(1, 500, 900), read(2, 100, 300)])
    assert device.peak == {"allocated_bytes": 500, "reserved_bytes": 900}
    assert device.last.current["allocated_bytes"] == 100


@pytest.mark.parametrize(
    ("reads", "hint"),
    [
        ([read(2, 0, 0), read(4, MIB, 100 * MIB)], "fragmentation: reserved grew by 100 MiB while"),
        ([read(2, 2 * MIB, 0), read(4, MIB, 100 * MIB)], "fragmentation: reserved grew by 100 MiB"),
        ([read(2, 0, 0), read(4, 90 * MIB, 100 * MIB)], "allocated grew by 90 MiB since step 2"),
        ([read(4, MIB, 200 * MIB, split=100 * MIB)], "fragmentation: 50% of reserved is in unused"),
        ([read(4, MIB, 200 * MIB, split=10 * MIB)], ""),
        ([read(2, 0, 0), read(4, 0, 10 * MIB)], ""),
        ([read(4, 0, 0, retries=3)], "the allocator emptied its cache and tried again 3 times"),
        ([read(4, 0, 0, retries=3, ooms=2)], "out of memory 2 times"),
    ],
)
def test_hints(reads: list[DeviceMemoryRead], hint: str) -> None:
    """Allocated against reserved; the gravest is told."""
    told = collect_devices(0, reads)[0].hint
    assert bool(told) == bool(hint)
    assert (told or "").startswith(hint)


def test_the_receipt() -> None:
    """Every device of the told process; the counters in `allocator` are the fullest one's."""
    reads = [read(2, 10, 20, device=1), read(2, 1, 2), read(4, 10, 90, device=1, ooms=1)]
    made = fold([reads])
    section = build_memory_section(made)
    assert [device.device for device in section.devices] == [0, 1]
    assert section.devices[1].reserved_bytes == 90
    allocator = section.allocator
    assert (allocator.reserved_peak_bytes, allocator.num_ooms) == (90, 1)
    assert allocator.largest_growing_bucket.grown_bytes == 70
    assert section.hint == "out of memory 1 times"


def test_without_a_reading_nothing_is_claimed() -> None:
    """No GPU: no devices. A GPU that was not read: null."""
    for facts, devices in (({"gpus": []}, ()), ({"gpus": [{}]}, None), ({}, None)):
        section = build_memory_section(timeline(processes=(process(facts=dict(facts)),)))
        assert section.devices == devices
        assert section.allocator.num_ooms is None
