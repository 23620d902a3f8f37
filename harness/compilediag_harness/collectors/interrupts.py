"""Ctrl-C that torch loses: a KeyboardInterrupt raised in a Python guard is cleared by the C++ code
that called it, and the program goes on as if nothing had happened.

`faulthandler` writes down where the main thread was when SIGINT came, without a part in how the
signal is handled. It is certainly lost only where nothing else can be: the action is Python's own,
the main thread was inside Dynamo, and a second later it is in the same calls of the same
functions, none of which has a handler that could have caught the exception.
"""

from __future__ import annotations

import contextlib
import dis
import faulthandler
import os
import re
import signal
import sys
import threading
import time
import types
from typing import NamedTuple

from compilediag_harness.base.journal import moved_up
from compilediag_harness.base.session import Session
from compilediag_harness.wire import InterruptLost

LOOK_EVERY_S = 0.25
LOST_AFTER_S = 1.0
"""Seconds after which a program that is still in its loop has not received the interrupt."""

_ROW = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_HARNESS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAX_DUMP_BYTES = 1 << 16


class Row(NamedTuple):
    """A frame in progress; `line` is that of the call it is in."""

    file: str
    function: str
    line: int


class InterruptWatch:
    """Of one process, whose main thread makes the calls."""

    def __init__(self, session: Session, torch_folder: str) -> None:
        self._session = session
        self._torch = torch_folder + os.sep
        self._next_look = 0.0
        self._read = 0
        self._arrived_in: list[Row] = []
        """The user's frames, outermost first; empty where the interrupt came elsewhere."""
        self._lost_at = 0.0
        self._fd = -1
        self._pid = os.getpid()
        if _python_acts() and hasattr(os, "memfd_create"):
            self._fd = moved_up(os.memfd_create("compilediag-interrupts"))
            faulthandler.register(signal.SIGINT, file=self._fd, all_threads=False, chain=True)
            os.register_at_fork(after_in_child=self.uninstall)

    def look(self) -> None:
        """Called in the user's loop: whether an interrupt came, and was lost."""
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
            self._arrived_in = self._user_rows(dump.decode("ascii", "replace"))
            self._lost_at = now + LOST_AFTER_S
        elif self._arrived_in and now >= self._lost_at:
            self._lost_at = now + LOST_AFTER_S
            loop = self._loop()
            if loop:
                session, certain = self._session, not any(map(catches, loop))
                session.emit(InterruptLost(session.now(), session.step, now, certain))

    def uninstall(self) -> None:
        """Leaves SIGINT alone."""
        if self._fd >= 0:
            if _python_acts():  # else the program has put another action in its place
                faulthandler.unregister(signal.SIGINT)
            with contextlib.suppress(OSError):  # the program closed every descriptor it found
                os.close(self._fd)
            self._fd = -1

    def _user_rows(self, dump: str) -> list[Row]:
        """The user's frames around a frame of Dynamo in the newest dump."""
        newest = re.split(r"^(?:Current thread|Thread|Stack)\b.*$", dump, flags=re.MULTILINE)[-1]
        rows = [Row(m["file"], m["function"], int(m["line"])) for m in _ROW.finditer(newest)]
        dynamo = os.path.join(self._torch, "_dynamo", "")
        inside = [index for index, row in enumerate(rows) if row.file.startswith(dynamo)]
        if not inside or "\n  ..." in newest:
            return []
        return [row for row in reversed(rows[inside[-1] + 1 :]) if self._is_users(row)]

    def _is_users(self, row: Row) -> bool:
        return not row.file.startswith((self._torch, _HARNESS))

    def _loop(self) -> list[types.CodeType]:
        """The code of the user's frames, where they are those that the interrupt came in, and no
        handler of it is in progress; else nothing."""
        if not _python_acts():
            return []
        if _handles_interrupt(sys.exc_info()[1]):
            return []
        frame: types.FrameType | None = sys._getframe()  # pyright: ignore[reportPrivateUsage]
        here: list[tuple[Row, types.CodeType]] = []
        while frame is not None:
            code = frame.f_code
            here.append((Row(code.co_filename, code.co_name, frame.f_lineno), code))
            frame = frame.f_back
        users = [(row, code) for row, code in reversed(here) if self._is_users(row)]
        rows, arrived = [row for row, _ in users], self._arrived_in
        same = len(rows) == len(arrived) and rows[:-1] == arrived[:-1]
        return [code for _, code in users] if same and rows[-1][:2] == arrived[-1][:2] else []


def _python_acts() -> bool:
    """Whether SIGINT raises KeyboardInterrupt: any other action is the program's own."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _handles_interrupt(error: BaseException | None) -> bool:
    """Whether a handler of KeyboardInterrupt is in progress, of a chain of exceptions."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__context__
    return False


def catches(code: types.CodeType) -> bool:
    """Whether code has a handler anywhere (`except`, `finally`) that could have run for an
    exception from a call; the end of a `with` block is none."""
    instructions = list(dis.get_instructions(code))
    entries = getattr(dis.Bytecode(code), "exception_entries", None)
    if entries is None:  # Python 3.10
        return any(item.opname == "SETUP_FINALLY" for item in instructions)
    names = {item.offset: item.opname for item in instructions}
    following = dict(zip(names, list(names.values())[1:], strict=False))
    return any(
        names.get(entry.target) == "PUSH_EXC_INFO"
        and following.get(entry.target) != "WITH_EXCEPT_START"
        for entry in entries
    )
