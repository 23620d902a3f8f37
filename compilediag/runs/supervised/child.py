"""The target as a supervised child process, in our place on the terminal; its start and its end.

The child inherits stdin, stdout and stderr as they are (a terminal stays a terminal), the working
directory and the process group, so Ctrl-C reaches it as it would without us.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import compilediag_harness
from compilediag.errors import OutputUnwritable, UsageError
from compilediag.runs.run_directory import LOOK_EVERY_S, RunFiles, save_receipt
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.supervised.signals import (
    GroupSignalMonitor,
    Interrupts,
    KillSchedule,
    ProcessTree,
    SignalInbox,
)
from compilediag.runs.supervised.target import Target
from compilediag_harness.base.process_options import VARIABLE, ProcessOptions
from compilediag_harness.redaction.redactor import list_secret_values

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.timeline.timeline import Timeline

RUN_DIR_VARIABLE = "COMPILEDIAG_RUN_DIR"


BOOTSTRAP = os.path.join(
    os.path.dirname(os.path.abspath(compilediag_harness.__file__)), "bootstrap"
)
"""The folder with our `sitecustomize`."""


def make_child_environment(
    base: Mapping[str, str],
    run_dir: str,
    options: ProcessOptions | None = None,
    *,
    trace_dir: str | None = None,
) -> dict[str, str]:
    """Make the environment of a child: `base` with the variables that attach Python to the run.

    TORCH_LOGS stays as the user set it. TORCH_TRACE is set to `trace_dir` only where the user has
    none. A run inside a run attaches to the inner one only, with its options (None: the defaults).
    """
    paths = base.get("PYTHONPATH", "")
    others = [entry for entry in paths.split(os.pathsep) if entry != BOOTSTRAP] if paths else []
    child = {name: value for name, value in base.items() if name != VARIABLE}
    if options is not None and (text := options.encode()):
        child[VARIABLE] = text
    child["PYTHONPATH"] = os.pathsep.join([BOOTSTRAP, *others])
    child[RUN_DIR_VARIABLE] = run_dir
    if trace_dir is not None and not base.get("TORCH_TRACE"):
        child["TORCH_TRACE"] = trace_dir
    return child


STDERR = 2

PASSED_ON = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
"""Each reaches the target once: as sent to our whole process group, or else from us."""
FROM_TERMINALS = frozenset({signal.SIGINT, signal.SIGQUIT})
"""Taken to have reached the group, where that is unknown."""


@dataclass(frozen=True, slots=True)
class ExitInfo:
    """The end of the child."""

    pid: int
    returncode: int
    """As `subprocess` gives it: negative for a signal."""
    wall_s: float
    interrupts: int = 0
    timed_out: bool = False
    sent: tuple[signal.Signals, ...] = ()
    """What had to be sent to end it."""
    passed_on: bool = False
    """Another process or a closed terminal requested an end of us, and so of the child."""

    @property
    def exit_code(self) -> int:
        """As a shell would report it: 128 + signal when killed."""
        return 128 - self.returncode if self.returncode < 0 else self.returncode


def start_target(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdout_to_stderr: bool = False,
    output_file: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start the target.

    Raises:
        UsageError: the operating system refuses to start it.
    """
    stdin: int | None = None
    stdout: int | BinaryIO | None = None
    with contextlib.ExitStack() as opened:
        try:
            if output_file is not None:
                stdin, stdout = subprocess.DEVNULL, opened.enter_context(open(output_file, "ab"))
            elif stdout_to_stderr:
                closed = sys.stderr is None  # pyright: ignore[reportUnnecessaryComparison] - `2>&-`
                stdout = subprocess.DEVNULL if closed else STDERR
            return subprocess.Popen(
                list(command),
                env=dict(environment),
                close_fds=False,  # what the shell passed on, as /dev/fd/63 of `<(...)`, stays open
                stdin=stdin,
                stdout=stdout,
                stderr=None if output_file is None else subprocess.STDOUT,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"{command[0]} cannot be started: {reason}") from error


def supervise(
    child: subprocess.Popen[bytes],
    inbox: SignalInbox,
    group_monitor: GroupSignalMonitor,
    *,
    started: float,
    grace_s: float,
    timeout_s: float | None = None,
    open_files: RunFiles | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> ExitInfo:
    """Wait for the child; pass signals on; end it and all its children when that is due.

    Args:
        child: the target.
        inbox: the signals that this process gets.
        group_monitor: tells which of them the whole process group was sent.
        started: when it was started, by the monotonic clock.
        grace_s: seconds from the second Ctrl-C, or the time limit, to SIGKILL.
        timeout_s: the time limit.
        open_files: the files that the target must not take away.
        notify: shows the user a sentence.
    """
    schedule = KillSchedule(grace_s)
    tree = ProcessTree(child.pid)
    interrupts = Interrupts(schedule, tree, notify)
    limit_at = None if timeout_s is None else started + timeout_s
    timed_out = False
    keep_at = None if open_files is None else time.monotonic()
    any_passed_on = False
    while child.poll() is None:
        if open_files is not None and keep_at is not None and time.monotonic() >= keep_at:
            open_files.open_new()
            keep_at = time.monotonic() + LOOK_EVERY_S
        wakes_at = (limit_at, schedule.next_at, interrupts.notify_at, keep_at)
        received = inbox.wait_for_signals(_compute_time_left(time.monotonic(), *wakes_at))
        passed_on = PASSED_ON.intersection(received)
        if passed_on:
            any_passed_on = True
            _pass_on(passed_on, child, group_monitor)
        for signum in received:
            if signum == signal.SIGINT:
                interrupts.handle_interrupt(time.monotonic())
        interrupts.notify_waiting(time.monotonic())
        if limit_at is not None and time.monotonic() >= limit_at and not timed_out:
            timed_out, limit_at = True, None
            schedule.end_on_timeout(time.monotonic())
        for signum in schedule.pop_due(time.monotonic()):
            tree.send(signum)
    if signal.SIGTERM in schedule.sent:
        tree.finish(_compute_time_left(time.monotonic(), schedule.next_at) or 0.0)
    ended = (child.pid, child.returncode, time.monotonic() - started)
    return ExitInfo(*ended, interrupts.count, timed_out, tuple(schedule.sent), any_passed_on)


def _pass_on(
    signals: frozenset[signal.Signals],
    child: subprocess.Popen[bytes],
    group_monitor: GroupSignalMonitor,
) -> None:
    """Send the child what it has not received as a member of our process group."""
    sent = group_monitor.take_pending()
    group = FROM_TERMINALS if sent is None else sent
    with contextlib.suppress(OSError):  # gone already
        if os.getpgid(child.pid) != os.getpgrp():
            group = frozenset[signal.Signals]()
        for signum in signals - group:
            child.send_signal(signum)


def _compute_time_left(now: float, *moments: float | None) -> float | None:
    known = [moment for moment in moments if moment is not None]
    return max(min(known) - now, 0.0) if known else None


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line to run, with its options and environment."""

    words: tuple[str, ...]
    """TARGET and its arguments as they were typed."""
    options: RunOptions
    variables: Mapping[str, str]
    """The environment of the target, before ours is added."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that are redacted wherever they appear."""
        return list_secret_values(self.words, self.variables)


@dataclass(frozen=True, slots=True)
class SupervisedRun(CommandLine):
    """One run of a command line: its target, directory, and time of start."""

    target: Target
    run_dir: str
    started_unix: float
    folder: str
    """The working directory, which the target may remove."""

    @property
    def configuration_name(self) -> str:
        return self.options.name or self.target.name


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run, and the receipt that it left."""

    exit_code: int
    """For the shell: the target's own, 128 + signal when killed, 70 after a fault of ours."""
    run_dir: str
    """Where its files are: another directory than that requested where the target removed it."""
    receipt: Receipt | None
    """None when it could not be made; `notes` say why."""
    receipt_path: str | None
    """None when it could not be written."""
    notes: tuple[str, ...] = ()
    """Sentences for the user, beside the verdict."""
    timeline: Timeline | None = None
    """What the receipt was made from; None when there is none."""
    moved: bool = False
    """The files are not where they were requested to be."""
    stopped: bool = False
    """Ctrl-C, or a signal to us: no further run is wanted."""
    timed_out: bool = False
    """The time limit ended it."""


def replace_receipt(outcome: Outcome, receipt: Receipt, *, latest: bool) -> Outcome:
    """Replace the receipt of an outcome, also in its file; that it could not be written is a note.
    `latest`: its directory becomes `.compilediag/latest`."""
    outcome = replace(outcome, receipt=receipt)
    try:
        path = save_receipt(receipt, outcome.run_dir, latest=latest)
    except OutputUnwritable as error:
        return replace(outcome, notes=(*outcome.notes, str(error)))
    return replace(outcome, receipt_path=path)


class TelemetryReport(NamedTuple):
    """The result of an export: notes for the user, and the receipt's extension."""

    notes: tuple[str, ...]
    extension: Mapping[str, object]
