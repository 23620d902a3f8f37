"""Replaced sources: another text in place of what a source file holds, which is not touched.

Modules (also `python -m`) get it from their loader, the main script (`python train.py`) from an
importer of the script's own path, a script that `runpy` runs by its path, as `multiprocessing`
does in spawned children, from `io.open_code`. `linecache`, and with it `inspect`, tracebacks and
torch, has the same text. No bytecode is cached.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import linecache
import os
import sys
import tempfile
import tokenize
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any

from compilediag_harness.trials.plan import Notes
from compilediag_harness.wire import SourceChange

OTHER_FILE = "the file is not the one that the text was made from"


class ReplacedSources:
    """The files that have another text in this process."""

    def __init__(self, changes: Iterable[SourceChange], notes: Notes) -> None:
        self._notes = notes
        self._changes: dict[str, SourceChange] = {}
        for change in changes:
            try:
                with open(change.file, "rb") as stream:
                    digest = hashlib.sha256(stream.read()).hexdigest()
            except OSError as error:
                notes.record_change(change.label, f"the file cannot be read: {error}")
                continue
            if digest == change.sha256:
                self._changes[os.path.realpath(change.file)] = change
            else:
                notes.record_change(change.label, OTHER_FILE)
        # A link may have another name than its file, hardly another ending.
        self._endings = tuple({os.path.splitext(path)[1] for path in self._changes})

    def install(self) -> None:
        """Put the texts in place, for what is read from now on. Never undone: code of them runs
        until the process ends."""
        if self._changes:
            _replace_in_loaders(self)
            _replace_in_run_path(self)
            _replace_in_linecache(self)
            _replace_in_last_traceback(self)
            sys.path_hooks.insert(0, self._make_main_script)

    def find_text(self, path: object) -> str | None:
        """Find the other text of a file; None for a file that has its own."""
        if not isinstance(path, str) or not path.endswith(self._endings):
            return None
        change = self._changes.get(_resolve_path(path))
        return None if change is None else change.text

    def note_run(self, path: str) -> None:
        """Note that the text of a file becomes code of the program."""
        self._notes.record_change(self._changes[_resolve_path(path)].label)

    def _make_main_script(self, path: str) -> _MainScript:
        """Python looks for an importer of the script's path before it opens the file itself: what
        has one, as a folder with `__main__.py` does, is run by it."""
        # Called by Python's own start, below no other function. Who looks for importers later
        # opens the file by `io.open_code`.
        if sys._getframe().f_back is not None or self.find_text(path) is None:  # pyright: ignore[reportPrivateUsage]
            raise ImportError(path)
        return _MainScript("__main__", path)


@functools.lru_cache(maxsize=16_384)
def _resolve_path(path: str) -> str:
    return os.path.realpath(path)


def _encode_text(text: str) -> bytes:
    """Encode a text as its file would be: as its first lines declare, else UTF-8."""
    plain = text.encode("utf-8", "surrogatepass")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(plain).readline)
        return text.encode(encoding)
    except (SyntaxError, UnicodeError):
        return plain


# --- modules -------------------------------------------------------------------------------------


def _replace_in_loaders(sources: ReplacedSources) -> None:
    loader: Any = SourceFileLoader
    get_code, get_data = loader.get_code, loader.get_data

    def load_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        text = sources.find_text(path)
        if text is None:
            return get_code(self, fullname)
        sources.note_run(path)
        return self.source_to_code(text, path)

    def load_data(self: Any, path: Any) -> bytes:
        text = sources.find_text(path)
        return get_data(self, path) if text is None else _encode_text(text)

    # `get_code` is replaced because the other one would find bytecode of the file in its cache.
    loader.get_code, loader.get_data = load_code, load_data


def _replace_in_run_path(sources: ReplacedSources) -> None:
    module: Any = io
    open_code = module.open_code

    def open_replaced(path: str) -> Any:
        text = sources.find_text(path)
        if text is None:
            return open_code(path)
        sources.note_run(path)
        return io.BytesIO(_encode_text(text))

    module.open_code = open_replaced


def _replace_in_linecache(sources: ReplacedSources) -> None:
    module: Any = linecache
    updatecache = module.updatecache

    def update(filename: str, module_globals: Any = None) -> list[str]:
        text = sources.find_text(filename)
        if text is None:
            return updatecache(filename, module_globals)
        lines = io.StringIO(text, newline=None).readlines()
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        # Without a time of change it is not held against the file.
        module.cache[filename] = (len(text), None, lines, filename)
        return lines

    # Invariant: `getlines` looks it up by its name in the module.
    module.updatecache = update


def _replace_in_last_traceback(sources: ReplacedSources) -> None:
    """The traceback that ends a process is printed by Python 3.12 and earlier itself: it calls
    `io.open`, below no other function. The program's own calls, and `open`, have the file."""
    module: Any = io
    plain_open = module.open

    @functools.wraps(plain_open)
    def open_replaced(file: Any, *args: Any, **kwargs: Any) -> Any:
        if sys._getframe().f_back is None:  # pyright: ignore[reportPrivateUsage]
            text = sources.find_text(file)
            if text is not None:
                stream = tempfile.TemporaryFile()  # noqa: SIM115 - it reads from the descriptor
                stream.write(_encode_text(text))
                stream.seek(0)
                return stream
        return plain_open(file, *args, **kwargs)

    module.open = open_replaced


# --- the main script -----------------------------------------------------------------------------


class _MainScript(SourceFileLoader):
    """Finds and loads nothing but `__main__`, which is the script."""

    def find_spec(self, fullname: str, target: object = None) -> ModuleSpec | None:
        """Find the script, as `runpy` finds the `__main__` of a folder."""
        if fullname != "__main__":
            return None
        return importlib.util.spec_from_file_location("__main__", self.path, loader=self)

    def get_code(self, fullname: str) -> Any:
        """Get the script's code; called by `runpy` right before it runs it.

        Leaves the names of `__main__` and `sys.path` as Python sets them for a script: with a spec
        of `__main__`, children of `multiprocessing` would not import it.
        """
        path = self.path
        if sys.path and sys.path[0] == path:
            folder = os.path.dirname(os.path.realpath(path))
            sys.path[:1] = [] if getattr(sys.flags, "safe_path", False) else [folder]
        sys.path_importer_cache[path] = None
        # For one call: what the program runs by `runpy` later runs as in any other process.
        runpy: Any = sys.modules["runpy"]
        run_code = runpy._run_code  # of Python 3.10 to 3.13

        def run(code: Any, run_globals: dict[str, Any], *_: object) -> dict[str, Any]:
            runpy._run_code = run_code
            run_globals.update(
                __name__="__main__",
                __file__=path,
                __cached__=None,
                __doc__=None,
                __loader__=SourceFileLoader("__main__", path),
                __package__=None,
                __spec__=None,
            )
            exec(code, run_globals)  # noqa: S102 - the user's own program
            return run_globals

        runpy._run_code = run
        return super().get_code(fullname)
