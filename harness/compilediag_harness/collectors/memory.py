"""What the allocator of each CUDA device holds: read at growing intervals and at the end.

CUDA is never initialised for it, no device is waited for, and only counters that the allocator
keeps anyway are read.
"""

from __future__ import annotations

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
"""Device index to the allocator's statistics, nested as torch gives them; empty while CUDA is not
in use."""


class DeviceMemory:
    """Reads the allocators for one session."""

    def __init__(self, session: Session, stats: Stats) -> None:
        self.session = session
        self._stats = stats
        self._next = 1

    def step_ended(self, step: int, _compiled: bool) -> None:
        """Reads after steps 1, 2, 4, 8...: a long run costs little more than a short one."""
        if step >= self._next:
            while self._next <= step:
                self._next *= 2
            self.read()

    def read(self) -> None:
        """Reports what every device in use holds now."""
        session = self.session
        for device, stats in self._stats().items():
            session.emit(
                DeviceMemoryRead(
                    t=session.now(),
                    step=session.step,
                    device=device,
                    current=dict(_values(stats, "current", POOLS)),
                    peak=dict(_values(stats, "peak", POOLS[:1])),
                    counts={
                        name: value for name in COUNTS if type(value := stats.get(name)) is int
                    },
                )
            )


def _values(
    stats: Mapping[str, Any], which: str, pools: tuple[str, ...]
) -> Iterator[tuple[str, int]]:
    for size in SIZES:
        for pool in pools:
            value = stats.get(size, {}).get(pool, {}).get(which)
            if type(value) is int:
                yield (size if pool == "all" else f"{size}.{pool}"), value
