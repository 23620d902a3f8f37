"""tlparse's reports of torch's traces, and the cleaned copies of the traces that it is given.

The reports are made by its command line and linked. What goes wrong costs the reports and is said:
the receipt does not depend on them.

It gets one exact file (its 0.4.3 does not find logs in folders) and a fresh folder; `--overwrite`
is never used. It ends at one byte that is no UTF-8, uses names in the log as paths, and puts some
texts into its pages unescaped. The copy therefore holds only well-formed records, with known keys,
harmless names, no markup in metadata, and no secrets that are recognised.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple, cast

from compilediag.readers.lines import map_json, parse_object, split_lines
from compilediag.readers.storage import PlainStream
from compilediag.runs.run_directory import ARTIFACTS, REPORTS, TRACES
from compilediag_harness.redaction.redactor import Redactor

PROGRAM = "tlparse"
INDEX = "index.html"
TIME_S = 120.0
"""For all reports of one run."""
CHILD_TIME_S = 60.0
"""For one of them. Its memory and the size of the report follow from `MAX_LOG_BYTES`."""
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
    """Makes a report of every trace, without `known` secrets, among the artifacts of the run."""
    if not logs:
        return LinkedReports((NO_TRACE,))
    try:
        reports = make_reports(logs[:MAX_REPORTS], os.path.join(run_dir, ARTIFACTS, REPORTS), known)
        notes = [f"{os.path.basename(x.log)}: {x.problem}" for x in reports if x.problem]
        if len(logs) > MAX_REPORTS:
            notes.append(f"tlparse reports {MAX_REPORTS} of the {len(logs)} traces")
        made = [os.path.relpath(report.folder) for report in reports if report.folder is not None]
        if made:
            more = f" and {len(made) - 1} more" if len(made) > 1 else ""
            notes.append(f"tlparse's report: {os.path.join(made[0], INDEX)}{more}")
        linked = [
            {
                "trace": os.path.relpath(report.log, run_dir),
                "report": report.folder and os.path.relpath(report.folder, run_dir),
                "problem": report.problem,
                "records_left_out": report.left_out,
            }
            for report in reports
        ]
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"[:300]
        note = f"tlparse's report is not linked, by a fault of compilediag: {fault}"
        return LinkedReports((note,))
    return LinkedReports(tuple(notes), {"tlparse": {"reports": linked}})


def find_tlparse() -> str | None:
    """Find the program beside this Python, as pip installs it, else on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    return beside if os.access(beside, os.X_OK) else shutil.which(PROGRAM)


def make_reports(
    logs: Iterable[str],
    into: str,
    known: Sequence[str] = (),
    program: str | None = None,
) -> list[Report]:
    """Make a report of each log, in folders "1", "2"... of `into`, which is made; `program` is the
    installed one by default."""
    program = program or find_tlparse()
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
            folder = os.path.join(into, str(number))
            try:
                # An unfinished report goes with the folder that it is made in.
                os.makedirs(into, exist_ok=True)
                with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=into) as work:
                    reports.append(_make_report(program, log, folder, work, known, left_s))
            except TooLarge as error:
                reports.append(Report(log, None, f"no report is made of the log: {error}"))
            except OSError as error:
                why = f"no report could be written: {error.strerror or error}"
                reports.append(Report(log, None, why))
    return reports


def _make_report(
    program: str, log: str, folder: str, work: str, known: Sequence[str], left_s: float
) -> Report:
    stream = PlainStream(log)
    copy, output = os.path.join(work, "torch_trace.log"), os.path.join(work, "report")
    with open(copy, "xb") as target:
        copied = copy_log(stream.read_chunks(), target, known)
    if not copied.records:
        why = stream.problem or "it holds no record of torch's"
        return Report(log, None, f"no report is made of the log: {why}")
    command = [program, copy, "-o", output, "--no-browser"]
    ended = run_alone(command, work, min(CHILD_TIME_S, left_s))
    if ended.problem is not None:
        last = f": {ended.output_tail.splitlines()[-1][:300]}" if ended.output_tail else ""
        return Report(log, None, f"tlparse made no report: {ended.problem}{last}")
    index = os.path.join(output, INDEX)
    if os.path.islink(index) or not os.path.isfile(index):
        return Report(log, None, f"tlparse made no report: there is no {INDEX}")
    os.rename(output, folder)  # fails where something is there
    return Report(log, folder, None, copied.left_out.total())


TAIL_BYTES = 2000
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class ChildEnded(NamedTuple):
    """The end of a child."""

    problem: str | None
    """None where it succeeded; else one sentence, without its name."""
    output_tail: str
    """The end of what it printed."""


def run_alone(command: Sequence[str], folder: str, time_s: float) -> ChildEnded:
    """Runs a command in a folder, with no input and few variables of ours, and waits for its end.

    Processes that it leaves are killed.
    """
    passed_on = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
    with tempfile.TemporaryFile() as printed:
        try:
            child = subprocess.Popen(
                command,
                cwd=folder,
                env={**passed_on, "BROWSER": "true", "RUST_BACKTRACE": "0"},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
        except OSError as error:
            return ChildEnded(f"it cannot be started: {error.strerror or error}", "")
        problem = None
        try:
            if code := child.wait(time_s):
                problem = describe_exit_code(code)
        except subprocess.TimeoutExpired:
            problem = f"it took longer than {time_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        printed.seek(max(os.fstat(printed.fileno()).st_size - TAIL_BYTES, 0))
        return ChildEnded(problem, printed.read().decode("utf-8", "replace").strip())


def describe_exit_code(code: int) -> str:
    """Describe a return code other than 0 in words."""
    return f"it ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}"


# --- cleaned copies of traces ------------------------------------------------------------------

MAX_LOG_BYTES = 256 << 20
"""tlparse needs three times the log in memory, and writes twice the log."""
MAX_PAYLOADS = 50_000
"""Each becomes a file of the report."""
MAX_LINE_BYTES = 8 << 20
MAX_PAYLOAD_BYTES = 32 << 20

EVENTS = frozenset(
    (
        "str", "dynamo_start", "compilation_metrics", "bwd_compilation_metrics", "artifact",
        "dynamo_cpp_guards_str", "dynamo_guards", "guard_added", "guard_added_fast",
        "create_symbol", "create_unbacked_symbol", "symbolic_shape_specialization",
        "propagate_real_tensors_provenance", "describe_storage", "describe_tensor",
        "describe_source", "chromium_event", "dynamo_output_graph", "aot_joint_graph",
        "aot_forward_graph", "aot_backward_graph", "aot_inference_graph",
        "aot_forward_graph_fw_metadata", "inductor_pre_grad_graph", "inductor_post_grad_graph",
        "inductor_output_code", "optimize_ddp_split_graph", "optimize_ddp_split_child",
        "compiled_autograd_graph", "graph_dump", "missing_fake_kernel", "mismatched_fake_kernel",
        "expression_created",
    )
)  # fmt: skip
"""Records that a report shows; not `link` and `dump_file`, which hold addresses and paths."""
ID_FIELDS = ("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
MAX_ID = 10_000_000

_HEAD = re.compile(
    rb"(?P<when>[VDIWEC]\d{4} \d\d:\d\d:\d\d\.\d{1,9}) (?P<pid>\d{1,20}) "
    rb"(?P<path>[^\"\n]{1,400}?):(?P<line>\d{1,9})\] (?=\{)"
)
_HARMLESS = re.compile(r"[^A-Za-z0-9_-]+")
_CONTROLS = dict.fromkeys((*range(9), *range(11, 32), 127), " ")
_MARKUP = _CONTROLS | {9: " ", 10: " ", 60: "‹", 62: "›", 38: "+", 34: "'"}
"""`<`, `>`, `&` and quotation marks become signs that are no markup."""


class TooLarge(Exception):
    """The log is too large for a report; the message is the reason."""


@dataclass(slots=True)
class Copied:
    """Counts of a copy."""

    records: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Records by reason: "no_record", "unknown_event", "bad_number", "too_long"."""


class _Record(NamedTuple):
    head: re.Match[bytes]
    metadata: bytes
    payload: list[bytes]


def copy_log(pieces: Iterable[bytes], target: BinaryIO, known: Sequence[str] = ()) -> Copied:
    """Writes a copy of the bytes of a log, without the secret values that are `known`.

    Raises:
        TooLarge: no report can be made of it.
    """
    copied, redactor, payloads = Copied(), Redactor(known), 0
    for record in _iterate_records(pieces, copied):
        try:
            cleaned = _clean_record(record, copied, redactor)
        except RecursionError:
            copied.left_out["no_record"] += 1
            continue
        if cleaned is None:
            continue
        payloads += bool(record.payload)
        if payloads > MAX_PAYLOADS:
            raise TooLarge(f"it holds more than {MAX_PAYLOADS:,} artifacts")
        target.write(cleaned)
        copied.records += 1
    return copied


def _limit_size(pieces: Iterable[bytes]) -> Iterator[bytes]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_LOG_BYTES:
            raise TooLarge(f"it is larger than {MAX_LOG_BYTES >> 20} MiB")
        yield piece


def _iterate_records(pieces: Iterable[bytes], copied: Copied) -> Iterator[_Record]:
    current: _Record | None = None
    size = 0
    for line, *_ in split_lines(_limit_size(pieces), MAX_LINE_BYTES + 1):
        if line.startswith(b"\t"):
            size += len(line)
            if current is not None and size <= MAX_PAYLOAD_BYTES:
                current.payload.append(line[1:])
            elif current is not None:
                copied.left_out["too_long"] += 1
                current = None
            continue
        if current is not None:
            yield current
        current, size = None, 0
        head = _HEAD.match(line)
        if head is not None and len(line) <= MAX_LINE_BYTES:
            current = _Record(head, line[head.end() :], [])
        elif line.strip():
            copied.left_out["no_record" if head is None else "too_long"] += 1
    if current is not None:
        yield current


def _clean_record(record: _Record, copied: Copied, redactor: Redactor) -> bytes | None:
    fields = parse_object(record.metadata) or {}
    event = next(iter(fields), None)
    if event not in EVENTS:
        copied.left_out["no_record" if event is None else "unknown_event"] += 1
        return None
    ids = {name: fields[name] for name in ID_FIELDS if fields.get(name) is not None}
    # A bool is an int, and no id.
    if any(type(value) is not int or not 0 <= value <= MAX_ID for value in ids.values()):
        copied.left_out["bad_number"] += 1
        return None
    cleaned: dict[str, Any] = {event: _remove_markup(fields[event]), **ids}
    # Names, which become file names, are plain words.
    about = cast("dict[str, Any]", cleaned[event]) if isinstance(cleaned[event], dict) else {}
    for key in ("name", "filename"):
        if isinstance(text := about.get(key), str):
            stem = text.rpartition("/")[2].removesuffix(".py")
            word = _HARMLESS.sub("_", stem)[:100] or "unnamed"
            about[key] = f"{word}.py" if text.endswith(".py") else word
    if isinstance(fields.get("stack"), list):
        cleaned["stack"] = _remove_markup(fields["stack"])
    lines: list[bytes] = []
    if record.payload or "has_payload" in fields:
        text = b"\n".join(record.payload).decode("utf-8", "replace").translate(_CONTROLS)
        payload = redactor.redact_text(text).encode("utf-8", "replace")
        # As torch does: the digest of the text, which was changed.
        cleaned["has_payload"] = hashlib.md5(payload, usedforsecurity=False).hexdigest()
        lines = [b"\t" + line for line in payload.split(b"\n")]
    metadata = redactor.redact_text(json.dumps(cleaned, ensure_ascii=True))
    head = record.head
    path = _HARMLESS.sub("_", head["path"].decode("ascii", "replace").replace(".py", ""))
    prefix = b"%s %s %s.py:%s] " % (head["when"], head["pid"], path.encode(), head["line"])
    return b"\n".join([prefix + metadata.encode("ascii", "replace"), *lines, b""])


def _remove_markup(value: Any) -> Any:
    """Remove markup and control characters from values, at any depth."""
    return map_json(
        value,
        lambda leaf: leaf.translate(_MARKUP) if isinstance(leaf, str) else leaf,
        lambda name: name.translate(_MARKUP),
    )


def list_traces(run_dir: str) -> list[str]:
    """List the traces that a run stored, by path."""
    try:
        with os.scandir(os.path.join(run_dir, ARTIFACTS, TRACES)) as entries:
            return sorted(file.path for file in entries if file.is_file(follow_symlinks=False))
    except OSError:
        return []


def clean_traces(run_dir: str, attached: int, known: Sequence[str]) -> tuple[str, ...]:
    """Takes the secrets out of traces that a process wrote which compilediag was not attached to;
    an attached one writes its trace without them.

    `attached` is the count of processes that do so themselves, each of which writes one trace at
    most; `known` are secret values. Returns sentences for the user.
    """
    traces = list_traces(run_dir)
    if len(traces) <= attached:
        return ()
    notes: list[str] = []
    for path in traces:
        cleaned = f"{path}.cleaned"
        try:
            with open(cleaned, "xb") as target:
                copy_log(PlainStream(path).read_chunks(), target, known)
            os.replace(cleaned, path)
        except (OSError, TooLarge) as error:
            for name in (path, cleaned):
                with contextlib.suppress(OSError):
                    os.unlink(name)
            notes.append(
                f"{os.path.basename(path)} was removed: compilediag was not attached to the "
                f"process that wrote it, and no copy without secrets could be made: {error}"
            )
    return tuple(notes)
