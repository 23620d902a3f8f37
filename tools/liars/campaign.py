"""Cases of the suite: their truth by plain runs, and the verdict of `compilediag certify`.

Each case is one line of a file, so that a campaign can be ended at any time and goes on where it
was. A case is known by its key: `liar 12`, `improving 40` or `mutant 40.3`, the last two by the
seed of their program. Programs are executed as forks of a process that has torch.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from liars import Liar, edit, iterate_liars
from measure import PlainRun, compare, load_torch, looks_better, run_plain
from mutants import Mutant, make_mutant
from programs import Program, make_program

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

PROGRAM = "prog.py"
MUTANTS = 12
"""Of each program."""
PLAIN_LIMIT_S, CERTIFY_LIMIT_S = 30.0, 300.0
OF_THE_ENVIRONMENT = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_JOB_ID", "COMPILEDIAG")

VERDICTS = {0: "proved", 3: "refused", 4: "not decided"}


@dataclass(frozen=True)
class Result:
    """One case."""

    key: str
    group: str
    """"liar", "mutant", "improving"."""
    kind: str
    what: str
    truth: str
    """"wrong", "smaller", "equal", "crashes", "hangs"; of a liar what gives it away."""
    where: str
    better: bool
    """By torch's counts."""
    environment: bool = False
    verdict: str = ""
    """Empty where certify was not asked."""
    reason: str = ""
    plain_s: float = 0.0
    certify_s: float = 0.0


@dataclass(frozen=True)
class Judged:
    """What certify said of one change."""

    verdict: str
    reason: str
    seconds: float


NOT_ASKED = Judged("", "", 0.0)


class Certifier:
    """A folder in which a program was recorded, and changes of it are certified."""

    def __init__(self, command: Path, before: str) -> None:
        self._command = str(command)
        self._folder = Path(tempfile.mkdtemp(prefix="certify-"))
        self._before, self._recorded = before, False

    def __enter__(self) -> Certifier:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def judge(self, after: str, *, brief: bool = False) -> Judged:
        """Certifies a changed text against the recorded run, which the first call makes. `brief`: a
        change that is refused without other inputs is not judged with them, which only adds to what
        has to hold."""
        began = time.monotonic()
        program = self._folder / PROGRAM
        program.write_text(self._before, encoding="utf-8")
        if not self._recorded:
            self._run("run", "--record", PROGRAM)
            self._recorded = True
        program.write_text(after, encoding="utf-8")
        done = self._run("certify", "--json", "-q", "--no-vary", "--", PROGRAM) if brief else None
        if done is None or VERDICTS.get(done.returncode) != "refused":
            done = self._run("certify", "--json", "-q", "--", PROGRAM)
        if done is None:
            return Judged("not decided", "the suite's time limit", CERTIFY_LIMIT_S)
        verdict = VERDICTS.get(done.returncode, "")
        found: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            found = json.loads(done.stdout)
        reason = found.get("reason") or done.stderr.strip().rpartition("\n")[2]
        if done.returncode not in VERDICTS or found.get("verdict") != verdict:
            raise RuntimeError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
        return Judged(verdict, reason[:300], time.monotonic() - began)

    def _run(self, *words: str) -> subprocess.CompletedProcess[str] | None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(OF_THE_ENVIRONMENT)}
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run(
                [self._command, *words],
                cwd=self._folder,
                env={**environment, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=CERTIFY_LIMIT_S,
                check=False,
            )
        return None


# --- cases ----------------------------------------------------------------------------------------


def judge_liar(number: int, liar: Liar, command: Path | None) -> Result:
    """Judges one liar.

    Raises:
        AssertionError: plain runs do not show that it lies.
    """
    began = time.monotonic()
    before, after = (run_plain(text, 0, PLAIN_LIMIT_S) for text in (liar.before, liar.after))
    truth, where = _find_lie(liar, before, after)
    assert truth, f"{liar.kind}, {liar.name}: no plain run shows a lie"
    seconds, judged = time.monotonic() - began, NOT_ASKED
    if command:
        with Certifier(command, liar.before) as certifier:
            judged = certifier.judge(liar.after)
    return Result(
        key=f"liar {number}",
        group="liar",
        kind=liar.kind,
        what=liar.name,
        truth=truth,
        where=where[:200],
        better=looks_better(before.counts, after.counts),
        verdict=judged.verdict,
        reason=judged.reason,
        plain_s=seconds,
        certify_s=judged.seconds,
    )


def _find_lie(liar: Liar, before: PlainRun, after: PlainRun) -> tuple[str, str]:
    found = compare(before, after)
    if found.kind in ("wrong", "crashes", "hangs"):
        return "other results", found.where
    if liar.elsewhere:
        others = (edit(text, liar.elsewhere) for text in (liar.before, liar.after))
        found = compare(*(run_plain(text, 0, PLAIN_LIMIT_S) for text in others))
        if found.kind in ("wrong", "crashes"):
            return "other results with other inputs", found.where
    for name in ("operations in graphs", "graphs"):
        old, new = before.counts[name], after.counts[name]
        if new < old if name == "operations in graphs" else new >= old:
            return (
                "less is compiled" if new < old else "compiled as often"
            ), f"{old} → {new} {name}"
    return ("not better", "") if not looks_better(before.counts, after.counts) else ("", "")


def judge_program(seed: int, keys: Sequence[str], command: Path | None) -> Iterator[Result]:
    """Judges the change that improves a program, and mutants of the changed program, by key."""
    program = make_program(seed)
    before, again = (run_plain(program.before, seed, PLAIN_LIMIT_S) for _ in range(2))
    if before.exit_code != 0:
        return
    with contextlib.ExitStack() as stack:
        certifier = stack.enter_context(Certifier(command, program.before)) if command else None
        for key in keys:
            began = time.monotonic()
            improving = key.startswith("improving")
            mutant = None if improving else _make_mutant(program, key)
            if not improving and mutant is None:
                continue
            after = mutant.source if mutant else program.after
            run = run_plain(after, seed, PLAIN_LIMIT_S)
            found = compare(before, run, again)
            better = looks_better(before.counts, run.counts)
            if improving and not (better and found.kind == "equal"):
                continue
            seconds = time.monotonic() - began
            asked = improving or found.kind in ("wrong", "smaller")
            judged = (
                certifier.judge(after, brief=not improving) if certifier and asked else NOT_ASKED
            )
            yield Result(
                key=key,
                group="mutant" if mutant else "improving",
                kind=mutant.kind if mutant else ", ".join(program.mended),
                what=mutant.edit[:200] if mutant else "",
                truth=found.kind,
                where=found.where[:200],
                better=better,
                environment=improving and program.environment,
                verdict=judged.verdict,
                reason=judged.reason,
                plain_s=seconds,
                certify_s=judged.seconds,
            )


def _make_mutant(program: Program, key: str) -> Mutant | None:
    number = int(key.rpartition(".")[2])
    return make_mutant(program.after, program.seed * 1000 + number)


def find_texts(key: str) -> tuple[str, str]:
    """The two states of a case."""
    group, _, name = key.partition(" ")
    if group == "liar":
        liar = [*iterate_liars()][int(name)]
        return liar.before, liar.after
    program = make_program(get_seed(key))
    mutant = _make_mutant(program, key) if group == "mutant" else None
    return program.before, mutant.source if mutant else program.after


def get_seed(key: str) -> int:
    """Seed of a case's program; number of a liar."""
    return int(key.split(" ")[1].partition(".")[0])


# --- a campaign -----------------------------------------------------------------------------------


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Reads what is there, by key; a line that was cut off is left out."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError):
            result = json.loads(line)
            found[result["key"]] = result
    return found


def count_done(results: Mapping[str, Mapping[str, Any]]) -> tuple[int, int]:
    """Mutants that are wrong, and improving changes."""
    wrong = sum(one["group"] == "mutant" and one["truth"] == "wrong" for one in results.values())
    return wrong, sum(one["group"] == "improving" for one in results.values())


@contextlib.contextmanager
def start_command() -> Generator[Path]:
    """Gives the command `compilediag`, whose programs are forks of one process."""
    fork_server: Any = importlib.import_module("fork_server")
    with tempfile.TemporaryDirectory() as folder:
        server: Any = fork_server.ForkServer(Path(folder), own_hash_seed=False)
        try:
            yield server.python.with_name("compilediag")
        finally:
            server.close()


def run_campaign(
    path: Path, command: Path | None, *, mutants: int, improving: int, first: int, workers: int
) -> None:
    """Adds results to a file until there are enough mutants that are wrong, and improving changes.
    Without the command compilediag, plain runs alone are made."""
    load_torch()
    path.parent.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(
            target=_work,
            args=(path, command, mutants, improving, range(first + at, 10**9, workers)),
        )
        for at in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("a worker failed; what it judged is kept")


def _work(path: Path, command: Path | None, mutants: int, improving: int, numbers: range) -> None:
    results = read_results(path)
    for number, liar in enumerate(iterate_liars()):
        if (
            number % numbers.step == numbers.start % numbers.step
            and f"liar {number}" not in results
        ):
            _add(path, judge_liar(number, liar, command))
    for seed in numbers:
        results = read_results(path)
        wrong, improved = count_done(results)
        if wrong >= mutants and improved >= improving:
            return
        keys = [f"improving {seed}"]
        keys += [f"mutant {seed}.{at}" for at in range(MUTANTS if wrong < mutants else 0)]
        if keys[-1] not in results:  # they were added in this order
            left = [key for key in keys if key not in results]
            for result in judge_program(seed, left, command):
                _add(path, result)


def judge_keys(path: Path, command: Path | None, keys: Sequence[str]) -> None:
    """Adds the results of some cases to a file."""
    load_torch()
    liars = [*iterate_liars()]
    for seed in dict.fromkeys(map(get_seed, keys)):
        of_seed = [key for key in keys if get_seed(key) == seed]
        for key in of_seed:
            if key.startswith("liar"):
                _add(path, judge_liar(seed, liars[seed], command))
        for result in judge_program(seed, [x for x in of_seed if "liar" not in x], command):
            _add(path, result)


def _add(path: Path, result: Result) -> None:
    """Appends a line as a whole: the other worker writes too."""
    line = json.dumps(asdict(result), allow_nan=False) + "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode())
    os.close(file)


def find_failures(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Proofs that plain runs contradict."""
    return [
        one for one in results
        if one["verdict"] == "proved"
        and (one["group"] == "liar" or (one["group"] == "mutant" and one["truth"] == "wrong"))
    ]  # fmt: skip
