"""`compilediag` and `python -m compilediag`: the command line, with hardly a garbage collection.

Importing makes tens of thousands of objects that all stay; collecting among them, while they are
made and once more when the interpreter ends, costs 15 of the 80 milliseconds of a short command. A
command lives too briefly, or (`run`) waits too much, for garbage to matter.
"""

from __future__ import annotations

import gc
import sys

OBJECTS_BETWEEN_COLLECTIONS = 100_000


def main() -> int:
    """Runs the command of this process and returns its exit code."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    from compilediag.cli import main as run_command

    code = run_command()
    gc.freeze()  # the collection at the end of the process then has nothing to look at
    return code


if __name__ == "__main__":
    sys.exit(main())
