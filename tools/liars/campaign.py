"""Cases of the suite: their truth by plain runs, and the verdict of `compilediag certify`.

Each case is one line of a file, so that a campaign can be ended at any time and goes on where it
was. A case is known by its key: `liar 12`, `honest 2`, the improvement of a liar's program, and by
the seed of their program `improving 40` and `mutant 40.3`. Programs are executed as forks of a
process that has torch. As users do, the suite records the old state of a program once, and
certifies each change of it against that run.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import multiprocessing
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from liars import Edits, edit, iterate_honest, iterate_liars
from mutants import make_mutant
from plain_runs import Difference, PlainRun, compare, load_torch, looks_better, run_plain
from programs import make_program

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

PROGRAM = "prog.py"
PLAIN_LIMIT_S, CERTIFY_LIMIT_S = 30.0, 300.0
OF_THE_ENVIRONMENT = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_JOB_ID", "COMPILEDIAG")
OUTSIDE = ("compilediag.commands.certify", "compilediag.runs.certify.execute")

VERDICTS = {0: "proved", 3: "refused", 4: "not decided"}


class Case(NamedTuple):
    """One change of a program."""

    key: str
    kind: str
    what: str
    after: str
    environment: bool = False
    elsewhere: Edits = ()
    """Of a liar: other inputs for both states."""

    @property
    def group(self) -> str:
        """One of "liar", "mutant", "improving"."""
        return self.key.partition(" ")[0].replace("honest", "improving")


class Family(NamedTuple):
    """A program, and changes of it."""

    before: str
    cases: Sequence[Case]
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """One case that was judged."""

    key: str
    group: str
    kind: str
    what: str
    truth: str
    """"wrong", "smaller", "equal", "crashes", "hangs"; of a liar what gives it away."""
    where: str
    better: bool
    """By torch's counts."""
    environment: bool
    verdict: str
    """Empty where certify was not asked."""
    reason: str
    plain_s: float
    certify_s: float


# --- cases ----------------------------------------------------------------------------------------


def list_families_of_liars() -> list[Family]:
    """The programs of the liars, with their honest improvement and their liars."""
    by_program: dict[str, list[Case]] = {}
    for number, (before, after) in enumerate(iterate_honest()):
        by_program[before] = [Case(f"honest {number}", "of a liar's program", "", after)]
    for number, liar in enumerate(iterate_liars()):
        case = Case(f"liar {number}", liar.kind, liar.name, liar.after, elsewhere=liar.elsewhere)
        by_program[liar.before].append(case)
    return [Family(*item) for item in by_program.items()]


def make_family(seed: int, mutants: Iterable[int]) -> Family:
    """Makes the program of a seed: the change that improves it, and mutants of what it became."""
    program = make_program(seed)
    kind = ", ".join(program.mended)
    cases = [Case(f"improving {seed}", kind, "", program.after, program.environment)]
    for number in mutants:
        if mutant := make_mutant(program.after, seed * 1000 + number):
            key = f"mutant {seed}.{number}"
            cases.append(Case(key, mutant.kind, mutant.edit[:200], mutant.source))
    return Family(program.before, cases, seed)


def find_families(keys: Iterable[str]) -> list[Family]:
    """The programs of some cases, with these cases alone."""
    numbers: dict[int, list[int]] = {}
    for group, place in (key.split(" ") for key in keys):
        seed, _, number = place.partition(".")
        if group in ("improving", "mutant"):
            numbers.setdefault(int(seed), []).extend([int(number)] if number else [])
    made = [make_family(seed, of) for seed, of in numbers.items()]
    chosen = [
        family._replace(cases=[case for case in family.cases if case.key in keys])
        for family in (*list_families_of_liars(), *made)
    ]
    return [family for family in chosen if family.cases]


def judge_family(family: Family, command: Path | None) -> Iterator[Result]:
    """Judges the changes of a program. Without the command compilediag, by plain runs alone.

    Raises:
        AssertionError: plain runs do not show that a liar lies.
    """
    before, again = (run_plain(family.before, family.seed, PLAIN_LIMIT_S) for _ in range(2))
    if before.error or before.exit_code is None:
        return
    with contextlib.ExitStack() as stack:
        certifier = (
            stack.enter_context(_Certifier(command, family.before, family.seed))
            if command
            else None
        )
        for case in family.cases:
            began = time.monotonic()
            run = run_plain(case.after, family.seed, PLAIN_LIMIT_S)
            better = looks_better(before.counts, run.counts)
            found = compare(before, run, again)
            truth, where = found.kind, found.where
            if case.group == "liar":
                truth, where = _find_lie(family, case, found, before, run)
            elif case.group == "improving" and not (better and truth == "equal"):
                continue
            plain_s, verdict, reason = time.monotonic() - began, "", ""
            if certifier and (case.group != "mutant" or truth in ("wrong", "smaller")):
                verdict, reason = certifier.judge(case.after, brief=case.group != "improving")
            yield Result(
                key=case.key,
                group=case.group,
                kind=case.kind,
                what=case.what,
                truth=truth,
                where=where[:200],
                better=better,
                environment=case.environment,
                verdict=verdict,
                reason=reason[:300],
                plain_s=plain_s,
                certify_s=time.monotonic() - began - plain_s,
            )


def _find_lie(
    family: Family, case: Case, found: Difference, before: PlainRun, after: PlainRun
) -> tuple[str, str]:
    if found.kind in ("wrong", "crashes", "hangs"):
        return "other results", found.where
    if case.elsewhere:
        others = (edit(text, case.elsewhere) for text in (family.before, case.after))
        found = compare(*(run_plain(text, 0, PLAIN_LIMIT_S) for text in others))
        if found.kind in ("wrong", "crashes"):
            return "other results with other inputs", found.where
    name = "operations in graphs"
    if (new := after.counts[name]) < (old := before.counts[name]):
        return "less is compiled", f"{old} → {new} {name}"
    if (new := after.counts["graphs"]) >= (old := before.counts["graphs"]):
        return "compiled as often", f"{old} → {new} graphs"
    assert not looks_better(before.counts, after.counts), f"{case.key}: no plain run shows a lie"
    return "not better", ""


class _Certifier:
    """A folder in which a program was recorded, and changes of it are certified."""

    def __init__(self, command: Path, before: str, seed: int) -> None:
        self._command, self._seed = str(command), str(seed)
        self._folder = Path(tempfile.mkdtemp(prefix="certify-"))
        self._before: str | None = before

    def __enter__(self) -> _Certifier:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def judge(self, after: str, *, brief: bool) -> tuple[str, str]:
        """Certifies a changed text against the recorded run, which the first call makes: verdict
        and reason. `brief`: a change that is refused without other inputs is not judged with them,
        which only adds to what has to hold."""
        program = self._folder / PROGRAM
        if self._before is not None:
            program.write_text(self._before, encoding="utf-8")
            self._run("run", "--record", PROGRAM)
            self._before = None
        program.write_text(after, encoding="utf-8")
        done = self._run("certify", "--json", "-q", "--no-vary", "--", PROGRAM) if brief else None
        if done is None or VERDICTS.get(done.returncode) != "refused":
            done = self._run("certify", "--json", "-q", "--", PROGRAM)
        if done is None:
            return "not decided", "the suite's time limit"
        verdict = VERDICTS.get(done.returncode, "")
        found: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            found = json.loads(done.stdout)
        if not verdict or found.get("verdict") != verdict:
            raise RuntimeError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
        return verdict, found.get("reason") or done.stderr.strip().rpartition("\n")[2]

    def _run(self, *words: str) -> subprocess.CompletedProcess[str] | None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(OF_THE_ENVIRONMENT)}
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                [self._command, *words],
                cwd=self._folder,
                # The random numbers of the plain runs, which say what is wrong.
                env={
                    **environment,
                    "OMP_NUM_THREADS": "1",
                    "COLUMNS": "200",
                    "PYTHONHASHSEED": self._seed,
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=CERTIFY_LIMIT_S,
                check=False,
            )
        return None


@contextlib.contextmanager
def start_command() -> Generator[Path]:
    """Gives the command `compilediag`, whose programs are forks of one process."""
    fork_server: Any = importlib.import_module("fork_server")
    harness: Any = importlib.import_module("compilediag_harness")
    modules = pkgutil.walk_packages(harness.__path__, "compilediag_harness.")
    loaded = (*OUTSIDE, *(found.name for found in modules if ".bootstrap" not in found.name))
    with tempfile.TemporaryDirectory() as folder:
        server: Any = fork_server.ForkServer(Path(folder), own_hash_seed=False, loaded=loaded)
        try:
            yield server.python.with_name("compilediag")
        finally:
            server.close()


# --- a campaign -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Campaign:
    """What is judged, and where the results are."""

    path: Path
    command: Path | None
    liars: int
    """Mutants that are wrong: when there are so many, no more are made."""
    improving: int
    mutants: int
    """Of each program."""
    first: int
    workers: int


def run_campaign(campaign: Campaign) -> None:
    """Adds results to the file until there are enough."""
    load_torch()
    campaign.path.parent.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")
    workers = range(campaign.workers)
    processes = [context.Process(target=_work, args=(campaign, number)) for number in workers]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("a worker failed; what it judged is kept")


def _work(campaign: Campaign, worker: int) -> None:
    seeds = itertools.count(campaign.first)
    programs = (make_family(seed, range(campaign.mutants)) for seed in seeds)
    families = itertools.chain(list_families_of_liars(), programs)
    for family in itertools.islice(families, worker, None, campaign.workers):
        results = read_results(campaign.path)
        groups = _find_wanted(campaign, results.values())
        cases = [case for case in family.cases if case.group in groups]
        if not cases:
            return
        if cases[-1].key not in results:  # they were added in this order
            left = [case for case in cases if case.key not in results]
            _judge(campaign.path, campaign.command, family._replace(cases=left))


def _find_wanted(campaign: Campaign, results: Collection[Mapping[str, Any]]) -> set[str]:
    """The groups of which there are not enough; of liars all are judged."""
    wrong = sum(one["group"] == "mutant" and one["truth"] == "wrong" for one in results)
    improving = sum(one["group"] == "improving" for one in results)
    mutant = {"mutant"} if wrong < campaign.liars else set[str]()
    return {"liar"} | mutant | ({"improving"} if improving < campaign.improving else set[str]())


def judge_keys(path: Path, command: Path | None, keys: Sequence[str]) -> None:
    """Adds the results of some cases to a file."""
    load_torch()
    for family in find_families(keys):
        _judge(path, command, family)


def _judge(path: Path, command: Path | None, family: Family) -> None:
    for result in judge_family(family, command):
        # A line as a whole: the other worker writes too.
        line = json.dumps(asdict(result), allow_nan=False) + "\n"
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, line.encode())
        os.close(file)


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Reads what is there, by key; a line that was cut off is left out."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError):
            result = json.loads(line)
            found[result["key"]] = result
    return found


def find_failures(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Proofs that plain runs contradict."""
    return [
        one for one in results
        if one["verdict"] == "proved"
        and (one["group"] == "liar" or (one["group"] == "mutant" and one["truth"] == "wrong"))
    ]  # fmt: skip
