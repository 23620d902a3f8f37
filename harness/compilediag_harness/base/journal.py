"""Journal of events, one append-only file a process, readable after SIGKILL.

A line is `CRC SEQUENCE JSON`: the crc32 (8 hex digits) covers everything after the first blank, the
sequence counts from 0, the JSON is `wire.encode(event)` without its secrets. Each line is one
`os.write` to an O_APPEND file, so a killed process leaves whole lines and no buffer is lost.

Invariant: nothing here raises anything of its own, blocks on a lock, or prints. A record that
cannot be written is counted, and its sequence number is missing from the file: the reader counts
the gaps. A record that is left out because the file is large enough is counted too, and leaves no
gap.

This module is loaded in every Python child, also in those that never import torch: it imports
nothing that the interpreter has not loaded already.
"""

from __future__ import annotations

import binascii
import errno
import os
from itertools import count

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TYPE_CHECKING = False  # `typing` costs milliseconds in children without torch
if TYPE_CHECKING:
    from collections.abc import Callable

    from compilediag_harness.wire import Event

LINE_LIMIT = 1 << 20
"""Longest line in bytes; the reader refuses longer ones."""

DEFAULT_LIMIT_BYTES = 64 << 20
"""Size of a journal above which only essential kinds are written."""

RESERVE_BYTES = 32 << 20
"""What essential kinds may use above the limit."""

ESSENTIAL_KINDS = frozenset({
    *("ProcessStarted", "TorchSeen", "EnvironmentRead", "ProcessEnded", "Compiled"),
    *("DynamoReset", "GraphBroke", "FrameSkipped", "JournalLimited", "EvidenceLost"),
    "FaultOccurred",
})  # fmt: skip
"""Kinds the counts of a receipt cannot do without, by the names of their classes in `wire`."""

HIGH_FD = 900
"""Lowest descriptor of the file: the program's own descriptors keep their numbers, and a file it
opens after closing all of its own does not get ours."""

_CLOSED_IN_CHILDREN = getattr(os, "O_CLOEXEC", 0)  # Windows has none
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL | _CLOSED_IN_CHILDREN


class Journal:
    """The sink of one process.

    `opening` gives the JSON of the `ProcessStarted` record of the process that calls it: it is the
    first line of every file, also of the file that a forked child begins with its first record.
    """

    def __init__(
        self,
        run_dir: str,
        encode_opening: Callable[[], bytes],
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self._run_dir = run_dir
        self._encode_opening = encode_opening
        self.limit_bytes = limit_bytes
        self.left_out: dict[str, int] = {}
        """Records above the limit that are not essential, by kind: they are not written."""
        self._begin()

    def _begin(self) -> None:
        """Open the file of this process; a failure leaves a journal that drops everything."""
        self._pid = os.getpid()
        self._torn = False
        self._warned = False
        self._sequence = count()
        self.left_out.clear()
        self.limit_noted = False
        """`left_out` is not empty, and a record says so."""
        self.dropped = 0
        """Records of this process that should have been written, and were not."""
        self.bytes_written = 0
        self._fd = -1
        name = f"journal-{self._pid}-{os.urandom(4).hex()}.jsonl"
        self.path = os.path.join(self._run_dir, name)
        try:
            self._fd = move_descriptor_up(os.open(self.path, _FLAGS, 0o600))
        except OSError as error:
            self._count_dropped(error)
        self.append("ProcessStarted", self._encode_opening())

    @property
    def silent(self) -> bool:
        """A forked child that has written nothing yet: it has no file."""
        return os.getpid() != self._pid

    def write(self, event: Event) -> bool:
        """Append one event, or leave it out; False when it was dropped. A `Session`'s sink."""
        # Not in every child: see above.
        from compilediag_harness.redaction.in_process import redact_fields
        from compilediag_harness.wire import encode

        try:
            payload = encode(event, convert=redact_fields)
            if len(payload) > LINE_LIMIT - 64:
                payload = encode(event, shortened=True, convert=redact_fields)
        except Exception as error:
            self._count_dropped(error)
            from compilediag_harness.base.signal_handlers import is_raised_by_handler

            if is_raised_by_handler(error):
                raise
            return False
        return self.append(type(event).__name__, payload)

    def append(self, kind: str, payload: bytes) -> bool:
        """Append one encoded record, or leave it out; False when it was dropped."""
        # Invariant: checked at each record: Python announces no fork that C code makes, and such a
        # child must not write into the file of its parent.
        if self.silent:  # a forked child: its own file, the parent's stays untouched
            self.close()
            self._begin()
        over = self.bytes_written - self.limit_bytes
        if self._fd >= 0 and kind not in ESSENTIAL_KINDS and over >= 0:
            self.left_out[kind] = self.left_out.get(kind, 0) + 1
            return True
        # `count` is atomic where a lock could be held across a fork or by a signal handler.
        # Invariant: taken before the write can fail: a gap in the numbers is a missing record.
        body = b"%d %s\n" % (next(self._sequence), payload)
        has_room = over < RESERVE_BYTES or kind == "ProcessEnded"
        if self._fd < 0 or len(body) > LINE_LIMIT or not has_room:
            self._count_dropped(None)
            return False
        line = b"%08x %s" % (binascii.crc32(body[:-1]), body)
        if self._torn:
            line = b"\n" + line
        try:
            written = self._write(line)
        except OSError as error:
            self._count_dropped(error)
            return False
        self.bytes_written += written
        # A full disk takes the head of a line: the next one must not be glued to it.
        self._torn = written < len(line)
        if self._torn:
            self._count_dropped(None)
        return not self._torn

    def _write(self, line: bytes) -> int:
        try:
            return os.write(self._fd, line)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
        # The program closed every descriptor it found, as daemons do.
        self._fd = move_descriptor_up(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        return os.write(self._fd, line)

    def _count_dropped(self, error: Exception | None) -> None:
        self.dropped += 1
        if self._warned:
            return
        self._warned = True
        reason = repr(error) if error else "the file is full or over its limit"
        try:
            fd = os.open(self.path[: -len(".jsonl")] + ".dropped", _FLAGS, 0o600)
            try:
                os.write(fd, f"records are being dropped: {reason}\n".encode("utf-8", "replace"))
            finally:
                os.close(fd)
        except OSError:
            pass  # the gap in the sequence, or the missing file, still shows it

    def close(self) -> None:
        """Close the file; later records are dropped."""
        if self._fd >= 0:
            try:  # noqa: SIM105 - contextlib is not loaded in every child
                os.close(self._fd)
            except OSError:
                pass
        self._fd = -1


def move_descriptor_up(fd: int) -> int:
    """Move a descriptor to a high number; returned as it is where the limits forbid that."""
    if fcntl is None:
        return fd
    try:
        # Close-on-exec: what the program runs by `exec` must not inherit the file.
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    except OSError:
        return fd
    os.close(fd)
    return high
