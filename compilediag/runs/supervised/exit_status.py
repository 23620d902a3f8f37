"""How a run ended, in one status and one sentence.

The target's output belongs to the terminal and is not captured, so the reason comes from what the
processes wrote into their journals, from the exit code, and from the signals we had to send.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from compilediag.readers.journal import Journal
from compilediag.runs.supervised.child import ExitInfo
from compilediag.runs.supervised.target import Target
from compilediag_harness.wire import ProcessEnded

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Status

TORCH_FLOOR = Version("2.7")
TAIL_LIMIT = 8192

_LOG_WORDS = re.compile(r"Invalid log settings: (?P<words>.{1,200}?), must be a comma")
_NO_TORCH = re.compile(r"ModuleNotFoundError: No module named 'torch'")


@dataclass(frozen=True, slots=True)
class Ending:
    """The `status` and `failure` of a receipt; `reason` is None when the run ended well."""

    status: Status
    reason: str | None = None
    log_tail: str | None = None


def tell_ending(
    ended: ExitInfo,
    target: Target,
    journals: Sequence[Journal],
    *,
    timeout_s: float | None = None,
    log_tail: str | None = None,
    lost: bool = False,
) -> Ending:
    """The ending of the run.

    Args:
        ended: how the child ended.
        target: what it ran.
        journals: of all its processes.
        timeout_s: the time limit, if there was one.
        log_tail: the end of the text log, told where no process left a traceback.
        lost: records were lost, so that the receipt is but a part of the run.
    """
    status = _status(ended)
    if status == "complete":
        return Ending("partial" if lost else status)
    raised, tail = _raised(ended, target, journals)
    reason = _forced(ended, timeout_s) or _signalled(ended)
    reason = reason or _explained(raised, journals) or _plain(ended.exit_code)
    return Ending(status, reason, (tail or log_tail or "")[-TAIL_LIMIT:] or None)


def _status(ended: ExitInfo) -> Status:
    if ended.returncode < 0 and ended.timed_out:
        return "killed"
    if ended.interrupted or ended.timed_out or ended.returncode == -signal.SIGINT:
        return "interrupted"
    if ended.returncode < 0:
        return "killed"
    return "complete" if ended.returncode == 0 else "failed"


def _forced(ended: ExitInfo, timeout_s: float | None) -> str | None:
    told = " and ".join(f"SIG{signum.name.removeprefix('SIG')}" for signum in ended.sent)
    if ended.timed_out:
        return f"the time limit of {timeout_s:g} s was reached; ended with {told}"
    if not ended.interrupted:
        return None
    if ended.sent:
        return f"Ctrl-C; the target did not react and was sent {told}"
    return "Ctrl-C"


def _signalled(ended: ExitInfo) -> str | None:
    if ended.returncode >= 0:
        return None
    if ended.returncode == -signal.SIGINT:
        return "SIGINT (signal 2)"
    name = _signal_name(-ended.returncode)
    if ended.returncode == -signal.SIGKILL:
        return f"killed by {name}, not by compilediag; the system does that when memory runs out"
    return f"killed by {name}"


def _plain(code: int) -> str:
    if 128 < code < 128 + 65:
        return f"exit code {code}, which a shell uses for {_signal_name(code - 128)}"
    return f"exit code {code}; no Python exception was seen"


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _raised(
    ended: ExitInfo, target: Target, journals: Sequence[Journal]
) -> tuple[str | None, str | None]:
    """The exception that ended the run, and its traceback: the target's own, else the one of the
    process that ended first, since a launcher's exception only follows from a worker's."""
    failures: list[tuple[bool, str, float, str]] = []
    for journal in journals:
        started, last = journal.started, journal.events[-1] if journal.events else None
        if isinstance(last, ProcessEnded) and last.failure and started:
            other = target.kind == "program" or started.pid != ended.pid
            # A fork goes on with its parent's clock: its journal does not begin at 0.
            failures.append((other, started.started_utc, last.t - started.t, last.failure))
    if not failures:
        return None, None
    first = min(failures, key=lambda item: (item[0], _moment(item[1], item[2])))[3]
    named, _, tail = first.partition("\n\n")
    return named, tail or None


def _moment(started_utc: str, lived_s: float) -> float:
    """Seconds since the epoch at which a process ended; infinite where the start is unreadable."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(started_utc.replace("Z", "+00:00")).timestamp() + lived_s
    except ValueError:
        return float("inf")


def _explained(raised: str | None, journals: Sequence[Journal]) -> str | None:
    """The exception's own line, or a sentence where it is a known mistake of set-up."""
    if raised is None:
        return None
    if words := _LOG_WORDS.search(raised):
        return (
            f"torch refused TORCH_LOGS because of {words['words']!r}, which it does not know: "
            'mend the variable (TORCH_LOGS="help" lists the words) or unset it'
        )
    if _NO_TORCH.match(raised):
        where = next((item.started.executable for item in journals if item.started), "this Python")
        return (
            f"torch is not installed for {where}: install it there, or run compilediag from the "
            "environment that has it"
        )
    return raised


def notes_on_attachment(
    target: Target, journals: Sequence[Journal], versions: Sequence[str], faults: Sequence[str]
) -> list[str]:
    """Sentences on why nothing, or less than usual, could be observed."""
    notes = [f"compilediag could not attach to a process: {fault}" for fault in faults[:3]]
    if not journals:
        notes.append(_why_unattached(target))
    old = sorted({version for version in versions if _too_old(version)})
    if old:
        notes.append(
            f"torch {', '.join(old)} is older than {TORCH_FLOOR}: what was counted may be wrong; "
            "use a newer torch"
        )
    return notes


def _why_unattached(target: Target) -> str:
    if target.defeats:
        return (
            f"no Python process was observed: `python {target.defeats}` ignores the environment "
            "that attaches compilediag; run the target without it"
        )
    if target.kind == "program":
        return (
            "no Python process was observed: the program started none, or started it with -E, -I "
            "or -S, or with a cleaned environment"
        )
    return (
        "no Python process was observed: the interpreter did not load compilediag's "
        "sitecustomize, or could not write into the output directory"
    )


def _too_old(version: str) -> bool:
    try:
        return Version(version) < TORCH_FLOOR
    except InvalidVersion:
        return False
