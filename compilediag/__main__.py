"""`compilediag` and `python -m compilediag`: the command line, with hardly a garbage collection.

Importing makes tens of thousands of objects that all stay; collecting among them, while they are
made and once more when the interpreter ends, costs 15 of the 80 milliseconds of a short command. A
command lives too briefly, or (`run`) waits too much, for garbage to matter. Taking all modules
apart at the end costs 3 more: the system takes back the memory of a process without that.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import types
import typing

OBJECTS_BETWEEN_COLLECTIONS = 100_000

_EXTENSIONS = "typing_extensions"
_OF_MSGSPEC = ("get_type_hints", "NotRequired", "Required")
"""What msgspec takes from `typing_extensions` where it is there; from 3.11 on `typing` has it."""


def main() -> int:
    """Runs the command of this process and returns its exit code, or ends the process with it."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    _load_extensions_when_needed()
    from compilediag.cli import main as run_command

    code = run_command()
    if _nobody_waits() and _is_written():
        os._exit(code)
    if "duckdb" not in sys.modules:  # it complains of all that is not collected at the end
        gc.freeze()  # the collection at the end of the process then has nothing to look at
    return code


def _load_extensions_when_needed() -> None:
    """Puts a stand-in for `typing_extensions`, whose import costs 4 milliseconds, into this process
    of ours: whoever asks it for more than msgspec does gets the real module's."""
    if sys.version_info < (3, 11) or _EXTENSIONS in sys.modules:
        return
    stand_in = types.ModuleType(_EXTENSIONS)

    def of_module(name: str) -> object:
        if name in _OF_MSGSPEC:
            return getattr(typing, name)
        if name.startswith("__"):  # asked by the import system, not by who wants the module
            raise AttributeError(name)
        if sys.modules.get(_EXTENSIONS) is stand_in:
            del sys.modules[_EXTENSIONS]
        return getattr(importlib.import_module(_EXTENSIONS), name)

    stand_in.__dict__["__getattr__"] = of_module
    sys.modules[_EXTENSIONS] = stand_in


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
