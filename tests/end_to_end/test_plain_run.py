"""A run under compilediag is the plain run: what a process can see is compared, item by item.

The programs and what is looked at are in `tests/support`: `plain_programs.py`, `process_state.py`.
Each comparison is shown to fail where an observer does one thing more, in `disturbances.py`.
"""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import captured
from disturbances import GROUPS, Item
from plugin_runs import ALONE, outcomes
from process_state import differences, scrubbed

from compilediag.readers.journal import read_run
from compilediag.receipt.run_metadata import RunMetadata
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.pipeline import diagnose_run, make_identity
from compilediag.runs.run_directory import list_text_logs
from compilediag.runs.supervised.assemble import read_logs
from compilediag.timeline.timeline import fold

pytest.importorskip("torch")

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="programs are forked"),
    pytest.mark.timeout(900),  # the first test runs all programs
]

SUPPORT = Path(__file__).parents[1] / "support"
DRIVER = SUPPORT / "plain_driver.py"
PROGRAMS = SUPPORT / "plain_programs.py"

NAMES = re.findall(
    r"^@program\([^)]*\)\ndef (\w+)", PROGRAMS.read_text(encoding="utf-8"), re.MULTILINE
)
"""Of all programs, without the torch that running them takes."""

COUNTED = ("frames", "compiles", "recompiles", "graphs", "graph_breaks", "recompile_limit_hits")
"""Not `eager_fallbacks`: torch has a row without code, too, for a compile that raised an error."""

ADDED_BY_A_FORK = ("frames", "compiles", "recompiles", "graphs")

State = dict[str, Any]


# --- running --------------------------------------------------------------------------------------


def once(factory: pytest.TempPathFactory, name: str, work: Callable[[Path], object]) -> Path:
    """The folder that `work` has filled, once in a session, however many workers it has."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            work(folder)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """torch's settings are default, its caches empty."""
    ours = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_JOB_ID", "COMPILEDIAG")
    ours += ("PYTEST_",)  # the name of a test, which it changes between two programs
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    paths = os.pathsep.join([str(SUPPORT), *filter(None, [kept.get("PYTHONPATH")])])
    return {**kept, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "PYTHONPATH": paths}


def run(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder, and keeps what it prints."""
    return captured(sys.executable, *map(str, words), cwd=folder, env=environment(folder))


@pytest.fixture(scope="session")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every program could see, in a plain run and observed; and in a disturbed one."""

    def work(folder: Path) -> None:
        done = run(folder, DRIVER, folder, *NAMES, *GROUPS)
        assert done.returncode == 0, done.stdout + done.stderr

    return once(tmp_path_factory, "plain-run", work)


@pytest.fixture(scope="session")
def of_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each test of `plain_tests.py` could see, and what pytest printed."""

    def work(folder: Path) -> None:
        (folder / "test_user.py").write_bytes((SUPPORT / "plain_tests.py").read_bytes())
        words = ("-m", "pytest", *ALONE, "-rA", "-p", "plain_plugin", "test_user.py", "--states")
        observed = ("-m", "compilediag", "run", "--quiet", "-o", "out")
        for name, before, after in (
            ("plain", (), ()),
            ("plugin", (), ("--compilediag",)),
            ("run", observed, ()),
        ):
            (folder / "states").mkdir()
            done = run(folder, *before, *words, "states", *after)
            (folder / "states").rename(folder / name)
            (folder / f"{name}.txt").write_text(done.stdout, encoding="utf-8")

    return once(tmp_path_factory, "plain-tests", work)


def state(folder: Path, stem: str) -> State:
    """What a process has seen, and what it has printed."""
    seen: State = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
    for stream in ("out", "err"):
        seen[stream] = scrubbed((folder / f"{stem}.{stream}").read_text(encoding="utf-8"))
    return seen


# --- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_program_sees_what_it_sees_in_a_plain_run(name: str, states: Path) -> None:
    """Loggers, counters, metrics, frames, guards, hooks, threads, what it computes and prints."""
    found = differences(state(states, f"{name}.plain"), state(states, f"{name}.observed"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_receipt_says_what_torch_counts(name: str, states: Path) -> None:
    """Compiles, recompiles and breaks are torch's own, and steps are those that were made."""
    found = contradicted(told(states, name), receipt(states / f"{name}.observed.run"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_ends_as_it_says(name: str, states: Path) -> None:
    """In a plain run: a program that fails by mistake compares nothing."""
    assert state(states, f"{name}.plain")["exit code"] == told(states, name)["exit_code"]


def test_there_are_programs_of_all_kinds(states: Path) -> None:
    """None is left out of the run, and they are many."""
    known = json.loads((states / "programs.json").read_text(encoding="utf-8"))
    assert list(known) == NAMES
    assert len(NAMES) >= 30


def told(folder: Path, name: str) -> dict[str, Any]:
    """What is right about a program: its own account, and torch's counts."""
    facts: dict[str, Any] = json.loads((folder / "programs.json").read_text(encoding="utf-8"))[name]
    counts = json.loads((folder / f"{name}.plain.counts.json").read_text(encoding="utf-8"))
    for key in ADDED_BY_A_FORK:
        counts[key] += facts["forked"]
    return {**facts, **counts}


def receipt(run_dir: Path) -> Receipt:
    """The receipt of a process that was attached to a run."""
    logs = list_text_logs(str(run_dir))
    events = [journal.events for journal in read_run(str(run_dir))]
    timeline = fold(events, read_logs(logs) if logs else None, (str(SUPPORT),))
    return diagnose_run(timeline, RunMetadata(*make_identity(time.time()))).receipt


def contradicted(facts: Mapping[str, Any], found: Receipt) -> list[str]:
    """A sentence for each number of a receipt that is not the one of the program."""
    if found.verdict == "blind":
        why = [finding.evidence for finding in found.findings if finding.rule.startswith("CD90")]
        return [] if facts["hostile"] else [f"blind: {why} {found.completeness.differences}"]
    wrong = [
        f"{key}: {facts[key]} by torch, {value} in the receipt"
        for key in COUNTED
        if (value := getattr(found.compile, key)) != facts[key] and not facts["uncounted"]
    ]
    if facts["steps"] not in (None, found.steps.count):
        wrong.append(f"steps: {facts['steps']} made, {found.steps.count} in the receipt")
    return wrong


@pytest.mark.parametrize("name", ["compiled_update_with_breaks"])
def test_a_process_of_its_own_sees_the_same(name: str, tmp_path: Path) -> None:
    """Started by `compilediag run` before torch is imported, as everybody's is."""
    seen: list[State] = []
    for kind, words in (
        ("plain", ()),
        ("observed", ("-m", "compilediag", "run", "--quiet", "-o", "receipt")),
    ):
        done = run(tmp_path, *words, DRIVER, tmp_path, "--alone", name)
        path = tmp_path / f"{name}.json"
        seen.append(
            {
                **json.loads(path.read_text(encoding="utf-8")),
                "out": scrubbed(done.stdout),
                "err": scrubbed(done.stderr),
                "ended": done.returncode,
            }
        )
        path.rename(tmp_path / f"{kind}.json")
    found = differences(*seen)
    assert not found, "\n".join(found)
    assert (tmp_path / "receipt" / "receipt.json").exists()


# --- tests ----------------------------------------------------------------------------------------


WAYS = ("plugin", "run")


@pytest.mark.parametrize("way", WAYS)
def test_tests_see_what_they_see_in_a_plain_run(way: str, of_tests: Path) -> None:
    """With `--compilediag`, and with pytest under `compilediag run`; and when all are over."""
    names = sorted(path.name for path in (of_tests / "plain").iterdir())
    assert len(names) > 8
    found: list[str] = []
    for name in names:
        plain, observed = (
            json.loads((of_tests / kind / name).read_text(encoding="utf-8"))
            for kind in ("plain", way)
        )
        for seen in (plain, observed):
            seen["process"]["arguments"] = [
                word for word in seen["process"]["arguments"] if word != "--compilediag"
            ]
        found += [f"{name}: {text}" for text in differences(plain, observed)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("way", WAYS)
def test_tests_end_as_in_a_plain_run(way: str, of_tests: Path) -> None:
    """Outcome by outcome, and with the same report: what was printed, captured and logged."""
    plain, observed = (result(of_tests, kind) for kind in ("plain", way))
    assert outcomes(plain) == outcomes(observed)
    assert list(outcomes(plain).values()).count("FAILED") == 1
    found = differences(report(plain.outlines), report(observed.outlines))
    assert not found, "\n".join(found)


def result(folder: Path, kind: str) -> pytest.RunResult:
    text = scrubbed((folder / f"{kind}.txt").read_text(encoding="utf-8"))
    return pytest.RunResult(0, text.splitlines(), [], 0.0)


def report(lines: Sequence[str]) -> dict[str, list[str]]:
    """What pytest prints of each test, by its headline."""
    parts: dict[str, list[str]] = {}
    lines_of: list[str] = []
    for line in lines:
        if line.startswith("_") and line.endswith("_"):
            lines_of = parts.setdefault(line.strip("_ "), [])
        elif line.startswith("="):
            lines_of = []
        else:
            lines_of.append(line)
    return parts


# --- the comparison can fail ----------------------------------------------------------------------


ITEMS = [(group, item) for group, done in GROUPS.items() for one in done for item in one.items]


@pytest.mark.parametrize(
    ("group", "item"), ITEMS, ids=[f"{group}-{'.'.join(item)}" for group, item in ITEMS]
)
def test_a_disturbance_is_seen(group: str, item: Item, states: Path) -> None:
    """One handler, one frame, one synchronisation...: the item that it changes differs."""
    found = differences(*disturbed(states, group))
    assert any(text.startswith(" / ".join(item)) for text in found), "\n".join(found)


EXACT = {
    **dict.fromkeys((group for group, done in GROUPS.items() if not done), 0),
    "sgd+read": 1,
    "sgd+handler": 2,
}


@pytest.mark.parametrize("group", EXACT)
def test_nothing_else_differs(group: str, states: Path) -> None:
    """Nothing done, no difference. One tensor read, one difference; one handler, two: on its
    logger, and among all that are alive."""
    found = differences(*disturbed(states, group))
    assert len(found) == EXACT[group], "\n".join(found)


def disturbed(folder: Path, group: str) -> tuple[State, State]:
    """A plain run, and a disturbed one."""
    name = group.partition("+")[0]
    return state(folder, f"{name}.plain"), state(folder, f"{group}.plain")


@pytest.mark.parametrize("key", [*COUNTED, "steps"])
def test_a_wrong_number_is_seen(key: str, states: Path) -> None:
    """One compile, one recompile, one break, one step more than there were."""
    facts, found = told(states, "sgd"), receipt(states / "sgd.observed.run")
    before = contradicted(facts, found)
    facts[key] += 1
    assert len(contradicted(facts, found)) == len(before) + 1


def test_every_part_of_a_state_has_a_disturbance(states: Path) -> None:
    """What is compared, and could not be shown to differ, is compared in vain."""
    shown = {item[0] for _, item in ITEMS}
    assert set(state(states, "sgd.plain")) <= shown
