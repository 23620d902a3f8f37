"""The journals and the text log of a run, kept open while the target runs: one that removes or
replaces the directory of its run takes no evidence with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import BinaryIO

from compilediag.errors import CompilediagError
from compilediag.readers.journal import journal_names
from compilediag.readers.storage import names_in, open_regular
from compilediag.receipt.locate import RUNS_FOLDER
from compilediag.runs.run_directory import TEXT_LOG_PREFIX, make_run_dir

LOOK_EVERY_S = 0.5
MAX_FILES = 256


class KeptFiles:
    """The files of one run directory, from the moment they were seen there."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._files: dict[str, BinaryIO] = {}

    def look(self) -> None:
        """Opens the files that are new."""
        names = [*journal_names(self._run_dir)]
        names += [name for name in names_in(self._run_dir) if name.startswith(TEXT_LOG_PREFIX)]
        for name in names:
            if name not in self._files and len(self._files) < MAX_FILES:
                file = open_regular(os.path.join(self._run_dir, name))
                if file is not None:
                    self._files[name] = file

    def close(self) -> None:
        """Lets go of all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    @property
    def in_place(self) -> bool:
        """The directory and every file in it are those that were seen."""
        if not os.path.isdir(self._run_dir):
            return False
        for name, file in self._files.items():
            try:
                there = os.stat(os.path.join(self._run_dir, name), follow_symlinks=False)
            except OSError:
                return False
            if not os.path.samestat(there, os.fstat(file.fileno())):
                return False
        return True

    def rescue(self, name: str, now: float) -> str:
        """Copies the files to a directory, in the place of the lost one where nothing is now, and
        returns its path.

        Raises:
            OSError: there is no place for it.
        """
        folder = self._new_folder(name, now)
        for file_name, file in self._files.items():
            file.seek(0)
            with open(os.path.join(folder, file_name), "wb") as copy:
                shutil.copyfileobj(file, copy)
        return folder

    def _new_folder(self, name: str, now: float) -> str:
        home = os.path.dirname(self._run_dir)
        ours = os.path.basename(home) == RUNS_FOLDER  # made again; no folder of the program is
        with contextlib.suppress(OSError):
            if os.path.isdir(os.path.dirname(home) if ours else home):
                os.makedirs(self._run_dir)
                return self._run_dir
        with contextlib.suppress(OSError, CompilediagError):
            return make_run_dir(None, name, now=now, pid=os.getpid())
        return tempfile.mkdtemp(prefix="compilediag-")
