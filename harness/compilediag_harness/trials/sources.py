"""Replaced sources: another state of the program's source files than that on disk, which is not
touched: other texts, new files, absent files. And the digest of each text that became code.

Modules (also `python -m`) get it from their loader, the main script (`python train.py`) from an
importer of the script's own path, a script that `runpy` runs by its path, as `multiprocessing`
does in spawned children, from `io.open_code`, tests and `conftest.py` from pytest's own loader.
`linecache`, and with it `inspect`, tracebacks and torch, has the same text. No bytecode is cached.

Only Python's import system sees new and absent files. Who lists folders or opens files, such as
`pkgutil.iter_modules`, `exec(open(path).read())` and pytest's search for tests, sees those on disk.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import functools
import hashlib
import importlib.util
import io
import linecache
import os
import sys
import tempfile
import tokenize
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

from compilediag_harness.base.hidden_frame import hide_own_frame
from compilediag_harness.base.post_import import PostImport
from compilediag_harness.base.session import Session
from compilediag_harness.blame import source_locations
from compilediag_harness.trials.plan import Notes
from compilediag_harness.wire import SourceChange, SourcesLoaded, TrialPlan

OTHER_FILE = "the file is not the one that the text was made from"

_HERE = os.path.dirname(__file__)
_NOTHING = os.path.join(__file__, "nothing")
"""A path at which there cannot be anything."""
_FILES_IN_EVENT = 1000


class ReplacedSources:
    """The source files that are other ones in this process, and those that became code."""

    def __init__(self, plan: TrialPlan, notes: Notes) -> None:
        self._notes = notes
        self._changes: dict[str, SourceChange] = {}
        self._stand_ins: dict[str, str] = {}
        """Of each new file or folder one of the same kind; `_NOTHING` of absent ones."""
        self._recorded = plan.recording is not None
        self._loaded: dict[tuple[str, str], None] = {}
        """(file, SHA-256) of each text that became code, in their order."""
        for change in plan.sources:
            path = os.path.realpath(change.file)
            try:
                digest = _read_digest(path)
            except OSError as error:
                notes.record_change(change.label, f"the file cannot be read: {error}")
                continue
            if digest == change.sha256:
                self._changes[path] = change
                self._add(path)
            else:
                notes.record_change(change.label, OTHER_FILE)
        for file in plan.absent:
            self._remove(os.path.realpath(file))
        # A link may have another name than its file, hardly another ending.
        self._endings = tuple({os.path.splitext(path)[1] for path in self._changes})
        self._names = {os.path.basename(path) for path in self._stand_ins}

    def _add(self, path: str) -> None:
        """Add a file, and the folders above it, as far as they are new."""
        stand_in = __file__
        while not os.path.lexists(path):
            self._stand_ins[path] = stand_in
            path, stand_in = os.path.dirname(path), _HERE

    def _remove(self, path: str) -> None:
        """Remove a file, and its folder where nothing else is in it: git has none then."""
        self._stand_ins[path] = _NOTHING
        folder = os.path.dirname(path)
        with contextlib.suppress(OSError):
            names = {*os.listdir(folder), *self.list_new_names(folder)} - {"__pycache__"}
            paths = [os.path.join(folder, name) for name in names]
            if all(self._stand_ins.get(path) == _NOTHING for path in paths):
                self._remove(folder)

    def install(self, imports: PostImport) -> None:
        """Put the texts in place, for what is read from now on. Never undone: code of them runs
        until the process ends."""
        if not (self._changes or self._stand_ins or self._recorded):
            return
        _replace_in_loaders(self)
        _replace_in_run_path(self)
        sys.path_hooks.insert(0, self._make_main_script)
        if self._changes:
            _replace_in_linecache(self)
            _replace_in_last_traceback(self)
        if self._stand_ins:
            _replace_in_finders(self)
        imports.run_after_import(_REWRITING, functools.partial(_replace_in_pytest, self))

    def find_text(self, path: object) -> str | None:
        """Find the other text of a file; None for a file that has its own."""
        if not isinstance(path, str) or not path.endswith(self._endings):
            return None
        change = self._changes.get(_resolve_path(path))
        return None if change is None else change.text

    def read_code(self, path: str) -> bytes | None:
        """Read the other content of a file that becomes code; None for a file that has its own.

        Raises:
            FileNotFoundError: this state has no such file.
        """
        text = self.find_text(path)
        if text is None:
            if self.find_on_disk(path) == _NOTHING:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.note_file(path)
            return None
        content, real = _encode_text(text), _resolve_path(path)
        self._notes.record_change(self._changes[real].label)
        self._loaded[real, hashlib.sha256(content).hexdigest()] = None
        return content

    def note_file(self, path: str) -> None:
        """Note what a file holds that becomes code as it is."""
        # Installed files are left out at once: of their thousands none is the program's own.
        if self._recorded and not source_locations.is_installed(real := _resolve_path(path)):
            with contextlib.suppress(OSError):
                self._loaded[real, _read_digest(real)] = None

    def find_on_disk(self, path: str) -> str:
        """Find what is on disk as the file or folder is in this state: mostly itself, another one
        for a new one, nothing for one that is absent."""
        if os.path.basename(path) not in self._names:
            return path
        return self._stand_ins.get(_resolve_path(path), path)

    def list_new_names(self, folder: str) -> set[str]:
        """List the new files and folders in a folder."""
        new = (path for path, stand_in in self._stand_ins.items() if stand_in != _NOTHING)
        return {os.path.basename(path) for path in new if os.path.dirname(path) == folder}

    def emit_loaded(self, session: Session) -> None:
        """Emit the program's own files that became code so far, if that is recorded."""
        if not self._recorded:
            return
        loaded = [(file, sha) for file, sha in self._loaded if source_locations.is_own(file)]
        for begin in range(0, len(loaded), _FILES_IN_EVENT):
            files, digests = zip(*loaded[begin : begin + _FILES_IN_EVENT], strict=True)
            session.emit(SourcesLoaded(session.now(), files, digests))

    def _make_main_script(self, path: str) -> _MainScript:
        """Python looks for an importer of the script's path before it opens the file itself: what
        has one, as a folder with `__main__.py` does, is run by it."""
        # Called by Python's own start, below no other function. Who looks for importers later
        # opens the file by `io.open_code`.
        if sys._getframe().f_back is None:  # pyright: ignore[reportPrivateUsage]
            if self.find_text(path) is not None or self.find_on_disk(path) == _NOTHING:
                return _MainScript("__main__", path)
            self.note_file(path)
        raise ImportError(path)


def _read_digest(path: str) -> str:
    """Read the SHA-256 of a file; empty where there is none."""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except FileNotFoundError:
        return ""


def _resolve_path(path: str) -> str:
    # A relative path is another one as soon as the program changes its folder.
    return _resolve_absolute(path if os.path.isabs(path) else os.path.abspath(path))


_resolve_absolute = functools.lru_cache(maxsize=16_384)(os.path.realpath)


def _encode_text(text: str) -> bytes:
    """Encode a text as its file would be: as its first lines declare, else UTF-8."""
    plain = text.encode("utf-8", "surrogatepass")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(plain).readline)
        return plain if encoding == "utf-8-sig" else text.encode(encoding)
    except (SyntaxError, UnicodeError):
        return plain


# --- modules -------------------------------------------------------------------------------------


def _replace_in_loaders(sources: ReplacedSources) -> None:
    loader: Any = SourceFileLoader
    get_code, get_data = loader.get_code, loader.get_data

    def load_code(self: Any, fullname: str) -> Any:
        path = self.get_filename(fullname)
        try:
            content = sources.read_code(path)
        except FileNotFoundError:  # found by a finder of its own, as of an editable install
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname) from None
        if content is None:
            return get_code(self, fullname)
        return self.source_to_code(content, path)

    def load_data(self: Any, path: Any) -> bytes:
        text = sources.find_text(path)
        return get_data(self, path) if text is None else _encode_text(text)

    # `get_code` is replaced because the other one would find bytecode of the file in its cache.
    loader.get_code, loader.get_data = load_code, load_data


def _replace_in_finders(sources: ReplacedSources) -> None:
    finder: Any = FileFinder
    # Invariant: it looks for files and folders by this function alone, and lists a folder only in
    # `_fill_cache` (Python 3.10 to 3.13).
    external: Any = sys.modules[finder.__module__]
    path_stat, fill_cache = external._path_stat, finder._fill_cache

    def stat_path(path: Any) -> os.stat_result:
        return path_stat(sources.find_on_disk(path) if isinstance(path, str) else path)

    def fill(self: Any) -> None:
        fill_cache(self)
        self._path_cache |= sources.list_new_names(_resolve_path(self.path))

    external._path_stat, finder._fill_cache = stat_path, fill
    # Folders that were listed while Python started; not by `importlib`, which imports much more.
    for path, known in list(sys.path_importer_cache.items()):
        if known is None:
            del sys.path_importer_cache[path]
        elif isinstance(known, FileFinder):
            known.invalidate_caches()


def _replace_in_run_path(sources: ReplacedSources) -> None:
    module: Any = io
    open_code = module.open_code

    def open_replaced(path: str) -> Any:
        content = sources.read_code(path)
        return open_code(path) if content is None else io.BytesIO(content)

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


_REWRITING = "_pytest.assertion.rewrite"


def _replace_in_pytest(sources: ReplacedSources, rewriting: Any) -> None:
    """Tests and `conftest.py` are compiled by pytest, which has bytecode of them of its own."""
    hook = rewriting.AssertionRewritingHook
    exec_module = hook.exec_module

    @functools.wraps(exec_module)
    def load_replaced(self: Any, module: Any) -> None:
        path = module.__spec__.origin
        content = sources.read_code(path)
        with hide_own_frame:
            if content is None:
                exec_module(self, module)
                return
            self._rewritten_names[module.__name__] = Path(path)
            tree = ast.parse(content, filename=path)
            rewriting.rewrite_asserts(tree, content, path, self.config)
            code = compile(tree, path, "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102 - the user's own tests

    hook.exec_module = load_replaced


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
        code = super().get_code(fullname)
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
        return code
