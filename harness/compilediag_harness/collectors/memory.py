"""Memory in use: CUDA allocators, read at growing intervals and at the end, and the process.

CUDA is never initialised for it, no device is waited for, and only counters that the allocator
keeps anyway are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from compilediag_harness.base.session import Session
from compilediag_harness.wire import DeviceMemoryRead

# Names of `torch.cuda.memory_stats_as_nested_dict`.
SIZES = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes")
"""Counters that have a current and a highest value, in each of the pools."""

POOLS = ("all", "small_pool", "large_pool")

COUNTS = (
    *("num_alloc_retries", "num_ooms"),
    *("num_device_alloc", "num_device_free", "num_sync_all_streams"),
)
"""Counters that only rise."""

Stats = Callable[[], Mapping[int, Mapping[str, Any]]]
"""The allocator's statistics, nested by torch, by device index; empty while CUDA is not in use."""


class DeviceMemory:
    """Reads the allocators for one session."""

    def __init__(self, session: Session, stats: Stats) -> None:
        self.session = session
        self._stats = stats
        self._next = 1

    def handle_step_end(self, step: int, _compiled: bool) -> None:
        """Reads after steps 1, 2, 4, 8...: a long run costs little more than a short one."""
        if step >= self._next:
            while self._next <= step:
                self._next *= 2
            self.read()

    def read(self) -> None:
        session = self.session
        for device, stats in self._stats().items():
            session.emit_in_step(
                DeviceMemoryRead,
                device,
                current=dict(_iterate_values(stats, "current", POOLS)),
                peak=dict(_iterate_values(stats, "peak", POOLS[:1])),
                counts={name: value for name in COUNTS if type(value := stats.get(name)) is int},
            )


def _iterate_values(
    stats: Mapping[str, Any], which: str, pools: tuple[str, ...]
) -> Iterator[tuple[str, int]]:
    for size in SIZES:
        for pool in pools:
            value = stats.get(size, {}).get(pool, {}).get(which)
            if type(value) is int:
                yield (size if pool == "all" else f"{size}.{pool}"), value


STATUS = "/proc/self/status"


def read_peak() -> tuple[int | None, str | None]:
    """Read the peak resident size of this process in bytes, and its source: "VmHWM" where /proc has
    it, else "getrusage"; None where neither is there.

    It never falls: a part of the program has a peak of its own only where it raised this one.
    """
    try:
        with open(STATUS, encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    # "VmHWM:   12345 kB", where the kernel's kB are of 1024 bytes.
                    return int(line.split()[1]) * 1024, "VmHWM"
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:  # not on Windows
        return None, None
    peak_size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes but on macOS
    return (peak_size if sys.platform == "darwin" else peak_size * 1024), "getrusage"
