"""`compilediag` and `python -m compilediag`: the command line, with hardly a garbage collection.

Importing makes tens of thousands of objects that all stay; collecting among them, while they are
made and once more when the interpreter ends, costs 15 of the 80 milliseconds of a short command. A
command lives too briefly, or (`run`) waits too much, for garbage to matter. Taking all modules
apart at the end costs 3 more: the system takes back the memory of a process without that.
"""

from __future__ import annotations

import gc
import os
import sys

from compilediag.stand_ins import put_in_place

OBJECTS_BETWEEN_COLLECTIONS = 100_000


def main() -> int:
    """Runs the command of this process and returns its exit code, or ends the process with it."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    put_in_place()  # before click and msgspec are imported
    from compilediag.cli import main as run_command

    code = run_command()
    if _nobody_waits() and _is_written():
        os._exit(code)
    if "duckdb" not in sys.modules:  # it complains of all that is not collected at the end
        gc.freeze()  # the collection at the end of the process then has nothing to look at
    return code


def _nobody_waits() -> bool:
    """Whether no other thread is left, and nobody asked to be called at the end of the process:
    a coverage tool does, and whoever has a temporary folder to remove."""
    import atexit
    import threading

    count = getattr(atexit, "_ncallbacks", None)
    return count is not None and count() == 0 and threading.active_count() == 1


def _is_written() -> bool:
    """Whether all that was printed has left the process; where it cannot, Python itself says so."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # pyright: ignore[reportUnnecessaryComparison] - `>&-`
                stream.flush()
    except (OSError, ValueError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
