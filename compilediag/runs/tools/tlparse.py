"""tlparse's reports of torch's traces, made by its command line and linked; what goes wrong costs
the reports and is said: the receipt does not depend on them.

It gets one exact file (its 0.4.3 does not find logs in folders), a cleaned copy of the log, and a
fresh folder; `--overwrite` is never used.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from compilediag.readers.storage import is_uri, open_stream
from compilediag.runs.run_directory import ARTIFACTS, REPORTS
from compilediag.runs.tools.tlparse_log import TooLarge, copy_log

PROGRAM = "tlparse"
INDEX = "index.html"
MAX_BYTES = 2 << 30
"""A larger report is removed."""
TIME_S = 120.0
"""For all reports of one run."""
MIN_TIME_S = 1.0
_PREFIX = ".tlparse-"

NO_TRACE = (
    "tlparse has no trace of this run to report: torch wrote none into the run's folder, as is so "
    "where TORCH_TRACE names another one, or where nothing was compiled"
)
MAX_REPORTS = 16
"""One report a process; of more logs those with the first names."""


class LinkedReports(NamedTuple):
    """Notes on the reports for the user, and the receipt's extension."""

    notes: tuple[str, ...] = ()
    extensions: Mapping[str, object] = {}


class Report(NamedTuple):
    """The report of one log."""

    log: str
    """The log's path."""
    folder: str | None
    """Where the report lies; None where there is none."""
    problem: str | None = None
    """Why there is none, in one sentence."""
    left_out: int = 0
    """Records of the log that the copy does not hold."""


def link_reports(logs: Sequence[str], run_dir: str, known: Sequence[str]) -> LinkedReports:
    """Makes a report of every trace, among the artifacts of the run, without the secret values that
    are `known`."""
    if not logs:
        return LinkedReports((NO_TRACE,))
    try:
        reports = reports_of(logs[:MAX_REPORTS], os.path.join(run_dir, ARTIFACTS, REPORTS), known)
        notes = [f"{os.path.basename(x.log)}: {x.problem}" for x in reports if x.problem]
        if len(logs) > MAX_REPORTS:
            notes.append(f"tlparse reports {MAX_REPORTS} of the {len(logs)} traces")
        made = [os.path.relpath(item.folder) for item in reports if item.folder is not None]
        if made:
            more = f" and {len(made) - 1} more" if len(made) > 1 else ""
            notes.append(f"tlparse's report: {os.path.join(made[0], INDEX)}{more}")
        linked = [
            {
                "trace": item.log if is_uri(item.log) else os.path.relpath(item.log, run_dir),
                "report": item.folder and os.path.relpath(item.folder, run_dir),
                "problem": item.problem,
                "records_left_out": item.left_out,
            }
            for item in reports
        ]
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"[:300]
        note = f"tlparse's report is not linked, by a fault of compilediag: {fault}"
        return LinkedReports((note,))
    return LinkedReports(tuple(notes), {"tlparse": {"reports": linked}})


def find_tlparse() -> str | None:
    """The program: beside this Python, as pip installs it, else on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    return beside if os.access(beside, os.X_OK) else shutil.which(PROGRAM)


def reports_of(
    logs: Iterable[str],
    into: str,
    known: Sequence[str] = (),
    limits: Limits | None = None,
    program: str | None = None,
) -> list[Report]:
    """A report of each log, in folders "1", "2"... of `into`, which is made. `limits` are of each
    child, all of them together also have `TIME_S`; `program` is the installed one by default."""
    program = program or find_tlparse()
    limits = limits or Limits()
    until = time.monotonic() + TIME_S
    reports: list[Report] = []
    for number, log in enumerate(logs, 1):
        left_s = until - time.monotonic()
        if program is None:
            reports.append(Report(log, None, "tlparse is not installed: pip install tlparse"))
        elif left_s < MIN_TIME_S:
            why = f"the {TIME_S:g} s for reports were used up before it"
            reports.append(Report(log, None, why))
        else:
            within = limits._replace(time_s=min(limits.time_s, left_s))
            folder = os.path.join(into, str(number))
            try:
                # An unfinished report goes with the folder that it is made in.
                os.makedirs(into, exist_ok=True)
                with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=into) as work:
                    reports.append(_report(program, log, folder, work, known, within))
            except TooLarge as error:
                reports.append(Report(log, None, f"no report is made of the log: {error}"))
            except OSError as error:
                why = f"no report could be written: {error.strerror or error}"
                reports.append(Report(log, None, why))
    return reports


def _report(
    program: str, log: str, folder: str, work: str, known: Sequence[str], limits: Limits
) -> Report:
    stream = open_stream(log)
    copy, output = os.path.join(work, "torch_trace.log"), os.path.join(work, "report")
    with open(copy, "xb") as target:
        copied = copy_log(stream.chunks(), target, known)
    if not copied.records:
        why = stream.problem or "it holds no record of torch's"
        return Report(log, None, f"no report is made of the log: {why}")
    command = [program, copy, "-o", output, "--no-browser"]
    ended = run_with_limits(command, work, limits, {"BROWSER": "true", "RUST_BACKTRACE": "0"})
    if ended.problem is not None:
        last = f": {ended.output_tail.splitlines()[-1][:300]}" if ended.output_tail else ""
        return Report(log, None, f"tlparse made no report: {ended.problem}{last}")
    index = os.path.join(output, INDEX)
    if os.path.islink(index) or not os.path.isfile(index):
        return Report(log, None, f"tlparse made no report: there is no {INDEX}")
    size = 0
    for above, _, names in os.walk(output):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(above, name)).st_size
    if size > MAX_BYTES:
        return Report(log, None, f"tlparse's report is larger than {MAX_BYTES >> 30} GiB")
    os.rename(output, folder)  # fails where something is there
    return Report(log, folder, None, sum(copied.left_out.values()))


TAIL_BYTES = 2000
_WITH_LIMITS = """
for limit in "-c 0" "-v $1" "-f $2"; do ulimit $limit 2>/dev/null; done
shift 2
exec "$@"
"""
"""A limit that is lower already stays. The program starts with its limits: set from outside, they
may come after it has written; and nothing of ours may run between fork and exec."""
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class Limits(NamedTuple):
    """What a child may use; when it uses more it is ended."""

    time_s: float = 60.0
    memory_bytes: int = 4 << 30
    file_bytes: int = 512 << 20


class ChildEnded(NamedTuple):
    """How a child ended."""

    problem: str | None
    """None where it succeeded; else one sentence, without its name."""
    output_tail: str
    """The end of what it printed."""


def run_with_limits(
    command: Sequence[str],
    folder: str,
    limits: Limits,
    environment: Mapping[str, str],
) -> ChildEnded:
    """Runs a command in a folder, with no input, and waits for its end.

    Its environment is `environment` and few variables of ours. Processes that it leaves running are
    killed.
    """
    passed_on = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
    kib, blocks = limits.memory_bytes // 1024, limits.file_bytes // 512
    if shutil.which(command[0]) is None:
        return ChildEnded("it cannot be started: there is no such program", "")
    with tempfile.TemporaryFile() as printed:
        try:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _WITH_LIMITS, "sh", str(kib), str(blocks), *command],
                cwd=folder,
                env={**passed_on, **environment},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
        except OSError as error:
            return ChildEnded(f"it cannot be started: {error.strerror or error}", "")
        problem = None
        try:
            if code := child.wait(limits.time_s):
                problem = ended_with(code)
        except subprocess.TimeoutExpired:
            problem = f"it took longer than {limits.time_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        printed.seek(max(os.fstat(printed.fileno()).st_size - TAIL_BYTES, 0))
        return ChildEnded(problem, printed.read().decode("utf-8", "replace").strip())


def ended_with(code: int) -> str:
    """A return code other than 0, in words."""
    return f"it ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}"
