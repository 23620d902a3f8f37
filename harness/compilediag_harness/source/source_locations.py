"""Which lines belong to the user: full paths, and the innermost frame that is not torch's own."""

from __future__ import annotations

import functools
import linecache
import os
import re
import sys
import sysconfig
import types
from collections.abc import Iterable
from typing import Any

from compilediag_harness.wire import Location, clip

# Behind shape conditions without a line of the user's the place stands in brackets.
_COMMENT = re.compile(
    r"#\s\(?(?P<file>[^#\n]{1,1024}?):(?P<line>\d{1,9}) in (?P<function>[^\s()]{1,256})"
)

_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")

MAX_IMPORTED_CHARS = 256 * 1024
"""Of the paths of `imported_files` together: a quarter of what a line of a journal may hold."""


@functools.lru_cache(maxsize=1)
def _library_prefixes() -> tuple[str, ...]:
    """Folders of torch and of the standard library."""
    torch = sys.modules.get("torch")
    found: list[str] = []
    if torch is not None and torch.__file__:
        found.append(os.path.dirname(os.path.abspath(torch.__file__)))
    for name in ("stdlib", "platstdlib"):
        path = sysconfig.get_paths().get(name)
        if path:
            found.append(path)
    return tuple(os.path.join(path, "") for path in found)


@functools.lru_cache(maxsize=4096)
def is_library(file: str) -> bool:
    """Whether a file belongs to torch or the standard library (site-packages do not count)."""
    if file.startswith("<") and not file.startswith("<stdin>"):
        return file.startswith("<frozen") or "eval_with_key" in file
    if "site-packages" in file or "dist-packages" in file:
        return file.startswith(_library_prefixes()[:1])
    return file.startswith(_library_prefixes())


def is_torch(file: str) -> bool:
    """Whether a file belongs to torch, which must be imported."""
    return file.startswith(_library_prefixes()[:1])


def is_installed(file: str) -> bool:
    """Whether a file belongs to an installed package."""
    return bool(_INSTALLED.search(file))


def imported_files() -> tuple[str, ...] | None:
    """Files of the modules that were imported, sorted: those of torch, the standard library and
    installed packages left out. None where they are too many for one record."""
    found: set[str] = set()
    modules: list[object] = list(sys.modules.values())
    for module in modules:
        if not isinstance(module, types.ModuleType):  # a program may put anything there
            continue
        # A module that is loaded on its first use must not be loaded by our look at it.
        file = object.__getattribute__(module, "__dict__").get("__file__")
        if isinstance(file, str) and not is_library(file) and not is_installed(file):
            found.add(file)
    if sum(map(len, found)) > MAX_IMPORTED_CHARS:
        return None
    return tuple(sorted(found))


def location_of(code: Any) -> Location:
    """Where a code object begins."""
    return Location(code.co_filename, code.co_firstlineno, code.co_name)


def definition_of(function: Any) -> Location:
    """Where a function, or a code object, is defined, under its qualified name."""
    code = getattr(function, "__code__", function)
    if not hasattr(code, "co_filename"):
        return Location("", 0, type(function).__name__)
    # Code objects have a qualified name from Python 3.11 on.
    name = getattr(code, "co_qualname", None) or getattr(function, "__qualname__", code.co_name)
    return Location(code.co_filename, code.co_firstlineno, str(name))


def innermost_user_line(stack: Iterable[Any] | None) -> Location | None:
    """The innermost frame of a traceback that is neither torch nor standard library; the innermost
    of all when none is."""
    frames = list(stack or ())
    if not frames:
        return None
    users = [frame for frame in frames if not is_library(frame.filename)]
    frame = (users or frames)[-1]
    return Location(frame.filename, frame.lineno or 0, frame.name)


def location_in_comment(text: str) -> Location | None:
    """The `# file:line in function` that ends a guard text of torch 2.9 and later."""
    comments = list(_COMMENT.finditer(text))
    if not comments:
        return None
    found = comments[-1]
    return Location(found["file"].strip(), int(found["line"]), found["function"])


def text_of(location: Location) -> str | None:
    """The source text of a line, without its indentation; None where there is none."""
    text = linecache.getline(location.file, location.line).strip()
    return clip(text, 500) if text else None


def with_full_path(location: Location, known: Iterable[str]) -> Location:
    """torch shortens paths from the left ("ork/model.py"): the full path, when exactly one of the
    known files ends so."""
    if os.path.isabs(location.file) or location.file.startswith("<"):
        return location
    matches = {file for file in known if file.endswith(location.file)}
    if not matches:
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        loaded = [os.path.abspath(file) for file in files if file]
        matches = {file for file in loaded if file.endswith(location.file)}
    if len(matches) != 1:
        return location
    return Location(matches.pop(), location.line, location.function)
