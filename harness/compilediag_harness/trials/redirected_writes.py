"""Redirected writes: a file that the program writes, makes, renames or removes is one of a folder
of the trial, which it reads back; the user's own stays as it is.

Python's functions, `torch.save`, safetensors and sqlite3 are redirected. What a library in C or
another program writes is not: the outside looks at the files afterwards.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import pathlib
import shutil
import stat
from collections.abc import Callable, Generator
from typing import Any

from compilediag_harness.base.post_import import PostImport
from compilediag_harness.wire import WriteProtection

READ_FILES = "read-files.txt"
"""File of the folder: the files in `WriteProtection.recent` that the program read."""

_SEEN, _READ, _NEW, _ADDED, _CHANGED, _MADE = "s", "r", "w", "a", "+", "x"
"""What is done to a file: looked for, read, written anew, added to, read and changed, made where
none is."""

_FUNCTIONS = {
    **dict.fromkeys(("stat", "lstat", "access", "readlink"), _SEEN),
    **dict.fromkeys(("truncate", "utime", "chmod"), _ADDED),
    "mkdir": _MADE,
}
_LIBRARIES = (
    ("torch", "save", 1, "f", _NEW),
    ("torch.serialization", "save", 1, "f", _NEW),
    ("torch", "load", 0, "f", _READ),
    ("safetensors", "serialize_file", 1, "filename", _NEW),
    ("safetensors", "safe_open", 0, "filename", _READ),
    ("sqlite3", "connect", 0, "database", _CHANGED),
)
"""Module, function, the argument that is a path, and what is done to it."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RedirectedWrites:
    """The files of this process that stand for others."""

    def __init__(self, plan: WriteProtection) -> None:
        self.files = os.path.abspath(os.path.join(plan.folder, "files"))
        """Folder with what is written."""
        self.is_copying = False
        """What is opened now is not opened by the program."""
        self._log = os.path.join(plan.folder, READ_FILES)
        self._tops = {**dict.fromkeys(plan.roots, True), **dict.fromkeys(plan.free, False)}
        self._recent: set[str] = set(plan.recent)
        self._removed: set[str] = set(plan.absent)
        self._plain: dict[str, Any] = dict(vars(os))

    def install(self, imports: PostImport) -> None:
        """Put the functions in place. Never undone: files are redirected until the process ends."""
        for name, kind in _FUNCTIONS.items():
            self._replace(name, self._wrap(self._plain[name], 0, "path", kind))
        for name in ("remove", "unlink", "rmdir"):
            self._replace(name, functools.partial(self._remove, self._plain[name]))
        for name in ("rename", "replace"):
            self._replace(name, functools.partial(self._rename, self._plain[name]))
        self._replace("symlink", self._wrap(self._plain["symlink"], 1, "dst", _MADE))
        self._replace("open", self._open_descriptor)
        self._replace("listdir", self._list_names)
        self._replace("scandir", self._scan)
        plain_open: Any = builtins.open
        python: Any = builtins
        files: Any = io
        trees: Any = shutil

        @functools.wraps(plain_open)
        def open_mapped(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            kind = next((kind for kind in "wx+a" if kind in mode), _READ)
            return plain_open(self._map(file, kind), mode, *args, **kwargs)

        python.open = files.open = open_mapped
        remove_tree = functools.partial(self._remove, shutil.rmtree)
        trees.rmtree = functools.update_wrapper(remove_tree, shutil.rmtree)
        for module, name, index, argument, kind in _LIBRARIES:
            wrap = functools.partial(self._wrap_in, name, index, argument, kind)
            imports.run_after_import(module, wrap)

    # --- where a path leads ----------------------------------------------------------------------

    def _map(self, path: Any, kind: str) -> Any:
        """Map a path to the one that stands for it; where it was removed, to one with nothing."""
        place = self._find_place(path)
        if place is None:
            return path
        other = self.files + place
        gone = self._is_removed(place)
        if kind != _NEW:
            looks = kind in (_SEEN, _READ)
            if self._has_file(other) or (gone and looks):
                return other
            if kind not in (_SEEN, _ADDED) and not gone:
                self._note_read(place)
            if looks or (kind == _MADE and not gone and self._has_file(place)):
                return path
        mode = 0
        with contextlib.suppress(OSError):
            mode = self._plain["stat"](place).st_mode
        if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return path  # a pipe, a device
        folder = os.path.dirname(place)
        if self._has_file(self._map(folder, _SEEN)):  # else it fails as it would
            os.makedirs(self.files + folder, exist_ok=True)
        if kind not in (_ADDED, _CHANGED) or gone:
            return other
        if stat.S_ISDIR(mode):
            os.makedirs(other, exist_ok=True)
        elif mode:
            with self._mark_copying():
                shutil.copy2(place, other)
        return other

    def _find_place(self, path: Any) -> str | None:
        """Find the whole path of a file that is protected; None for others and descriptors."""
        if not isinstance(path, str | bytes | os.PathLike) or path == ":memory:":
            return None
        place = os.path.abspath(os.fsdecode(path))  # pyright: ignore[reportUnknownArgumentType]
        above = [top for top in self._tops if f"{place}/".startswith(f"{top}/")]
        protected = not above or self._tops[max(above, key=len)]
        return place if protected and "__pycache__" not in place else None

    @contextlib.contextmanager
    def _mark_copying(self) -> Generator[None]:
        self.is_copying = True
        try:
            yield
        finally:
            self.is_copying = False

    def _note_read(self, place: str) -> None:
        if place in self._recent and not self.is_copying:
            self._recent.discard(place)
            log = self._plain["open"](self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(log, os.fsencode(place) + b"\n")
            os.close(log)

    def _has_file(self, path: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            self._plain["lstat"](path)
            return True
        return False

    def _is_removed(self, place: str) -> bool:
        while place not in self._removed and place != os.path.dirname(place):
            place = os.path.dirname(place)
        return place in self._removed

    # --- in place of functions -------------------------------------------------------------------

    def _replace(self, name: str, function: Callable[..., Any]) -> None:
        plain, module = self._plain[name], os

        @functools.wraps(plain)
        def call_replaced(*args: Any, **kwargs: Any) -> Any:
            # Beside a descriptor a path has another meaning.
            beside = any(kwargs.get(f"{part}dir_fd") is not None for part in ("", "src_", "dst_"))
            return (plain if beside else function)(*args, **kwargs)

        setattr(module, name, call_replaced)
        accessor = getattr(pathlib, "_normal_accessor", None)  # of Python 3.10
        if hasattr(accessor, name):
            setattr(accessor, name, call_replaced)

    def _wrap(self, function: Any, index: int, argument: str, kind: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if argument in kwargs:
                kwargs[argument] = self._map(kwargs[argument], kind)
            elif len(args) > index:
                args = (*args[:index], self._map(args[index], kind), *args[index + 1 :])
            return function(*args, **kwargs)

        return call

    def _wrap_in(self, name: str, index: int, argument: str, kind: str, module: Any) -> None:
        setattr(module, name, self._wrap(getattr(module, name), index, argument, kind))

    def _open_descriptor(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        kept = _CHANGED if flags & os.O_RDWR else _ADDED
        kind = _READ if not flags & _WRITING else _NEW if flags & os.O_TRUNC else kept
        kind = _MADE if flags & os.O_EXCL else kind
        return self._plain["open"](self._map(path, kind), flags, *args, **kwargs)

    def _remove(self, plain: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> None:
        """Remove a file or folder: that of the trial, if there is one, and hide the user's."""
        place, now = self._find_place(path), self._map(path, _SEEN)
        if place is None or now != path:
            plain(now, *args, **kwargs)
        elif not self._has_file(place):
            plain(path, *args, **kwargs)
        if place is not None and self._has_file(place):
            self._removed.add(place)

    def _rename(self, plain: Callable[..., Any], src: Any, dst: Any, **kwargs: Any) -> None:
        place, target = self._find_place(src), self._map(dst, _NEW)
        if place is not None and self._map(src, _READ) == src and os.path.isdir(place):
            with self._mark_copying():
                shutil.copytree(place, self.files + place, symlinks=True)
        plain(self._map(src, _ADDED), target, **kwargs)
        if place is not None and self._has_file(place):
            self._removed.add(place)

    def _list_names(self, path: Any = ".") -> list[Any]:
        return [entry.name for entry in self._scan(path)]

    def _scan(self, path: Any = ".") -> Any:
        """List the entries of a folder: the user's, and in their place those of the trial."""
        place = self._find_place(path)
        other = "" if place is None else self.files + place
        if place is None or not (self._has_file(other) or self._removed):
            return self._plain["scandir"](path)
        entries: dict[str, Any] = {}
        for folder in (path, other):
            if folder is path and self._is_removed(place):
                continue
            with contextlib.suppress(FileNotFoundError), self._plain["scandir"](folder) as found:
                entries.update((os.fsdecode(entry.name), entry) for entry in found)
        if not entries and not self._has_file(self._map(path, _SEEN)):
            return self._plain["scandir"](other)  # raises
        for name in list(entries):
            if os.path.join(place, name) in self._removed and not self._has_file(f"{other}/{name}"):
                del entries[name]
        return _Entries(entries)


class _Entries(contextlib.ExitStack):
    """An iterator of a folder's entries, as `os.scandir` gives one."""

    def __init__(self, entries: dict[str, Any]) -> None:
        super().__init__()
        self._entries = iter(entries.values())

    def __iter__(self) -> Any:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)
