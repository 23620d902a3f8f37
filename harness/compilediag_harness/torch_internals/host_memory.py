"""The host memory that this process holds and has held, from what the kernel counts anyway."""

from __future__ import annotations

import sys
from typing import NamedTuple

STATUS = "/proc/self/status"


class Resident(NamedTuple):
    """Bytes of this process in memory."""

    now: int
    peak: int
    """The most so far."""


def resident() -> Resident | None:
    """What is in memory now, and the most that ever was; None without /proc."""
    # The kernel could begin its peak anew (/proc/self/clear_refs), but `getrusage` of the program
    # would then have another one: each compile is held against the peak before it instead.
    found: dict[str, int] = {}
    try:
        with open(STATUS, encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith(("VmHWM:", "VmRSS:")):
                    found[line[:5]] = int(line.split()[1]) * 1024
        return Resident(found["VmRSS"], found["VmHWM"])
    except (OSError, ValueError, IndexError, KeyError):
        return None


def peak() -> tuple[int | None, str | None]:
    """Peak resident size of this process in bytes, and its source: "VmHWM" where /proc has it,
    else "getrusage"; None where neither is there.

    It never falls: a part of the program has a peak of its own only where it raised this one.
    """
    found = resident()
    if found is not None:
        return found.peak, "VmHWM"
    try:
        import resource
    except ImportError:  # not on Windows
        return None, None
    peak_size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes but on macOS
    return (peak_size if sys.platform == "darwin" else peak_size * 1024), "getrusage"
