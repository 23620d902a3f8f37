"""The user's files around an execution: what still reached them is undone afterwards, and told.

Writes are redirected inside the process (`trials/redirected_writes.py`). What a library in C or
another program wrote is found here by time and size: what it replaced is put back from a copy, and
what it left goes to the folder of the proof, so that nothing is lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from types import TracebackType

from compilediag.receipt.locate import RUNS_FOLDER

MAX_FILES = 200_000
"""Files that are looked after below one folder."""
MAX_COPIED_BYTES = 1 << 30

_APART = {".git", RUNS_FOLDER, "__pycache__", ".pytest_cache", "node_modules", "site-packages"}


def iterate_files(root: str, *, folders: bool = False) -> Iterator[str]:
    """Iterate over the plain files below a folder, at most `MAX_FILES`; not those of git, of ours,
    or of an environment with packages. `folders`: also over its folders, with "/" behind each."""
    count = 0
    for folder, below, names in os.walk(root):
        if "pyvenv.cfg" in names:
            below.clear()
            continue
        below[:] = sorted(name for name in below if name not in _APART)
        if folders:
            yield os.path.join(folder, "")
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                count += 1
                if count > MAX_FILES:
                    return
                yield path


def _move(path: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.move(path, target)


def _look_at_others(root: str, began: float) -> tuple[bool, set[str]]:
    """Look at other programs: whether one in Python works in a folder or below, and which files
    those of before `began` hold open to write, as the log that our own output goes to."""
    import psutil

    me, at_work, written = psutil.Process(), False, set[str]()
    ours = {process.pid for process in (me, *me.parents(), *me.children(recursive=True))}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            inside = os.path.join(process.cwd(), "").startswith(os.path.join(root, ""))
            if inside and process.pid not in ours and "python" in os.path.basename(process.exe()):
                at_work = True
            if process.create_time() < began:
                opened = process.open_files()
                written |= {file.path for file in opened if getattr(file, "mode", "r") != "r"}
    return at_work, written


class UserFiles:
    """The files below a folder, for the time of a block. `copies`: a new folder for what is copied
    before, `left`: one for what the program left there."""

    def __init__(self, root: str, copies: str, left: str) -> None:
        self._root, self._copies, self._left = root, copies, left
        self._before, self._began = dict[str, tuple[int, int]](), 0.0
        self.changed: list[str] = []
        """Files that the program wrote all the same, for a sentence."""
        self.shared = False
        """They may be those of another program, and stayed; what they were is in `left`."""

    def __enter__(self) -> UserFiles:
        self._began, self._before = time.time(), self._look()
        room = min(MAX_COPIED_BYTES, shutil.disk_usage(self._root).free // 2)
        for path in sorted(self._before, key=lambda path: -self._before[path][0]):
            size = self._before[path][1]
            if not path.endswith(".py") and size <= room:
                room -= size
                self._copy(path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        """Put back what was changed or removed since, and move away what is new. Sources are the
        user's to edit meanwhile, and stay; so does what an earlier program still writes, and all
        where another program is at work."""
        now = self._look()
        changed = dict(self._before.items() ^ now.items())
        others = _look_at_others(self._root, self._began) if changed else (False, set[str]())
        for path in sorted(changed.keys() - others[1]):
            if path.endswith(".py"):
                continue
            name = os.path.relpath(path, self._root)
            copy = os.path.join(self._copies, name)
            lost = path in self._before and not os.path.exists(copy)
            self.shared = others[0]
            try:
                if path in now and not lost and not self.shared:
                    _move(path, os.path.join(self._left, name))
                if os.path.exists(copy):
                    _move(copy, os.path.join(self._left, name) if self.shared else path)
            except OSError as problem:
                name = f"{name} ({problem.strerror}: the copy {copy} is as it was)"
            self.changed.append(f"{name} (too large to be put back)" if lost else name)
        if not any(self._copies in name for name in self.changed):
            shutil.rmtree(self._copies, ignore_errors=True)

    def _look(self) -> dict[str, tuple[int, int]]:
        seen: dict[str, tuple[int, int]] = {}
        for path in iterate_files(self._root):
            with contextlib.suppress(OSError):
                status = os.stat(path)
                seen[path] = (status.st_mtime_ns, status.st_size)
        return seen

    def _copy(self, path: str) -> None:
        target = os.path.join(self._copies, os.path.relpath(path, self._root))
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy2(path, target)
        except OSError:  # a part of a file is no copy of it
            with contextlib.suppress(OSError):
                os.unlink(target)
