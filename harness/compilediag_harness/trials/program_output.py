"""Output of the program: whole lines that it writes to the streams it started with, the values that
it saves with `torch.save` and safetensors, and the text in files that its Python code writes.

What is written to `sys.stdout.buffer`, by child processes or by code in C is not seen, and neither
are streams that the program puts in place of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from compilediag_harness.base.hidden_frame import hide_own_frame
from compilediag_harness.base.object_graph import get_class
from compilediag_harness.base.post_import import PostImport
from compilediag_harness.base.session import Session, fork_handlers
from compilediag_harness.redaction import in_process
from compilediag_harness.torch_internals.dynamo_skip import make_stand_in, mark_stand_in
from compilediag_harness.torch_internals.torch_compiles import is_compile_in_progress
from compilediag_harness.torch_internals.torch_names import Remover, get_imported, replace_attribute
from compilediag_harness.trials.redirected_writes import RedirectedWrites
from compilediag_harness.trials.sampled_values import (
    ValueSampler,
    compute_digest,
    iterate_leaves,
    iterate_state,
)
from compilediag_harness.wire import LinesPrinted, ValuesSaved, clip

BATCH = 500
"""Lines of one record."""

MAX_LINES, MAX_CHARS = 50_000, 8 << 20
"""Of one stream: of what is written after them there is one digest."""

MAX_LINE = 8192
"""Characters of one line that are written; it has a digest then."""

MAX_SAVED, MAX_IN_RECORD, MAX_ELEMENTS = 20_000, 512, 16
"""Values of one file, of one record, and elements of one value."""


class PrintedLines:
    """Lines written to one of the streams that the process started with."""

    def __init__(self, name: str, stream: Any) -> None:
        self._name, self._stream = name, stream
        self._session: Session | None = None
        self._batch = BATCH
        self._lines_left, self._chars_left = MAX_LINES, MAX_CHARS
        self._write: Any = None
        """Ours, in place of the stream's."""
        self.uninstall: Remover = lambda: None
        self._forget()

    def _handle_fork(self) -> None:
        """Forget what is not emitted, which is the parent's. A fork may end without notice: each of
        its lines is emitted at once."""
        self._batch = 1
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler may print
        self._begun = ""
        """The line in progress."""
        self._lines: list[str] = []
        self._rest, self._further = hashlib.blake2b(digest_size=16), 0
        """Digest and number of the lines that are too many."""

    def install(self) -> None:
        """Take note of what is written from now on; nothing else of the stream changes."""
        original, add = self._stream.write, self._add

        def write(text: str, /) -> Any:
            with hide_own_frame:
                result = original(text)
            add(text)
            return result

        # Dynamo skips functions of this file as it does the stream's own: it traces neither.
        write.__code__ = write.__code__.replace(co_filename=threading.__file__, co_name="write")
        # `print` and `writelines` look `write` up on the object.
        self._stream.write = self._write = write
        fork_handlers.append(self._handle_fork)

        def restore() -> None:
            if self._stream.write is write:
                del self._stream.write
            fork_handlers.remove(self._handle_fork)

        self.uninstall = restore

    def attach(self, session: Session, torch: Any) -> None:
        """Emit what was written so far, and from now on."""
        self._session = session
        if self._write is not None:
            mark_stand_in(self._write, torch)

    def _add(self, text: str) -> None:
        try:
            with self._lock:
                *lines, begun = (self._begun + text).split("\n")
                for line in lines:
                    self._add_line(_settle(line))
                # Of a line that is written over there is its newest text alone.
                self._begun = _settle(begun) + "\r" * begun.endswith("\r")
                if len(self._begun) > MAX_CHARS:
                    self._add_line(self._begun)
                    self._begun = ""
                if len(self._lines) >= self._batch and self._session is not None:
                    self._emit(self._session)
        except Exception as error:
            if self._session is not None:
                self._session.record_fault("recorder: a printed line", error)

    def _add_line(self, line: str) -> None:
        self._lines_left -= 1
        self._chars_left -= len(line)
        if self._lines_left >= 0 and self._chars_left >= 0:
            self._lines.append(line)
        else:
            self._further += 1
            self._rest.update(f"{line}\n".encode("utf-8", "replace"))

    def _emit(self, session: Session) -> None:
        lines, self._lines = self._lines, []
        emit_lines(session, self._name, lines)

    def finish(self) -> None:
        """Emit the lines that wait, the one in progress, and the digest of those too many."""
        with self._lock:
            if self._session is None:
                return
            if self._begun:
                self._add_line(_settle(self._begun))
                self._begun = ""
            if self._further:
                digest = self._rest.hexdigest()
                self._lines.append(f"{self._further} more lines, with digest {digest}")
            if self._lines:
                self._emit(self._session)
            self._further = 0


def emit_lines(session: Session, name: str, lines: Sequence[str]) -> None:
    """Emit lines of a stream, without secrets."""
    for start in range(0, len(lines), BATCH):
        part = lines[start : start + BATCH]
        written = [clip(in_process.redact_text(line[:MAX_LINE]), MAX_LINE) for line in part]
        digests = tuple(
            "" if line == text else compute_digest(line.encode("utf-8", "replace"))
            for line, text in zip(part, written, strict=True)
        )
        kept = digests if any(digests) else ()
        session.emit(LinesPrinted(session.now(), name, tuple(written), kept))


def _settle(line: str) -> str:
    """Settle a line as it stands on a terminal in the end: carriage returns write over it."""
    return line.rstrip("\r").rpartition("\r")[2]


def _iterate_saved(value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over (path, leaf) of what is saved, of whole modules too."""
    torch: Any = get_imported("torch")
    for path, leaf in iterate_leaves("", value):
        if issubclass(get_class(leaf), torch.nn.Module):
            yield from iterate_state(torch, leaf, path)
        else:
            yield path, leaf


class ProgramOutput:
    """Everything that one process writes; made before the program starts."""

    def __init__(self) -> None:
        self._streams = [
            PrintedLines(name, stream)
            for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr))
            if hasattr(stream, "__dict__")
        ]
        self._session: Session | None = None
        self._reader: ValueSampler | None = None
        self._undo = contextlib.ExitStack()
        self.uninstall = self._undo.close
        """Watch nothing any more."""

    def install(self, imports: PostImport) -> None:
        """Watch the streams, and safetensors once it is imported."""
        for stream in self._streams:
            stream.install()
            self._undo.callback(stream.uninstall)
        imports.run_after_import("safetensors.torch", self._watch_safetensors)

    def attach(self, session: Session, torch: Any) -> None:
        """Emit what was written so far, and from now on; torch was imported."""
        self._session, self._reader = session, ValueSampler(torch)
        for stream in self._streams:
            stream.attach(session, torch)
        for owner in (torch, torch.serialization):
            self._watch(owner, "save", "torch.save", ("obj", "f"))

    def finish(self) -> None:
        """Emit what is held at the end."""
        for stream in self._streams:
            stream.finish()

    def _watch_safetensors(self, module: Any) -> None:
        self._watch(module, "save_file", "safetensors", ("tensors", "filename"))
        self._watch(module, "save", "safetensors", ("tensors", ""))

    def _watch(self, owner: Any, name: str, writer: str, names: tuple[str, str]) -> None:
        original = getattr(owner, name, None)
        if original is None:
            return
        record: Callable[..., None] = self._record_saved

        def save(*args: Any, **kwargs: Any) -> Any:
            with hide_own_frame:
                result = original(*args, **kwargs)
            record(writer, names, args, kwargs)
            return result

        stand_in = make_stand_in(original, save, sys.modules.get("torch"))
        self._undo.callback(replace_attribute(owner, name, stand_in))

    def _record_saved(
        self, writer: str, names: tuple[str, str], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        session, reader = self._session, self._reader
        if session is None or reader is None or is_compile_in_progress():
            return
        with session.catch_faults("recorder: saved values"):
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            target = given.get(names[1])
            is_path = isinstance(target, (str, os.PathLike))
            file = os.path.basename(str(target)) if is_path else ""  # pyright: ignore[reportUnknownArgumentType]
            leaves = _iterate_saved(given.get(names[0]))
            values, complete = reader.read_leaves(leaves, MAX_SAVED, MAX_ELEMENTS)
            for start in range(0, max(len(values), 1), MAX_IN_RECORD):
                part = values[start : start + MAX_IN_RECORD]
                session.emit(ValuesSaved(session.now(), writer, file, part, complete))


# --- files ----------------------------------------------------------------------------------------

MAX_FILES = 1000
CHUNK_BYTES = 1 << 20

_WRITING = os.O_WRONLY | os.O_RDWR


class WrittenFiles:
    """The files that Python code of one process writes below the folder it starts in; made before
    the program starts. The text in each at the end is lines that were printed; of a file that is no
    text it is noted that it is there."""

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
