"""Recorded runs (`run --record`): what they keep for a later `certify`, and how it finds them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import glob
from itertools import islice

import msgspec

from compilediag.certify.points import ExecutedState
from compilediag.errors import CompilediagError
from compilediag.readers.journal import read_run
from compilediag.readers.storage import compute_sha256
from compilediag.receipt.file import read_receipt
from compilediag.receipt.locate import RUNS_FOLDER
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import Record
from compilediag.runs.certify.user_files import iterate_files
from compilediag.runs.checkout import find_repository_root
from compilediag.runs.run_directory import list_text_logs
from compilediag.runs.supervised.assemble import (
    list_user_roots,
    read_logs,
    select_recorded_variables,
)
from compilediag.runs.supervised.child import Outcome
from compilediag.runs.supervised.run import CACHE_VARIABLES
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.supervised.target import parse_target
from compilediag.runs.trials.trial import describe_problem, run_with_plan
from compilediag.timeline.timeline import fold
from compilediag_harness.base import atomic_write
from compilediag_harness.redaction.redactor import Redactor, list_secret_values
from compilediag_harness.wire import RecordingPlan, TrialPlan

NAME = "recording.json"
PROVED = "proved.json"
"""Of a run: digests of the sources of the latest state that is proved against it."""
SOURCES = "sources"
"""Folder of a run: its sources, each under its digest."""

VARY_S = 10.0
"""Longest time of the calls with other inputs at the end of a process that compiles quickly."""
HASH_SEED = "PYTHONHASHSEED"

MAX_FILES, MAX_BYTES = 2_000, 64 << 20
"""Of the sources that a run keeps."""
MAX_LISTED = 20_000
"""Of the files that were there before it."""


class Recording(Record, frozen=True, kw_only=True):
    """Facts of a recorded run, for who compares with it."""

    command: str  #: Digest of the command line, which may hold secrets.
    folder: str  #: Working directory.
    started_unix: float
    ended_unix: float
    seed: int
    hash_seed: str  #: PYTHONHASHSEED of its processes.
    #: Digests of the variables of its environment that change what torch does.
    variables: dict[str, str]
    steps: int | None  #: After how many it was to stop.
    #: Files and folders of the repository before it, "/" behind a folder; None: too many.
    files: tuple[str, ...] | None = None


class RecordedRun(Record, frozen=True):
    """A run that a change can be compared with."""

    path: str  #: Its folder.
    recording: Recording
    receipt: Receipt

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


def choose_seed() -> int:
    """Choose a seed for the generators and hashes of a recording: that of hashes if it is set."""
    chosen = os.environ.get(HASH_SEED, "")
    return int(chosen) if chosen.isdecimal() else int.from_bytes(os.urandom(4), "little")


def record_run(
    words: Sequence[str], options: RunOptions, caches: Mapping[str, str] | None = None
) -> Outcome:
    """Run `words` and record what a change of it can be compared with. `caches`: variables with
    the folders of its compile caches, in place of those of the environment.

    Raises:
        UsageError: the target was not started.
    """
    seed, started = choose_seed(), time.time()
    environ = {HASH_SEED: str(seed), **os.environ}
    hides = HASH_SEED not in os.environ
    root = find_repository_root(os.getcwd()) or os.getcwd()
    files = tuple(islice(iterate_files(root, folders=True), MAX_LISTED + 1))
    plan = TrialPlan(recording=RecordingPlan(seed, VARY_S, hides_hash_seed=hides))
    outcome = run_with_plan(words, options, {**environ, **(caches or {})}, plan)
    receipt = outcome.receipt
    if receipt is None or outcome.receipt_path is None:
        return outcome
    recording = Recording(
        command=_digest_command(words),
        folder=os.getcwd(),
        started_unix=started,
        ended_unix=time.time(),
        seed=seed,
        hash_seed=environ[HASH_SEED],
        steps=options.steps,
        variables=_digest_variables(environ),
        files=files if len(files) <= MAX_LISTED else None,
    )
    try:
        _keep_sources(receipt, outcome.run_dir, list_secret_values(words, environ))
        content = msgspec.json.encode(recording)
        atomic_write.write(os.path.join(outcome.run_dir, NAME), [content])
    except OSError as error:
        shutil.rmtree(os.path.join(outcome.run_dir, SOURCES), ignore_errors=True)
        note = f"the recording cannot be written, and nothing compared with it: {error.strerror}"
        return replace(outcome, notes=(*outcome.notes, note))
    return outcome


def _keep_sources(receipt: Receipt, run_dir: str, secrets: Sequence[str]) -> None:
    """Keep the sources of a run as far as they are what ran and hold no secret."""
    folder, redactor, room = os.path.join(run_dir, SOURCES), Redactor(secrets), MAX_BYTES
    os.mkdir(folder)
    digests = receipt.header.provenance.source_sha256
    for name, digest in [pair for pair in digests.items() if pair[0].endswith(".py")][:MAX_FILES]:
        content = b""
        with contextlib.suppress(OSError), open(name, "rb") as stream:
            content = stream.read()
        if hashlib.sha256(content).hexdigest() != digest or len(content) > room:
            continue
        text = content.decode("utf-8", "replace")
        if redactor.redact_text(text) == text:
            room -= len(content)
            atomic_write.write(os.path.join(folder, f"{digest}.py"), [content], flushed=False)


def read_kept_source(recorded: RecordedRun, digest: str) -> bytes | None:
    """Read the source with a digest that a run kept; None where it kept none."""
    with contextlib.suppress(OSError):
        with open(os.path.join(recorded.path, SOURCES, f"{digest}.py"), "rb") as stream:
            content = stream.read()
        return content if hashlib.sha256(content).hexdigest() == digest else None
    return None


def _digest_command(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()


def _digest_variables(environ: Mapping[str, str]) -> dict[str, str]:
    chosen = select_recorded_variables(environ).items()
    ours = "COMPILEDIAG_"
    return {name: _digest_command([text]) for name, text in chosen if not name.startswith(ours)}


def find_recorded_run(words: Sequence[str]) -> RecordedRun | None:
    """Find the newest recorded run of a command line in this folder that came to its end, else the
    newest one: the failure may be an edit's."""
    command, here = _digest_command(words), os.getcwd()
    failed: RecordedRun | None = None
    for path in sorted(glob(os.path.join(RUNS_FOLDER, "[0-9]*", NAME)), reverse=True):
        with contextlib.suppress(OSError, msgspec.DecodeError, CompilediagError):
            with open(path, "rb") as stream:
                recording = msgspec.json.decode(stream.read(), type=Recording)
            if (recording.command, recording.folder) == (command, here):
                run_dir = os.path.abspath(os.path.dirname(path))
                found = RecordedRun(run_dir, recording, read_receipt(run_dir))
                if found.receipt.status == "complete":
                    return found
                failed = failed or found
    return failed


def has_changed_since(receipt: Receipt) -> bool:
    """True if sources of a run are not those of the newest recorded run of the same command line,
    which `certify` compares with, nor those that are proved against it."""
    recorded = None
    with contextlib.suppress(OSError):  # the program removed the folder
        recorded = find_recorded_run(receipt.header.run.argv_redacted)
    if recorded is None:
        return False
    now = receipt.header.provenance.source_sha256
    before = recorded.receipt.header.provenance.source_sha256
    proved = dict[str, str]()
    kept = os.path.join(recorded.path, PROVED)
    with contextlib.suppress(OSError, msgspec.DecodeError), open(kept, "rb") as stream:
        proved = msgspec.json.decode(stream.read(), type=dict[str, str])
    after = {name: proved.get(os.path.abspath(name), digest) for name, digest in before.items()}
    known = (before, after)
    return not any(all(now.get(n, d) == d for n, d in state.items()) for state in known)


def keep_proved(recorded: RecordedRun, digests: Mapping[str, str]) -> None:
    """Keep the digests of sources that are proved against a recorded run: a run of them needs no
    proof again. Where they cannot be written, it is asked for once more."""
    with contextlib.suppress(OSError):
        # Receipts name files as the program's folder sees them.
        content = msgspec.json.encode({os.path.abspath(n): d for n, d in digests.items()})
        atomic_write.write(os.path.join(recorded.path, PROVED), [content])


def explain_other_conditions(recorded: RecordedRun, environ: Mapping[str, str]) -> str | None:
    """Explain why a run cannot stand for an execution of its state now; None where it can."""
    receipt, recording = recorded.receipt, recorded.recording
    lost = receipt.completeness
    if receipt.status not in ("complete", "failed"):
        return f"the recorded run ended as {receipt.status}"
    if any(lost.records_lost.values()) or lost.journal_torn_tail:
        return "records of the recorded run were lost"
    now, before = _digest_variables(environ), recording.variables
    # A compile cache changes no result, and `certify` has empty ones of its own.
    for name in sorted({*now, *before} - {HASH_SEED, *CACHE_VARIABLES}):
        if now.get(name) != before.get(name):
            return f"{name} is not what it was in the recorded run"
    if environ.get(HASH_SEED, recording.hash_seed) != recording.hash_seed:
        return f"{HASH_SEED} is not what it was in the recorded run"
    for name, digest in receipt.header.provenance.source_sha256.items():
        if not name.endswith(".py") and _digest_file(name) != digest:
            return f"{name} has changed since the recorded run"
    return _find_changed_package(recording.started_unix)


def _find_changed_package(since_unix: float) -> str | None:
    """Find an installed package that was made, or a source of one that was written, since then."""
    top = sysconfig.get_path("purelib")
    packages = glob(os.path.join(top, "*.dist-info"))
    if any(os.path.getmtime(package) > since_unix for package in packages):
        return "packages were installed since the recorded run"
    for folder, _, names in os.walk(top):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            with contextlib.suppress(OSError):
                if os.path.getmtime(path) > since_unix:
                    return f"{os.path.relpath(path, top)}, which is installed, has changed since"
    return None


def _digest_file(name: str) -> str:
    try:
        with open(name, "rb") as stream:
            return compute_sha256(stream)
    except OSError:
        return ""


def load_state(recorded: RecordedRun, words: Sequence[str]) -> ExecutedState:
    """Load a recorded run of a command line as an executed state."""
    logs = list_text_logs(recorded.path)
    timeline = fold(
        [journal.events for journal in read_run(recorded.path)],
        read_logs(logs) if logs else None,
        list_user_roots(recorded.recording.folder, parse_target(words).script),
    )
    code = recorded.receipt.header.run.exit_code or 0
    problem = describe_problem(recorded.receipt, code)
    return ExecutedState(recorded.receipt, timeline, problem, is_watched=False)
