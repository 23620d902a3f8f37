"""The executions behind a certificate: the recorded run where it can stand for the old state, the
new state once, and further ones only where they decide something."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace

from compilediag.certify.change import Change
from compilediag.certify.judge import judge
from compilediag.certify.other_inputs import call_by_name, find_boundary
from compilediag.certify.points import Certificate, ExecutedState, JudgedPoint, Outcome, Verdict
from compilediag.certify.program import find_other_environment
from compilediag.errors import OutputUnwritable, UsageError
from compilediag.receipt.locate import RUNS_FOLDER
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.make_finding import shorten
from compilediag.runs.certify.options import CertifyOptions
from compilediag.runs.certify.recorded import (
    HASH_SEED,
    VARY_S,
    RecordedRun,
    choose_seed,
    explain_other_conditions,
    load_state,
)
from compilediag.runs.certify.states import States
from compilediag.runs.certify.user_files import UserFiles, iterate_files
from compilediag.runs.checkout import find_repository_root
from compilediag.runs.supervised.run import CacheUse, Program, make_program, provide_caches
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.trials.trial import Trials
from compilediag_harness.trials.forked import replace_action
from compilediag_harness.trials.redirected_writes import READ_FILES
from compilediag_harness.trials.settings import NO_SUCH_OPTION
from compilediag_harness.wire import LinesRun, Location, RecordingPlan, TrialPlan, WriteProtection

LIMIT_TIMES, LIMIT_EXTRA_S, LIMIT_COMPILE_S = 4.0, 60.0, 60.0
"""The new state may take so many times what the old one took, so many seconds beside, and so many
for each compile: the caches are empty, as they may not have been then."""

MAX_RECENT = 10_000
"""Files changed since the recorded run; with more it is executed again."""

_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME")

_OUTCOMES: Mapping[Verdict, Outcome] = {
    "proved": "holds",
    "refused": "fails",
    "not decided": "undecided",
}


@dataclass(slots=True)
class Pair:
    """The two executed states of one command line."""

    states: States
    options: CertifyOptions
    trials: Trials
    program: Program
    change: Change
    seed: int = field(default_factory=choose_seed)
    hash_seed: str = ""
    """Empty: that of the environment, or the seed."""
    recent: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    """Files and folders that the recorded run made."""
    read: str | None = None
    """A file that changed since the recorded run began, which the new state read."""
    written: set[str] = field(default_factory=set[str])
    """Files that the program wrote, whose content is not compared."""
    problems: list[str] = field(default_factory=list[str])
    """Why nothing can be decided."""
    limit_s: float | None = None
    backend: str | None = None
    """In place of the program's own."""
    certificate: Certificate | None = None
    """What could be judged of them so far."""

    def execute(
        self, what: str, *, new: bool, stance: str | None = None, at: Location | None = None
    ) -> ExecutedState:
        """Execute a state once; `at`: what is called with other inputs.

        Raises:
            UsageError: it could not be started, or left nothing.
            KeyboardInterrupt: the user ended it.
        """
        if self.trials.interrupted:  # in the calls with other inputs: nothing more is executed
            raise KeyboardInterrupt
        states = self.states
        sources, absent = states.lay_over(states.after if new else states.before)
        folder = f"{self.program.folder}/{self.trials.runs + 1:02}-files"
        os.makedirs(folder)
        vary_s = VARY_S if not self.options.no_vary and stance is None else 0.0
        lines = self.change.watched if new else self.change.watched_before
        lines = () if at is not None else lines  # both are traced
        hides = HASH_SEED not in self.program.variables
        boundaries = () if at is None else (at,)
        recording = RecordingPlan(self.seed, vary_s, boundaries, lines, hides_hash_seed=hides)
        own = states.plan if new else TrialPlan()
        plan = replace(
            own,
            sources=sources,
            absent=absent,
            stance=stance,
            backend=self.backend,
            recording=recording,
            protection=_protect(folder, self.program.variables, self.recent, self.made),
        )
        variables = {HASH_SEED: str(self.seed), **self.program.variables}
        variables |= {HASH_SEED: self.hash_seed} if self.hash_seed else {}
        variables |= states.variables if new else {}
        self.trials.program = replace(self.program, variables=variables)
        limit_s = self.options.timeout_s or self.limit_s
        trial = self.trials.run(what, what, plan, limit_s)
        if trial.interrupted and trial.problem is not None:
            raise KeyboardInterrupt
        if trial.observed is None:
            raise UsageError(f"{what}: {trial.problem}")
        if trial.timed_out and trial.problem is not None:
            more = "--timeout S allows more (with empty caches everything is compiled anew)"
            self.problems.append(f"{what} had not ended after {limit_s or 0:.0f} s: {more}")
        seen = trial.observed.timeline.trial_applied
        for applied in seen:
            if applied.problem == NO_SUCH_OPTION:
                raise UsageError(f"--config {applied.change}: {applied.problem}")
            if applied.problem is not None:
                self.problems.append(f"{applied.change}: {applied.problem}")
        for label in sorted({*own.labels} - {x.change for x in seen}):
            self.problems.append(f"{label} was not applied: the program never came to it")
        if os.path.exists(log := os.path.join(folder, READ_FILES)):
            with open(log, encoding="utf-8", errors="replace") as stream:
                self.read = stream.readline().strip()
        saved = {save.file for save in trial.observed.timeline.saved}
        names = {os.path.basename(path) for path in iterate_files(os.path.join(folder, "files"))}
        self.written |= names - saved
        shutil.rmtree(folder, ignore_errors=True)
        self.limit_s = self.limit_s or LIMIT_TIMES * trial.wall_s + LIMIT_EXTRA_S
        return ExecutedState(trial.observed.receipt, trial.observed.timeline, trial.problem)


class Interrupted(KeyboardInterrupt):
    """An end from outside, in words, and what could be judged of the two states by then."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair.trials.describe_end())
        self.executions = pair.trials.runs
        self.certificate = pair.certificate and pair.certificate.leave_open(str(self))


@dataclass(slots=True)
class Proof:
    """A certificate, and what it was made of."""

    certificate: Certificate
    before: ExecutedState
    after: ExecutedState
    executions: int
    folder: str
    recorded: RecordedRun | None
    """The run that stood for the old state."""
    notes: tuple[str, ...]


def make_proof(states: States, options: CertifyOptions, announce: Callable[[str], None]) -> Proof:
    """Execute what is needed of the two states, and judge the change.

    Raises:
        UsageError: a state could not be executed.
        Interrupted: it was ended from outside; nothing is left behind.
    """
    recorded = states.recorded
    program = make_program(options.target, RunOptions(name="certify"), None)
    limits = RunOptions()
    if recorded is not None:
        name = recorded.receipt.header.configuration.name
        limits = RunOptions(name=name, steps=recorded.recording.steps)
    program = replace(program, options=limits)
    try:
        caches = provide_caches(_choose_caches(states, options), program.variables)
        with protect_files(program.folder) as files, caches as own:
            program = replace(program, variables={**program.variables, **own})
            trials = Trials(program, announce, quiet=options.quiet, caches="kept")
            pair = Pair(states, options, trials, program, states.change)
            try:
                proof = _execute_and_judge(pair)
            except KeyboardInterrupt:
                raise Interrupted(pair) from None
    except BaseException:
        # A second Ctrl-C may have left copies of the user's files that were not put back.
        if not any(map(os.path.exists, _name_kept_folders(program.folder))):
            shutil.rmtree(program.folder, ignore_errors=True)
        raise
    if files.changed:
        names = ", ".join(files.changed[:3])
        why = f"the program wrote {names} past the redirection; it is as it was"
        if files.shared:
            why = f"{names} changed, by this program or another at work here; it was left"
        point = JudgedPoint("files", "undecided", why, details=tuple(files.changed))
        proof.certificate = Certificate((*proof.certificate.points, point))
    return proof


@contextlib.contextmanager
def protect_files(folder: str) -> Generator[UserFiles]:
    """Protect the user's files around executions, and give what they changed all the same;
    `folder`: that of the executions.

    Raises:
        OutputUnwritable: there is no room in it.
    """
    root = find_repository_root(os.getcwd()) or os.getcwd()
    files = UserFiles(root, *_name_kept_folders(folder))
    try:
        with _end_by_exception(), files:
            yield files
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OutputUnwritable(f"{folder} cannot be written: {error.strerror}") from error
        raise


def _name_kept_folders(folder: str) -> tuple[str, str]:
    """Name the folders for copies of the user's files, and for what was written over them."""
    return os.path.join(folder, "copies"), os.path.join(folder, "written")


@contextlib.contextmanager
def _end_by_exception() -> Generator[None]:
    """Let SIGTERM and a closed terminal end a block as Ctrl-C does: what it undoes is undone."""
    ends = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    with contextlib.ExitStack() as replaced:
        for number in ends:
            replaced.enter_context(replace_action(number, signal.default_int_handler))
        yield


def _choose_caches(states: States, options: CertifyOptions) -> CacheUse:
    """Choose the compile caches of all executions: what one compiles, the next finds there."""
    if options.keep_caches:
        return "kept"
    section = states.recorded and states.recorded.receipt.caches
    # A backend that looks into none needs none.
    unused = section and not any(used.hits or used.misses for used in section.caches)
    return "empty" if unused else "linked"


def _execute_and_judge(pair: Pair) -> Proof:
    states, options, trials, program = pair.states, pair.options, pair.trials, pair.program
    before, after, why = execute_both(pair, states.recorded)
    points = list[JudgedPoint]()
    for words in options.also:
        command = shlex.join(words)
        if trials.interrupted:
            points.append(JudgedPoint(f"also {command}", "undecided", trials.describe_end()))
            continue
        other = Pair(states, options, trials, replace(program, words=words), pair.change)
        try:
            first, second, _ = execute_both(other, None)
            points.append(_sum_up(command, decide(other, first, second)[0]))
        except KeyboardInterrupt:
            _judge(pair, before, after, {})
            raise
        before = _add_lines(before, first.timeline.lines_run)
        after = _add_lines(after, second.timeline.lines_run)
    certificate, before, after = decide(pair, before, after)
    if missing := states.missing:
        points.append(JudgedPoint("files", "undecided", missing[0], details=missing))
    notes = [f"the old state was executed too: {why}"] if why else []
    if pair.written:
        notes.append(f"written and not compared: {shorten(', '.join(sorted(pair.written)), 100)}")
    return Proof(
        certificate=Certificate((*certificate.points, *points)),
        before=before,
        after=after,
        executions=trials.runs,
        folder=program.folder,
        recorded=None if why else states.recorded,
        notes=(*states.notes, *notes),
    )


def execute_both(
    pair: Pair, recorded: RecordedRun | None, what: str = "the new state"
) -> tuple[ExecutedState, ExecutedState, str]:
    """Execute the new state, and the old one where no recorded run stands for it; the last is why
    it was executed. `what`: the new state, in words."""
    if recorded is None:
        why = "no recorded run of it is here"
    else:
        pair.seed, pair.hash_seed = recorded.recording.seed, recorded.recording.hash_seed
        pair.recent, pair.made = _list_recent(recorded)
        compile_s = LIMIT_COMPILE_S * recorded.receipt.compile.compiles
        pair.limit_s = LIMIT_TIMES * get_wall_s(recorded.receipt) + LIMIT_EXTRA_S + compile_s
        why = explain_other_conditions(recorded, pair.program.variables)
        why = why or ("many files have changed since" if len(pair.recent) > MAX_RECENT else None)
    if recorded is None or why is not None:
        pair.recent = pair.made = ()
        old = pair.execute(f"the old state: {why}", new=False)
        return old, pair.execute(what, new=True), why or ""
    new = pair.execute(what, new=True)
    old = load_state(recorded, pair.program.words)
    if pair.problems:
        why = None  # nothing could be decided
    elif new.problem is not None and old.problem is None:  # a port, a full disk, no input today?
        why = "the new state does not end well, and the old one may not either by now"
    else:
        why = find_other_environment(old, new)
    if why is None and pair.read is not None:
        name = os.path.relpath(pair.read)
        why = f"the program reads {name}, which was written since the recorded run began"
    if why is not None:
        old = pair.execute(f"the old state: {why}", new=False)
    return old, new, why or ""


def get_wall_s(receipt: Receipt) -> float:
    """Get the seconds that a run took; 0 where they are not known."""
    return (receipt.goodput.wall_s if receipt.goodput is not None else None) or 0.0


def decide(
    pair: Pair,
    before: ExecutedState,
    after: ExecutedState,
    known: dict[str, ExecutedState] | None = None,
) -> tuple[Certificate, ExecutedState, ExecutedState]:
    """Judge two executed states, with further executions where they decide something. `known`:
    those of the old state that were made before, by their kind; new ones are added."""
    varied = not pair.options.no_vary
    known = {} if known is None else known

    certificate = _judge(pair, before, after, known)
    ended = bool(pair.problems) or pair.trials.interrupted
    boundary = find_boundary(before, after) if varied and not ended else None
    if boundary is not None and certificate.verdict != "refused":
        ran = before.timeline.lines_run, after.timeline.lines_run
        # The boundary of what is compiled moved: what calls it is compared in its place.
        where = f"for the calls of {boundary[0].function}, above what is compiled"
        # A state that compiles the function itself has made its calls again.
        if not _has_varied(before, boundary[0]):
            before = pair.execute(f"the old state, {where}", new=False, at=boundary[0])
        if not _has_varied(after, boundary[1]):
            after = pair.execute(f"the new state, {where}", new=True, at=boundary[1])
        if boundary[0].function != boundary[1].function:
            after = call_by_name(after, boundary[1], boundary[0])
        before, after = _add_lines(before, ran[0]), _add_lines(after, ran[1])
        certificate = _judge(pair, before, after, known)
    further = certificate.further
    while further is not None and further not in known and not pair.trials.interrupted:
        stance = "force_eager" if further == "eager" else None
        what = "the old state once more: what differs by itself?"
        if stance:
            what = "the old state, not compiled: which lines does it run, and how does it round?"
        executed = pair.execute(what, new=False, stance=stance)
        # The lines of further command lines count, too.
        known[further] = _add_lines(executed, before.timeline.lines_run)
        certificate = _judge(pair, before, after, known)
        further = certificate.further
    if further is not None and further not in known:
        certificate = certificate.leave_open(pair.trials.describe_end())
    return certificate, before, after


def _has_varied(state: ExecutedState, function: Location) -> bool:
    return any(call.function == function for call in state.timeline.varied_calls)


def _add_lines(state: ExecutedState, lines: tuple[LinesRun, ...]) -> ExecutedState:
    """Add lines that other executions of a state ran."""
    lines += state.timeline.lines_run
    return replace(state, timeline=replace(state.timeline, lines_run=lines))


def _judge(
    pair: Pair, before: ExecutedState, after: ExecutedState, known: dict[str, ExecutedState]
) -> Certificate:
    if pair.problems:
        point = JudgedPoint("program", "undecided", pair.problems[0], details=tuple(pair.problems))
        pair.certificate = Certificate((point,))
    else:
        varied = not pair.options.no_vary
        pair.certificate = judge(before, after, pair.change, varied=varied, **known)  # type: ignore[arg-type]
    return pair.certificate


def _sum_up(command: str, certificate: Certificate) -> JudgedPoint:
    """Sum up the certificate of a further command line, where nothing need become better and not
    all changed lines run."""
    judged = [point for point in certificate.points if point.name not in ("better", "exercised")]
    rest = Certificate(tuple(judged))
    details = tuple(f"{point.name}: {point.sentence}" for point in certificate.points)
    sentence = rest.reason or "the same results, and as much compiled"
    return JudgedPoint(f"also {command}", _OUTCOMES[rest.verdict], sentence, details=details)


def _list_recent(recorded: RecordedRun) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """List the files that are no sources and were written since a recorded run began, and the files
    and folders that it made: these were not there for it."""
    recording, known = recorded.recording, {*(recorded.recording.files or ())}
    root = find_repository_root(os.getcwd()) or os.getcwd()
    recent, made = list[str](), list[str]()
    for path in iterate_files(root, folders=bool(known)):
        is_new = bool(known) and path not in known
        # A copy keeps the time of its original's content, and has one of its own beside.
        written = os.path.getctime(path)
        if path.endswith(".py") or (written <= recording.started_unix and not is_new):
            continue
        if is_new and written <= recording.ended_unix:
            made.append(path.rstrip("/"))
        elif not path.endswith("/"):
            recent.append(path)
    return tuple(recent), tuple(made)


def _protect(
    folder: str, variables: Mapping[str, str], recent: tuple[str, ...], made: tuple[str, ...]
) -> WriteProtection:
    """Protect all files but temporary ones, caches, and our own."""
    here, home = os.getcwd(), os.path.expanduser("~")
    roots = {here, find_repository_root(here) or here}
    caches = [variables[name] for name in _CACHES if variables.get(name)]
    free = [tempfile.gettempdir(), f"{home}/.cache", f"{home}/.triton", *caches]
    ours = [os.path.join(here, RUNS_FOLDER), "/dev", "/proc", "/sys"]
    return WriteProtection(folder, tuple(sorted(roots)), (*free, *ours), recent, made)
