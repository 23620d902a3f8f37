"""The most host memory this process has held, from what the kernel counts anyway."""

from __future__ import annotations

import sys

STATUS = "/proc/self/status"


def peak() -> tuple[int | None, str | None]:
    """Peak resident size of this process in bytes, and what told it: "VmHWM" where /proc has it,
    else "getrusage"; None where neither is there.

    It never falls: a stretch of the program has a peak of its own only where it raised this one.
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
    told = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (told if sys.platform == "darwin" else told * 1024), "getrusage"
