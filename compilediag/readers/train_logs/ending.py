"""How a trainer's output says that the run ended: an exception, a signal, the scheduler, or well.

What is printed after the last step line counts: an exception that is followed by further steps was
caught. Of many ranks that fail together the first exception is the cause, and those that follow
from another process's end are not.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from compilediag.readers.train_logs.lines import named_rank, plain_text
from compilediag.timeline.train_log import LoggedEnding

_SIGINT = 2

KEPT_LINES = 4000
"""Lines kept after a step line: the first exception stands among them."""

TAIL_LINES = 400
TAIL_LINE_BYTES = 2048
LOOKED_AT_CHARS = 256
"""Of a line that stands in no traceback: what tells of an end stands at its beginning."""

REASON_CHARS = 2000

_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
_EXCEPTION = re.compile(
    r"(?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b)[A-Za-z_][\w.]{0,200}(?:: .{0,8192}|:)?\Z"
)
_FOLLOWS_ANOTHER = re.compile(
    r"ChildFailedError|CalledProcessError|SignalException|RendezvousClosedError"
    r"|ncclRemoteError|Connection (?:reset|closed) by (?:remote )?peer|ProcessExitedException"
)
_INTERRUPTED = re.compile(r"\bKeyboardInterrupt\b|\bSIGINT\b")
_CHILD_CODE = re.compile(r"exitcode {0,8}: {0,4}(?P<code>-?\d{1,5}) ")
_AGENT_CODE = re.compile(r"\bfailed \(exitcode: {0,4}(?P<code>-?\d{1,5})\) local_rank:")
_CHILD_SIGNAL = re.compile(r"Signal (?P<signal>\d{1,3}) \((?P<name>SIG\w{1,12})\) received by PID")
_SCHEDULER = re.compile(
    r"slurmstepd: error: |\bCANCELLED AT |\bDUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)"
    r"|\boom[-_]kill"
)
_SIGNALS = {
    "Killed": 9, "killed": 9, "Terminated": 15, "terminated": 15, "Aborted": 6, "abort": 6,
    "Segmentation fault": 11, "segmentation fault": 11, "Bus error": 7, "bus error": 7,
    "Illegal instruction": 4, "Floating point exception": 8,
}  # fmt: skip
# As bash ("run.sh: line 3:  4242 Killed     python train.py") and zsh tell of a child, or alone.
_CRASH = re.compile(
    r"(?:\A|\A.{1,400}: line \d{1,9}: {1,8}\d{1,9} |\Azsh: )"
    rf"(?P<word>{'|'.join(_SIGNALS)})(?: \(core dumped\)| {{4}}|\Z)"
    r"|\AFatal Python error: |\Aterminate called after throwing "
)
_GOT_SIGNAL = re.compile(r"SignalException: .{0,200}\bgot signal: (?P<signal>\d{1,3})\Z")
_WORTH_A_LOOK = re.compile(
    r"exitcode|SIG|slurmstepd|CANCELLED|DUE TO|oom|line \d|[Kk]illed|[Tt]erminated|[Aa]bort|[Ss]egm"
    r"|[Bb]us error|Illegal|Floating|Fatal|terminate|Interrupt|got signal"
)


@dataclass(slots=True)
class EndingReader:
    """The lines since the last step line, and the end of the output, both bounded."""

    finished: bool = False
    _tail: deque[bytes] = field(default_factory=lambda: deque[bytes](maxlen=TAIL_LINES))
    _before: list[bytes] = field(default_factory=list[bytes])
    """Between the last two step lines: of a rank that failed while another still told a step."""
    _since: list[bytes] = field(default_factory=list[bytes])

    def line(self, raw: bytes) -> None:
        """A line that tells of no step."""
        self._tail.append(raw[:TAIL_LINE_BYTES])
        if len(self._since) < KEPT_LINES:
            self._since.append(raw[:TAIL_LINE_BYTES])

    def step(self, raw: bytes) -> None:
        """A line that tells of a step."""
        self._tail.append(raw[:TAIL_LINE_BYTES])
        if self._since:
            self._before, self._since = self._since, []
        self.finished = False

    def end(self, raw: bytes) -> None:
        """The trainer's last words."""
        self.step(raw)
        self._before = []
        self.finished = True

    def tail(self) -> str:
        """The end of the output, without terminal escapes."""
        return "\n".join(plain_text(raw) for raw in self._tail)

    def ending(self) -> LoggedEnding | None:
        """None where nothing says that the run ended badly."""
        late = [plain_text(raw) for raw in (*self._since, *self._missed())]
        found = ending_in(late)
        if found is None or not _FOLLOWS_ANOTHER.search(found.reason):
            return found
        earlier = ending_in([plain_text(raw) for raw in self._before])
        if earlier is None or _FOLLOWS_ANOTHER.search(earlier.reason):
            return found
        return LoggedEnding(earlier.status, earlier.reason, found.exit_code)

    def _missed(self) -> Sequence[bytes]:
        """The last lines, where they were too many to keep them all."""
        return tuple(self._tail) if len(self._since) >= KEPT_LINES else ()


def ending_in(lines: Iterable[str]) -> LoggedEnding | None:
    """The bad ending that the lines tell; None where they tell none."""
    told = _Told()
    for line in lines:
        rank, text = named_rank(line)
        told.take(rank, text.rstrip())
    return told.ending()


@dataclass(slots=True)
class _Told:
    """What was found so far; exceptions by the rank that printed them."""

    exceptions: dict[str | None, str] = field(default_factory=dict[str | None, str])
    """Uncaught ones in order of the ranks that told first; a chained one takes the place."""
    crash: str | None = None
    scheduler: str | None = None
    code: int | None = None
    signal: tuple[int, str] | None = None
    _inside: set[str | None] = field(default_factory=set[str | None])
    _chained: set[str | None] = field(default_factory=set[str | None])

    def take(self, rank: str | None, text: str) -> None:
        if _TRACEBACK in text:
            self._inside.add(rank)
            return
        if rank in self._inside and text[:1] not in {" ", "\t", "", "|", "+"}:
            self._end_of_traceback(rank, text)
            return
        if text.startswith(_CHAINED):
            self._chained.add(rank)
            return
        if _WORTH_A_LOOK.search(text, 0, LOOKED_AT_CHARS):
            self._look(rank, text)

    def _end_of_traceback(self, rank: str | None, text: str) -> None:
        if not _EXCEPTION.match(text):
            return  # another process wrote in between
        self._inside.discard(rank)
        self._exception(rank, text)

    def _exception(self, rank: str | None, text: str) -> None:
        told = self.exceptions.get(rank)
        if told is None or rank in self._chained or _FOLLOWS_ANOTHER.search(told):
            self.exceptions[rank] = text[:REASON_CHARS]
        self._chained.discard(rank)

    def _look(self, rank: str | None, text: str) -> None:
        if code := _AGENT_CODE.search(text):
            self.code = int(code["code"]) if self.code is None else self.code
        elif code := _CHILD_CODE.search(text):
            # torchrun tells the root cause last.
            self.code = int(code["code"])
        elif signal := _CHILD_SIGNAL.search(text):
            self.signal = (int(signal["signal"]), text.strip()[:REASON_CHARS])
        elif _SCHEDULER.search(text):
            self.scheduler = self.scheduler or text.strip()[:REASON_CHARS]
        elif signal := _GOT_SIGNAL.search(text):
            self._exception(rank, text)
            self.signal = self.signal or (int(signal["signal"]), text[:REASON_CHARS])
        elif crash := _CRASH.search(text):
            self.crash = self.crash or text.strip()[:REASON_CHARS]
            number = _SIGNALS.get(crash["word"] or "")
            self.signal = self.signal or (None if number is None else (number, self.crash))
        elif text == "KeyboardInterrupt":
            self._exception(rank, text)

    def ending(self) -> LoggedEnding | None:
        code = None if self.code is None else self.code if self.code >= 0 else 128 - self.code
        causes = [(r, t) for r, t in self.exceptions.items() if not _FOLLOWS_ANOTHER.search(t)]
        if causes:
            rank, text = causes[0]
            status = "interrupted" if _INTERRUPTED.search(text) else "failed"
            return LoggedEnding(status, text if rank is None else f"{text} (in {rank})", code)
        if self.scheduler is not None:
            return LoggedEnding("killed", self.scheduler, code)
        if self.signal is not None:
            number, text = self.signal
            status = "interrupted" if number == _SIGINT else "killed"
            return LoggedEnding(status, text, code or 128 + number)
        if self.crash is not None:
            return LoggedEnding("failed", self.crash, code)
        if self.exceptions:
            return LoggedEnding("failed", next(iter(self.exceptions.values())), code)
        return None
