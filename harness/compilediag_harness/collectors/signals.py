"""Signals of the program: a window of torch.profiler on demand, and a Ctrl-C that torch loses.

SIGUSR1 begins a window, SIGUSR2 ends it: with `compilediag run --profile-on-signal` alone, where
the program has no handlers of its own for the two, they set a flag, and the profiler begins and
ends between steps. Its trace is a file beside the receipt.

A KeyboardInterrupt raised in a Python guard is cleared by the C++ code that called it.
`faulthandler` writes down where the main thread was when SIGINT came. It is certainly lost only
where the action is Python's own, the main thread was inside Dynamo, and a second later it is in the
same calls of the same functions, none of which has a handler that could have caught it.
"""

from __future__ import annotations

import contextlib
import dis
import faulthandler
import gzip
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from types import FrameType
from typing import Any, NamedTuple

from compilediag_harness.base.journal import move_descriptor_up
from compilediag_harness.base.object_graph import iterate_frames
from compilediag_harness.base.session import Session, SessionSink, SessionSinks, fork_handlers
from compilediag_harness.redaction import in_process
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.wire import InterruptLost, ProfileEnded

MAX_STEPS = 20
MAX_S = 60.0
"""A window ends by itself after so many steps, or at the first step after so many seconds."""

MAX_BYTES = 256 << 20
"""A trace that is larger is removed again."""
MAX_WINDOWS = 16
"""Windows of one process; later signals have no effect."""
_PIECE_CHARS = 1 << 20

_armed = _requested = False
"""Whether the signals were taken over; whether the last was the one that begins a window."""


def arm() -> None:
    """Takes the two signals over, in the main thread, if the program has not."""
    global _armed
    if _armed or not hasattr(signal, "SIGUSR1"):
        return
    if threading.current_thread() is not threading.main_thread():
        return
    if any(signal.getsignal(sig) != signal.SIG_DFL for sig in (signal.SIGUSR1, signal.SIGUSR2)):
        return
    _armed = True
    signal.signal(signal.SIGUSR1, _handle_signal)
    signal.signal(signal.SIGUSR2, _handle_signal)
    fork_handlers.append(_handle_fork)


# Invariant: sets one flag. It runs between any two instructions of the program, also in a compile.
def _handle_signal(signum: int, _frame: FrameType | None) -> None:
    global _requested
    _requested = signum == signal.SIGUSR1


class Profiling(SessionSink):
    """The profiler's windows of one session."""

    def __init__(self, session: Session, torch_module: Any, folder: str) -> None:
        super().__init__(session)
        self._torch = torch_module
        self._folder = folder
        self._thread = self._first = self._windows = 0
        self._began = 0.0

    def discard(self) -> None:
        super().discard()
        self._profiler: Any = None  # in a fork the window is the parent's

    def handle_step_end(self, step: int, compiled: bool) -> None:
        if self._profiler is None:
            if _requested:
                self._begin_window(step + 1)
        elif (
            not _requested
            or step + 1 - self._first >= MAX_STEPS
            or time.monotonic() - self._began >= MAX_S
        ):
            self.end_window(step)

    def _begin_window(self, step: int) -> None:
        global _requested
        if self._windows >= MAX_WINDOWS:
            _requested = False
            return
        self._windows += 1
        problem = "the program profiles itself"
        if not torch_api.is_profiler_enabled():
            of_torch = self._torch.profiler
            activities = [of_torch.ProfilerActivity.CPU]
            if torch_api.is_cuda_in_use(self._torch):
                activities.append(of_torch.ProfilerActivity.CUDA)
            profiler = of_torch.profile(activities=activities)
            try:
                profiler.start()
            except Exception as error:
                problem = f"torch.profiler did not start: {error}"
            else:
                self._profiler, self._thread = profiler, threading.get_ident()
                self._first, self._began = step, time.monotonic()
                self.session.watched_until = max(self.session.watched_until, step + MAX_STEPS)
                return
        _requested = False
        self._report_window(step, step, None, problem)

    def end_window(self, step: int) -> None:
        """Ends the window, if there is one; torch lets only the thread that began it do so."""
        global _requested
        profiler = self._profiler
        if profiler is None or threading.get_ident() != self._thread:
            return
        self._profiler, _requested = None, False
        name, problem = f"profile-{os.getpid()}-{self._windows}.json.gz", None
        try:
            profiler.stop()
            os.makedirs(self._folder, exist_ok=True)
            size = _export_trace(profiler, os.path.join(self._folder, name))
            if size > MAX_BYTES:
                problem = f"the trace had {size} bytes and was removed"
        except Exception as error:
            problem = f"the trace could not be written: {error}"
        self._report_window(self._first, step, None if problem else name, problem)

    def finish(self) -> None:
        self.end_window(self.session.step)

    def _report_window(self, first: int, last: int, file: str | None, problem: str | None) -> None:
        self.session.emit(ProfileEnded(self.session.now(), first, last, file, problem))


def _export_trace(profiler: Any, path: str) -> int:
    """Writes the trace without its secrets, which names of blocks may hold, unless it is too large;
    returns its size in bytes."""
    with tempfile.TemporaryDirectory(prefix="compilediag-profile-") as private:
        whole, redacted = os.path.join(private, "whole.json"), os.path.join(private, "kept.json.gz")
        profiler.export_chrome_trace(whole)
        with (
            open(whole, encoding="utf-8", errors="replace") as source,
            gzip.open(redacted, "wt", encoding="utf-8", compresslevel=4) as target,
        ):
            while lines := source.readlines(_PIECE_CHARS):
                target.write(in_process.redact_text("".join(lines)))
        size = os.path.getsize(redacted)
        if size <= MAX_BYTES:
            shutil.move(redacted, path)
    return size


def _make_profiling(session: Session) -> Profiling:
    return Profiling(session, sys.modules["torch"], session.options.profile_dir or "")


sinks = SessionSinks(_make_profiling)
"""Without one the signals stay taken over, without effect."""


def install(session: Session) -> None:
    """Watches the steps of `session`, if the signals were taken over for this process and no other
    session watches them."""
    if _armed and session.options.profile_dir and not sinks.all:
        sinks.install(session)
        session.step_listeners.append(sinks.all[0].handle_step_end)


def _handle_fork() -> None:
    global _requested
    _requested = False


LOOK_EVERY_S = 0.25
LOST_AFTER_S = 1.0
"""Seconds after which a program that is still in its loop has not received the interrupt."""

_ROW = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_HARNESS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAX_DUMP_BYTES = 1 << 16


class StackRow(NamedTuple):
    """A frame in progress; `line` is that of the call it is in."""

    file: str
    function: str
    line: int


class InterruptWatch:
    """Watches one process, whose main thread makes the calls, for a Ctrl-C that torch loses."""

    def __init__(self, session: Session, torch_folder: str) -> None:
        self._session = session
        self._torch = torch_folder + os.sep
        self._next_look = 0.0
        self._read = 0
        self._arrived_in: list[StackRow] = []
        """The user's frames, outermost first; empty where the interrupt came elsewhere."""
        self._lost_at = 0.0
        self._fd = -1
        self._pid = os.getpid()
        if _has_default_sigint() and hasattr(os, "memfd_create"):
            self._fd = move_descriptor_up(os.memfd_create("compilediag-interrupts"))
            # `chain`: Python's own handler still runs. The descriptor must stay open until
            # `unregister`, since the dump is written to its number.
            faulthandler.register(signal.SIGINT, file=self._fd, all_threads=False, chain=True)

    def check_interrupt(self) -> None:
        """Check, in the user's loop, whether an interrupt came and was lost; record it if so."""
        now = time.monotonic()
        if self._fd < 0 or now < self._next_look or os.getpid() != self._pid:
            return
        self._next_look = now + LOOK_EVERY_S
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            size = os.fstat(self._fd).st_size
        except OSError:  # the program closed every descriptor it found
            self.uninstall()
            return
        if size > self._read:
            dump = os.pread(self._fd, MAX_DUMP_BYTES, max(self._read, size - MAX_DUMP_BYTES))
            self._read = size
            self._arrived_in = self._parse_user_rows(dump.decode("ascii", "replace"))
            self._lost_at = now + LOST_AFTER_S
        elif self._arrived_in and now >= self._lost_at:
            self._lost_at = now + LOST_AFTER_S
            loop = self._list_loop_codes()
            if loop:
                self._session.emit_in_step(InterruptLost, now, not any(map(can_catch, loop)))

    def uninstall(self) -> None:
        if self._fd >= 0:
            if _has_default_sigint():  # else the program has put another action in its place
                faulthandler.unregister(signal.SIGINT)
            with contextlib.suppress(OSError):  # the program closed every descriptor it found
                os.close(self._fd)
            self._fd = -1

    def _parse_user_rows(self, dump: str) -> list[StackRow]:
        """The user's frames around a frame of Dynamo in the newest dump."""
        newest = re.split(r"^(?:Current thread|Thread|Stack)\b.*$", dump, flags=re.MULTILINE)[-1]
        rows = [StackRow(m["file"], m["function"], int(m["line"])) for m in _ROW.finditer(newest)]
        dynamo = os.path.join(self._torch, "_dynamo", "")
        inside = [index for index, row in enumerate(rows) if row.file.startswith(dynamo)]
        if not inside or "\n  ..." in newest:
            return []
        return [row for row in reversed(rows[inside[-1] + 1 :]) if self._is_users(row)]

    def _is_users(self, row: StackRow) -> bool:
        return not row.file.startswith((self._torch, _HARNESS))

    def _list_loop_codes(self) -> list[types.CodeType]:
        """The code of the user's frames, where they are those that the interrupt came in, and no
        handler of it is in progress; else nothing."""
        if not _has_default_sigint() or _is_handling_interrupt(sys.exc_info()[1]):
            return []
        rows: list[StackRow] = []
        codes: list[types.CodeType] = []
        for frame in iterate_frames(sys._getframe()):  # pyright: ignore[reportPrivateUsage]
            row = StackRow(frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno)
            if self._is_users(row):
                rows.insert(0, row)
                codes.insert(0, frame.f_code)
        arrived = self._arrived_in
        same = len(rows) == len(arrived) and rows[:-1] == arrived[:-1]
        return codes if same and rows[-1][:2] == arrived[-1][:2] else []


def _has_default_sigint() -> bool:
    """True if SIGINT raises KeyboardInterrupt: any other action is the program's own."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _is_handling_interrupt(error: BaseException | None) -> bool:
    """True if a handler of KeyboardInterrupt is in progress, of a chain of exceptions."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__context__
    return False


def can_catch(code: types.CodeType) -> bool:
    """True if code has a handler anywhere (`except`, `finally`) that could have run for an
    exception from a call; the end of a `with` block is none."""
    instructions = list(dis.get_instructions(code))
    entries = getattr(dis.Bytecode(code), "exception_entries", None)
    if entries is None:  # Python 3.10
        return any(instruction.opname == "SETUP_FINALLY" for instruction in instructions)
    names = {instruction.offset: instruction.opname for instruction in instructions}
    following = dict(zip(names, list(names.values())[1:], strict=False))
    return any(
        names.get(entry.target) == "PUSH_EXC_INFO"
        and following.get(entry.target) != "WITH_EXCEPT_START"
        for entry in entries
    )
