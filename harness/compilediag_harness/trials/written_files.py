"""Files that Python code of the program writes below the folder it starts in: the text in each at
the end, as lines that were printed. Of a file that is no text it is noted that it is there."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from typing import Any

from compilediag_harness.base.session import Session, fork_handlers
from compilediag_harness.trials.program_output import MAX_CHARS, MAX_LINES, emit_lines
from compilediag_harness.trials.redirected_writes import RedirectedWrites

MAX_FILES = 1000
CHUNK_BYTES = 1 << 20

_WRITING = os.O_WRONLY | os.O_RDWR


class WrittenFiles:
    """The files that one process writes; made before the program starts."""

    def __init__(self, redirected: RedirectedWrites | None) -> None:
        self._redirected = redirected
        self._folder = "" if redirected is None else redirected.files
        self._top = os.path.join(os.path.realpath(os.getcwd()), "")
        self._files: dict[str, tuple[str, int]] = {}
        """By the user's path: where it is, and where it ended before if it is added to."""
        self._ended = False
        self._fault: Exception | None = None
        """Why a file may be missing: told at the end."""
        fork_handlers.append(self._files.clear)

    def install(self) -> None:
        """Take note of files that are opened from now on. Python has no way to undo it."""
        sys.addaudithook(self._handle_event)

    # Invariant: called in any thread, for much else too; what it raises the program would get.
    def _handle_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename") or self._ended:
            return
        if self._redirected is not None and self._redirected.is_copying:
            return
        if not isinstance(args[0], str | bytes | os.PathLike):  # a descriptor
            return
        try:
            file = os.path.abspath(os.fsdecode(args[0]))  # pyright: ignore[reportUnknownArgumentType]
            path = file.removeprefix(self._folder)
            if event == "os.rename" and path in self._files:
                file = os.path.abspath(os.fsdecode(args[1]))
                _, begin = self._files.pop(path)
                self._files[file.removeprefix(self._folder)] = file, begin
            elif event == "open" and args[2] & _WRITING:
                if len(self._files) >= MAX_FILES and path not in self._files:
                    raise OverflowError(f"more than {MAX_FILES} files are written")
                adds = args[2] & os.O_APPEND and os.path.exists(file)
                self._files.setdefault(path, (file, os.path.getsize(file) if adds else 0))
        except Exception as error:
            self._fault = error

    def finish(self, session: Session) -> None:
        """Emit what is in the files; of all whose names differ in numbers alone in one stream."""
        self._ended = True
        if self._fault is not None:
            session.record_fault("recorder: a written file", self._fault)
        for path, (file, begin) in sorted(self._files.items()):
            name = path.removeprefix(self._top)
            if name == path or re.search(r"(^|/)(\.|__pycache__)", name):  # ours, caches
                continue
            try:
                lines = _read_lines(file, begin)
            except FileNotFoundError:  # it was removed again
                continue
            except OSError as error:
                session.record_fault("recorder: a written file", error)
                continue
            emit_lines(session, f"file {re.sub('[0-9]+', '#', name)}", lines)


def _read_lines(file: str, begin: int) -> list[str]:
    """Read the lines of a file from a place on; what is too much is one line with a digest."""
    with open(file, "rb") as stream:
        stream.seek(begin)
        content = stream.read(MAX_CHARS)
        if b"\0" in content:
            return ["no text: not compared"]
        lines = content.decode("utf-8", "replace").splitlines()
        rest = hashlib.blake2b("\n".join(lines[MAX_LINES:]).encode(), digest_size=16)
        for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
            rest.update(chunk)
        is_longer = stream.tell() > begin + len(content)
    if len(lines) > MAX_LINES or is_longer:
        lines[MAX_LINES:] = [f"and more, with digest {rest.hexdigest()}"]
    return lines
