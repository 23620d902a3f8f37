"""The most host memory this process has held, from what the kernel counts anyway."""

from __future__ import annotations

import sys

STATUS = "/proc/self/status"


def peak() -> tuple[int | None, str | None]:
    """Peak resident size of this process in bytes, and its source: "VmHWM" where /proc has it,
    else "getrusage"; None where neither is there.

    It never falls: a part of the program has a peak of its own only where it raised this one.
    """
    try:
        with open(STATUS, encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024, "VmHWM"
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:  # not on Windows
        return None, None
    peak_size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes but on macOS
    return (peak_size if sys.platform == "darwin" else peak_size * 1024), "getrusage"
