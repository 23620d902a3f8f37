"""The end of a run, as one status and one sentence.

The target's output belongs to the terminal and is not captured, so the reason comes from the
journals of its processes, from the exit code, and from the signals that were sent to it.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Sequence
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from compilediag.readers.journal import ProcessJournal
from compilediag.readers.lines import unix_s
from compilediag.receipt.schema.receipt import Status
from compilediag.runs.supervised.child import ExitInfo
from compilediag.runs.supervised.target import Target
from compilediag_harness.wire import ProcessEnded

TORCH_FLOOR = Version("2.7")
TAIL_LIMIT = 8192

_INVALID_LOGS = re.compile(r"Invalid log settings: (?P<words>.{1,200}?), must be a comma")
_NO_TORCH = re.compile(r"ModuleNotFoundError: No module named 'torch'")


class ExitStatus(NamedTuple):
    """The `status` and `failure` of a receipt; `reason` is None when the run ended well."""

    status: Status
    reason: str | None = None
    log_tail: str | None = None


def exit_status_of(
    ended: ExitInfo,
    target: Target,
    journals: Sequence[ProcessJournal],
    *,
    timeout_s: float | None = None,
    log_tail: str | None = None,
    lost: bool = False,
) -> ExitStatus:
    """The status of a run that has ended.

    Args:
        ended: how the child ended.
        target: what it ran.
        journals: of all its processes.
        timeout_s: the time limit, if there was one.
        log_tail: the end of the text log, used where no process left a traceback.
        lost: records were lost, so that the receipt covers only a part of the run.
    """
    status = _status(ended)
    if status == "complete":
        return ExitStatus("partial" if lost else status)
    raised, traceback = _first_failure(ended, target, journals)
    reason = _from_outside(ended, timeout_s) or _explained(raised, ended.exit_code, journals)
    return ExitStatus(status, reason, (traceback or log_tail or "")[-TAIL_LIMIT:] or None)


def _status(ended: ExitInfo) -> Status:
    if ended.returncode < 0 and ended.timed_out:
        return "killed"
    if ended.interrupts or ended.timed_out or ended.returncode == -signal.SIGINT:
        return "interrupted"
    if ended.returncode < 0:
        return "killed"
    return "complete" if ended.returncode == 0 else "failed"


def _from_outside(ended: ExitInfo, timeout_s: float | None) -> str | None:
    """What ended it; None where it ended by itself."""
    sent = " and ".join(signum.name for signum in ended.sent)
    if ended.timed_out:
        return f"the time limit of {timeout_s:g} s was reached; ended with {sent}"
    if ended.interrupts and ended.interrupt_lost:
        return f"Ctrl-C, which torch lost in a compiled call; the target was sent {sent}"
    if ended.interrupts:
        return f"Ctrl-C twice; the target had not ended and was sent {sent}" if sent else "Ctrl-C"
    if ended.returncode >= 0:
        return None
    name = _signal_name(-ended.returncode)
    if ended.returncode == -signal.SIGINT:
        return name
    if ended.returncode == -signal.SIGKILL:
        return f"killed by {name}, not by compilediag; the system does that when memory runs out"
    return f"killed by {name}"


def _signal_name(signum: int) -> str:
    try:
        return f"{signal.Signals(signum).name} (signal {signum})"
    except ValueError:
        return f"signal {signum}"


def _first_failure(
    ended: ExitInfo, target: Target, journals: Sequence[ProcessJournal]
) -> tuple[str | None, str | None]:
    """The exception that ended the run, and its traceback: the target's own, else the one of the
    process that ended first, since a launcher's exception only follows from a worker's."""
    failures: list[tuple[bool, float, str]] = []
    for journal in journals:
        started, last = journal.started, journal.events[-1] if journal.events else None
        if isinstance(last, ProcessEnded) and last.failure and started:
            of_other = target.kind == "program" or started.pid != ended.pid
            # A fork continues its parent's clock: its journal does not begin at 0.
            began_at = unix_s(started.started_utc) or float("inf")
            ended_at = began_at + last.t - started.t
            failures.append((of_other, ended_at, last.failure))
    if not failures:
        return None, None
    raised, _, traceback = min(failures, key=lambda item: item[:2])[2].partition("\n\n")
    return raised, traceback or None


def _explained(raised: str | None, code: int, journals: Sequence[ProcessJournal]) -> str:
    """The exception's own line, or a sentence where it is a known mistake of set-up; without one
    the exit code."""
    if raised is None and 128 < code < 128 + 65:
        return f"exit code {code}, which a shell uses for {_signal_name(code - 128)}"
    if raised is None:
        return f"exit code {code}; no Python exception was seen"
    if invalid := _INVALID_LOGS.search(raised):
        return (
            f"torch refused TORCH_LOGS because of {invalid['words']!r}, which it does not know: "
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
    target: Target,
    journals: Sequence[ProcessJournal],
    versions: Sequence[str],
    faults: Sequence[str],
) -> list[str]:
    """Sentences on why nothing, or less than usual, could be observed."""
    notes = [f"compilediag could not attach to a process: {fault}" for fault in faults[:3]]
    if not journals and not notes:
        notes.append(f"no Python process was observed: {_why_unattached(target)}")
    old: set[str] = set()
    for version in versions:
        with contextlib.suppress(InvalidVersion):
            old |= {version} if Version(version) < TORCH_FLOOR else set()
    if old:
        notes.append(
            f"torch {', '.join(sorted(old))} is older than {TORCH_FLOOR}: what was counted may be "
            "wrong; use a newer torch"
        )
    return notes


def _why_unattached(target: Target) -> str:
    if target.defeats:
        return (
            f"`python {target.defeats}` ignores the environment that attaches compilediag; run the "
            "target without it"
        )
    if target.kind == "program":
        return (
            "the program started none, or started it with -E, -I or -S, or with a cleaned "
            "environment"
        )
    return (
        "the interpreter did not load compilediag's sitecustomize, or could not write into the "
        "output directory"
    )
