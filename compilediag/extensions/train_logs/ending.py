"""Reads from a trainer's output how the run ended: an exception, a signal, the scheduler, well.

What is printed after the last step line counts: an exception that is followed by further steps was
caught. Of many ranks that fail together the first exception is the cause, and those that follow
from the end of another process are not.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from signal import SIGINT

from compilediag.extensions.train_logs.patterns import split_rank
from compilediag.timeline.recorded import LoggedEnding

MAX_LINES = 4000
"""Lines stored after a step line: the first exception is among them."""

TAIL_LINES = 400
MAX_LINE_CHARS = 2048
SEARCHED_CHARS = 256
"""Of a line outside tracebacks: the words about an end are at its beginning."""

MAX_REASON_CHARS = 2000

_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
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
# As bash ("run.sh: line 3:  4242 Killed     python train.py") and zsh report a child, or alone.
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
    _tail: deque[str] = field(default_factory=lambda: deque[str](maxlen=TAIL_LINES))
    _before: list[str] = field(default_factory=list[str])
    """Between the last two step lines: of a rank that failed while another still logged a step."""
    _since: list[str] = field(default_factory=list[str])

    def add_line(self, text: str) -> None:
        """Add a line of no step."""
        self._tail.append(text[:MAX_LINE_CHARS])
        if len(self._since) < MAX_LINES:
            self._since.append(text[:MAX_LINE_CHARS])

    def add_step(self, text: str) -> None:
        """Add the line of a step."""
        self._tail.append(text[:MAX_LINE_CHARS])
        if self._since:
            self._before, self._since = self._since, []
        self.finished = False

    def add_end(self, text: str) -> None:
        """Add the line with which the trainer says that it has ended."""
        self.add_step(text)
        self._before = []
        self.finished = True

    def get_tail(self) -> str:
        """Get the end of the output, at most `TAIL_LINES` lines."""
        return "\n".join(self._tail)

    def find_ending(self) -> LoggedEnding | None:
        """Find the bad ending; None where nothing says that the run ended badly."""
        missed = self._tail if len(self._since) >= MAX_LINES else ()
        ending = find_ending((*self._since, *missed))
        if ending is None or not _FOLLOWS_ANOTHER.search(ending.reason):
            return ending
        earlier = find_ending(self._before)
        if earlier is None or _FOLLOWS_ANOTHER.search(earlier.reason):
            return ending
        return LoggedEnding(earlier.status, earlier.reason, ending.exit_code)


def find_ending(lines: Iterable[str]) -> LoggedEnding | None:
    """Find the bad ending that the lines report; None where they report none."""
    evidence = _Evidence()
    for line in lines:
        rank, text = split_rank(line)
        evidence.take(rank, text.rstrip())
    return evidence.find_ending()


@dataclass(slots=True)
class _Evidence:
    """Evidence of a bad ending so far; exceptions by the rank that printed them."""

    exceptions: dict[str | None, str] = field(default_factory=dict[str | None, str])
    """Uncaught ones in the order of their ranks' first; a chained one replaces that of its rank."""
    crash: str | None = None
    scheduler: str | None = None
    code: int | None = None
    signal: tuple[int, str] | None = None
    _inside: set[str | None] = field(default_factory=set[str | None])
    _chained: set[str | None] = field(default_factory=set[str | None])

    def take(self, rank: str | None, text: str) -> None:
        if _TRACEBACK in text:
            self._inside.add(rank)
        elif rank in self._inside and text[:1] not in {" ", "\t", "", "|", "+"}:
            if _EXCEPTION.match(text):  # else another process wrote in between
                self._inside.discard(rank)
                self._add_exception(rank, text)
        elif text.startswith(_CHAINED):
            self._chained.add(rank)
        elif _WORTH_A_LOOK.search(text, 0, SEARCHED_CHARS):
            self._search(rank, text)

    def _add_exception(self, rank: str | None, text: str) -> None:
        known = self.exceptions.get(rank)
        if known is None or rank in self._chained or _FOLLOWS_ANOTHER.search(known):
            self.exceptions[rank] = text[:MAX_REASON_CHARS]
        self._chained.discard(rank)

    def _search(self, rank: str | None, text: str) -> None:
        reason = text.strip()[:MAX_REASON_CHARS]
        if code := _AGENT_CODE.search(text):
            self.code = int(code["code"]) if self.code is None else self.code
        elif code := _CHILD_CODE.search(text):
            # torchrun prints the root cause last.
            self.code = int(code["code"])
        elif signal := _CHILD_SIGNAL.search(text):
            self.signal = (int(signal["signal"]), reason)
        elif _SCHEDULER.search(text):
            self.scheduler = self.scheduler or reason
        elif signal := _GOT_SIGNAL.search(text):
            self._add_exception(rank, text)
            self.signal = self.signal or (int(signal["signal"]), text[:MAX_REASON_CHARS])
        elif crash := _CRASH.search(text):
            self.crash = self.crash or reason
            signum = _SIGNALS.get(crash["word"] or "")
            self.signal = self.signal or (None if signum is None else (signum, self.crash))
        elif text == "KeyboardInterrupt":
            self._add_exception(rank, text)

    def find_ending(self) -> LoggedEnding | None:
        # A negative exit code is a signal, which a shell reports as 128 + its number.
        code = None if self.code is None else self.code if self.code >= 0 else 128 - self.code
        causes = [(r, t) for r, t in self.exceptions.items() if not _FOLLOWS_ANOTHER.search(t)]
        if causes:
            rank, text = causes[0]
            status = "interrupted" if _INTERRUPTED.search(text) else "failed"
            return LoggedEnding(status, text if rank is None else f"{text} (in {rank})", code)
        if self.scheduler is not None:
            return LoggedEnding("killed", self.scheduler, code)
        if self.signal is not None:
            signum, text = self.signal
            status = "interrupted" if signum == SIGINT else "killed"
            return LoggedEnding(status, text, code or 128 + signum)
        reason = self.crash or next(iter(self.exceptions.values()), None)
        return None if reason is None else LoggedEnding("failed", reason, code)
