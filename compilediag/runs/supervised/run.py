"""Runs a target as a supervised child and leaves a receipt, however it ends; once, or as a program
that is run several times, with the caches of each run, as for `cold-and-warm`."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import msgspec

from compilediag import extension_points
from compilediag.errors import EXIT_INTERNAL, EXIT_OK, EXIT_USAGE, OutputUnwritable, UsageError
from compilediag.receipt.locate import RECEIPT_NAME, RUNS_FOLDER
from compilediag.receipt.schema.identity import Provenance
from compilediag.runs.checkout import digest_script, start_provenance_read
from compilediag.runs.run_directory import ARTIFACTS, TRACES, RunFiles, make_run_dir, save_receipt
from compilediag.runs.supervised.assemble import assemble
from compilediag.runs.supervised.child import (
    PASSED_ON,
    STDERR,
    CommandLine,
    ExitInfo,
    Outcome,
    SupervisedRun,
    TelemetryReport,
    make_child_environment,
    replace_receipt,
    start_target,
    supervise,
)
from compilediag.runs.supervised.depyf import decompile_frames
from compilediag.runs.supervised.live_tail import WITHOUT_ESCAPES, LiveView
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.supervised.signals import GroupSignalMonitor, SignalInbox
from compilediag.runs.supervised.target import limit_plan, parse_target
from compilediag.runs.work_progress import WorkProgress
from compilediag_harness.base.process_options import ProcessOptions, WriteTracingPlan

REMOVED = "the directory of the run, {}, or a file in it was removed while the program ran"


def run(words: Sequence[str], options: RunOptions, env: Mapping[str, str] | None = None) -> Outcome:
    """Run `words`, which are TARGET and everything after it. `env` is the environment of the
    target, before ours is added; this process's by default.

    Raises:
        UsageError: the target was not started.
    """
    variables = dict(os.environ if env is None else env)
    target = parse_target(words)
    started = time.time()
    name = options.name or target.name
    run_dir = make_run_dir(options.output, name, now=started, pid=os.getpid())
    running = SupervisedRun(tuple(words), options, variables, target, run_dir, started, os.getcwd())
    open_files = RunFiles(run_dir)
    # Invariant: signals stay messages until the receipt is written: else Ctrl-C twice loses it.
    with SignalInbox() as inbox, contextlib.closing(open_files):
        with GroupSignalMonitor(PASSED_ON) as group_monitor:
            ended, provenance, report = _run_child(running, inbox, group_monitor, open_files)
            notes = decompile_frames(running, ended, inbox, group_monitor) if options.depyf else ()
        moved, lost = _recover_files(running, open_files)
        outcome = _conclude(moved, ended, provenance, report, (*lost, *notes))
        gone, stopped = moved.run_dir != run_dir, ended.interrupts > 0 or ended.passed_on
        return replace(outcome, moved=gone, stopped=stopped, timed_out=ended.timed_out)


def _run_child(
    run: SupervisedRun,
    inbox: SignalInbox,
    group_monitor: GroupSignalMonitor,
    open_files: RunFiles,
) -> tuple[ExitInfo, Callable[[], Provenance], TelemetryReport | None]:
    options, script = run.options, run.target.script
    artifacts = os.path.join(run.run_dir, ARTIFACTS)
    trace_dir = os.path.join(artifacts, TRACES) if options.trace or options.tlparse else None
    if trace_dir is not None:
        os.makedirs(trace_dir, exist_ok=True)
    plan = options.write_tracing_plan or WriteTracingPlan()
    process_options = ProcessOptions(  # what the processes of the target are told
        steps=options.steps,
        sync_steps=options.sync_steps,
        write_tracing=limit_plan(plan) if options.trace_writes else None,
        past_limit=options.past_limit or None,
    )
    environment = make_child_environment(
        run.variables, run.run_dir, process_options, trace_dir=trace_dir
    )
    digests = digest_script(script)  # before the target can change it
    started = time.monotonic()
    try:
        child = start_target(
            run.target.command,
            environment,
            stdout_to_stderr=options.as_json,
            output_file=options.output_file,
        )
    except UsageError:
        with contextlib.suppress(OSError):  # ours, and empty
            for folder, _, _ in os.walk(run.run_dir, topdown=False):
                os.rmdir(folder)
        raise
    folder = os.path.dirname(os.path.abspath(script)) if script else os.getcwd()
    provenance = start_provenance_read(folder, digests)
    live = _start_live_view(run)
    export = None
    if options.telemetry is not None:
        export = extension_points.load(extension_points.TELEMETRY_EXPORT, "telemetry")(run)
    try:
        ended = supervise(
            child,
            inbox,
            group_monitor,
            started=started,
            grace_s=options.grace_s,
            timeout_s=options.timeout_s,
            open_files=open_files,
            notify=live.notify if live is not None else lambda text: None,
        )
    finally:
        if live is not None:
            live.stop()
    report = None if export is None else export(ended)
    return ended, provenance, report


def _start_live_view(run: SupervisedRun) -> LiveView | None:
    shown = run.options.live and not run.options.quiet and os.isatty(STDERR)
    if not shown or run.variables.get("TERM", "") in WITHOUT_ESCAPES:
        return None
    view = LiveView(run.run_dir, STDERR, run.secrets)
    view.start()
    return view


def _recover_files(run: SupervisedRun, files: RunFiles) -> tuple[SupervisedRun, tuple[str, ...]]:
    """Return the run with a directory that has its files, and a note where that is another one."""
    files.open_new()
    if files.in_place:
        return run, ()
    try:
        folder = files.save_copies(run.configuration_name, run.started_unix)
    except OSError as error:
        return run, (f"what was recorded is lost: {REMOVED.format(run.run_dir)}; {error}",)
    note = (
        f"{REMOVED.format(run.run_dir)}; its journals, kept open, and the receipt are in "
        f"{folder}; processes that started after that are not in it"
    )
    return replace(run, run_dir=folder), (note,)


def _conclude(
    run: SupervisedRun,
    ended: ExitInfo,
    provenance: Callable[[], Provenance],
    report: TelemetryReport | None,
    notes: tuple[str, ...],
) -> Outcome:
    """Make the receipt; a fault of ours costs the receipt, never the target's exit code."""
    code, run_dir = ended.exit_code, run.run_dir
    try:
        with WorkProgress(silent=run.options.quiet) as progress:
            receipt, more, timeline = assemble(run, ended, provenance(), report, progress.set_stage)
        try:
            latest = os.path.basename(os.path.dirname(run_dir)) == RUNS_FOLDER
            path = save_receipt(receipt, run_dir, latest=latest and run.options.output is None)
        except OutputUnwritable as error:
            notes = (f"{error} The target's run is not affected.",)
            return Outcome(code, run_dir, receipt, None, notes, timeline)
    except Exception as error:
        return Outcome(code or EXIT_INTERNAL, run_dir, None, None, (describe_fault(error),))
    return Outcome(code, run_dir, receipt, path, (*notes, *more), timeline)


def describe_fault(error: Exception) -> str:
    """Describe a fault of ours that cost the receipt, in one sentence."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if os.environ.get("COMPILEDIAG_TRACEBACK"):
        traceback.print_exception(error)
    return (
        f"no receipt: a fault of compilediag itself, not of the target: {text} "
        f"(at {os.path.basename(frame.filename)}:{frame.lineno}; the whole traceback with "
        "COMPILEDIAG_TRACEBACK=1); the journal of the run is intact"
    )


CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")

READ_ONCE = "a program on stdin can be read only once: put it into a file"


CacheUse: TypeAlias = Literal["empty", "linked", "kept"]
"""Compile caches of a run: empty ones, what there is but nothing written into it, or those."""

_NOT_LINKED = ("dynamo", "locks")
"""Folders of inductor's cache: sizes that earlier runs had, which decide what is compiled as
dynamic (`torch._dynamo.pgo`), and what a process holds."""

_NOT_READ = (".lock", ".cpp")
"""How files end that a later start does not read."""

MAX_LINKED = 20_000
"""Files of a cache that are linked: of a larger one a part, and the rest is compiled."""


@contextlib.contextmanager
def provide_caches(
    use: CacheUse, environ: Mapping[str, str] | None = None
) -> Generator[dict[str, str], None, None]:
    """Provide a run with compile caches of its own, gone at the end, and yield their variables;
    `environ` is that of the run."""
    if use == "kept":
        yield {}
        return
    with tempfile.TemporaryDirectory(
        prefix="compilediag-caches-", ignore_cleanup_errors=True
    ) as folder:
        own = {name: os.path.join(folder, name.partition("_")[0]) for name in CACHE_VARIABLES}
        if use == "linked":
            there = find_cache_folders(os.environ if environ is None else environ)
            for name, path in own.items():
                _link_files(there[name], path)
        yield own


def find_cache_folders(environ: Mapping[str, str]) -> dict[str, str]:
    """Find the folders of the compile caches that a run has, by the name of their variable, as
    `torch._inductor.runtime.cache_dir_utils` does; that of the first device for Triton's."""
    inductor, triton = CACHE_VARIABLES
    user = f"uid_{os.getuid()}"
    with contextlib.suppress(KeyError, OSError):
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    default = os.path.join(tempfile.gettempdir(), f"torchinductor_{user}")
    folder = environ.get(inductor) or default
    return {inductor: folder, triton: environ.get(triton) or os.path.join(folder, "triton", "0")}


def _link_files(there: str, here: str) -> None:
    """Link the files of a cache: torch replaces files there, and writes into none."""
    room = MAX_LINKED
    for folder, names, files in os.walk(there):
        names[:] = [name for name in names if name not in _NOT_LINKED]
        place = os.path.join(here, os.path.relpath(folder, there))
        found = [name for name in files if not name.endswith(_NOT_READ)][: max(room, 0)]
        room -= len(found)
        with contextlib.suppress(OSError):  # gone, or on another file system
            for name in found:
                os.makedirs(place, exist_ok=True)
                os.link(os.path.join(folder, name), os.path.join(place, name))


@dataclass(frozen=True, slots=True)
class Program(CommandLine):
    """A program that is run several times: what all its runs share."""

    folder: str
    """The directory that those of the runs are in."""

    def run(
        self,
        output: str,
        variables: Mapping[str, str] | None = None,
        *,
        words: Sequence[str] | None = None,
        caches: CacheUse = "empty",
        **changes: Any,
    ) -> Outcome:
        """Make one run in a directory of its own, with empty caches unless `caches` says otherwise.
        `variables` are of its environment, beside those of all runs; `words` and `changes` are what
        it has in place of the command line and the options of all.

        Raises:
            UsageError: it cannot be started, or its directory cannot be made.
        """
        options = replace(self.options, output=output, **changes)
        with provide_caches(caches, self.variables) as own:
            environ = {**self.variables, **own, **(variables or {})}
            return run(words or self.words, options, environ)


def make_program(
    words: Sequence[str],
    options: RunOptions,
    environ: Mapping[str, str] | None,
    *,
    on_stdin: str = READ_ONCE,
) -> Program:
    """Make a program with a new directory for all its runs, and the name of its configuration.
    `environ` as in `run`; `on_stdin`: what the user reads of a program that can be read only once.

    Raises:
        UsageError: it cannot be started, or is read from stdin.
        OutputUnwritable: there is no room for the runs.
    """
    target = parse_target(words)
    if target.kind == "stdin":
        raise UsageError(on_stdin)
    name = options.name or target.name
    folder = make_run_dir(options.output, name, now=time.time(), pid=os.getpid())
    variables = dict(os.environ if environ is None else environ)
    return Program(tuple(words), replace(options, name=name), variables, folder)


# --- cold-and-warm -------------------------------------------------------------------------------

COLD = "cold"
"""Folder of the first start, below the directory of the second."""

_REMOTE = ("REMOTE_CACHE", "REMOTE_PGO")
"""In the names of variables that switch on caches of other machines, which are not empty."""


def run_twice(words: Sequence[str], options: RunOptions, notify: Callable[[str], None]) -> Outcome:
    """Run TARGET twice with the same caches, which are empty before the first start, and say what
    the second start still compiles.

    The receipt is that of the second start; the first one's is in the folder `cold` beside it.
    Where the first start fails, it is the run, and there is no second. The exit code is that of the
    newest start; 2 where that is 0 and nothing could be concluded. `notify` is called before each
    start with what it is.

    Raises:
        UsageError: nothing was started.
        OutputUnwritable: there is no room for the run or for its caches.
    """
    program = make_program(words, options, None)
    try:
        with (
            provide_caches("empty") as new,
            tempfile.TemporaryDirectory(
                prefix="compilediag-cold-", ignore_cleanup_errors=True
            ) as place,
        ):
            remote = [name for name in program.variables if any(part in name for part in _REMOTE)]
            variables = {**program.variables, **dict.fromkeys(remote, "0"), **new}
            program = replace(program, variables=variables)
            cold_folder = os.path.join(place, COLD)
            return _run_both(program, notify, cold_folder, new["TORCHINDUCTOR_CACHE_DIR"])
    except UsageError:
        shutil.rmtree(program.folder, ignore_errors=True)  # ours and new: nothing was started
        raise
    except OSError as error:
        raise OutputUnwritable(
            f"a temporary folder for the caches cannot be made ({error.strerror or error}): set "
            "TMPDIR to a folder with room"
        ) from error


def _run_both(
    program: Program, notify: Callable[[str], None], cold_folder: str, cache_folder: str
) -> Outcome:
    notify("start 1 of 2: empty caches")
    cold = program.run(cold_folder, caches="kept", telemetry=None)
    if cold.exit_code or cold.receipt is None or cold.receipt.status != "complete":
        return _conclude_cold_only(program, cold)
    emptied = not any(files for _, _, files in os.walk(cache_folder))
    notify("start 2 of 2: the caches that start 1 left")
    warm = program.run(program.folder, caches="kept")
    shutil.move(cold.run_dir, os.path.join(warm.run_dir, COLD))
    return _compare_starts(program, cold, warm, cache_folder, emptied=emptied)


def _conclude_cold_only(program: Program, cold: Outcome) -> Outcome:
    """Copy the first start to the place of both: there is no second to compare it with."""
    why = "the first start failed" if cold.exit_code else "the first start is not whole"
    notes = (*cold.notes, f"{why}: there was no second, and nothing is compared")
    if cold.moved:
        return replace(cold, notes=notes)
    shutil.copytree(cold.run_dir, program.folder, dirs_exist_ok=True)
    path = os.path.join(program.folder, RECEIPT_NAME) if cold.receipt_path is not None else None
    if cold.receipt is not None and path is not None:
        save_receipt(cold.receipt, program.folder, latest=program.options.output is None)
    code = cold.exit_code or EXIT_USAGE
    return replace(cold, exit_code=code, run_dir=program.folder, receipt_path=path, notes=notes)


def _compare_starts(
    program: Program, cold: Outcome, warm: Outcome, cache_folder: str, *, emptied: bool
) -> Outcome:
    from compilediag.compare.cold_and_warm import conclude, find_changing_keys, make_not_concluded
    from compilediag.receipt.assemble import extend_receipt

    if warm.receipt is None or warm.timeline is None or cold.timeline is None:
        return warm
    if warm.receipt.status != "complete" or warm.exit_code:
        result = make_not_concluded(
            f"the second start ended as {warm.receipt.status} with exit code {warm.exit_code}"
        )
    else:
        result = conclude(cold.timeline, warm.timeline, cache_folder)
    if emptied and result.section.verdict != "not_concluded":
        note = (
            "nothing was left in the cache folder after the first start: it was deleted, or "
            "nothing could be written"
        )
        notes = (*result.section.notes, note)
        result = result._replace(section=msgspec.structs.replace(result.section, notes=notes))
    code = warm.exit_code or (EXIT_USAGE if result.section.verdict == "not_concluded" else EXIT_OK)
    try:
        receipt = extend_receipt(
            warm.receipt,
            warm.timeline,
            find_changing_keys(warm.timeline, result),
            program.secrets,
            cold_and_warm=result.section,
        )
    except Exception as error:
        return replace(warm, exit_code=code or EXIT_INTERNAL, notes=(describe_fault(error),))
    latest = program.options.output is None and not warm.moved
    return replace_receipt(replace(warm, exit_code=code), receipt, latest=latest)
