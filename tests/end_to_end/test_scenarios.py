"""The scenarios: small real programs, their expected findings, and torch's own counts.

`compilediag run` runs a program in a process of its own; what the receipt says must be what
expected.toml says.

`make check` diagnoses the recorded run of every program (`tests/unit/test_recorded_runs.py`). Here
run those that must be live, and a tenth of the others, another one each day, which is recorded
anew. `make scenarios` runs all of them live (`ALL_SCENARIOS=1`); for programs that set a trap, it
asks torch itself once more (`oracle.py`, which knows nothing of compilediag).
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import recordings
from command_line import captured
from fork_server import ForkServer
from packaging.version import Version
from recorder import is_recordable, record
from replayed_runs import replay
from scenario_cases import (
    COUNTS,
    FINDING_KEYS,
    SIDES,
    Case,
    case,
    cases,
    compare,
    differences,
    is_in_tenth,
    line_of,
    names,
    read,
    torch_version,
)

from compilediag.diagnosis.codes import REGISTER
from compilediag.runs.supervised.run import COLD
from compilediag.runs.trials.against_eager import FOLDER

RUN_LIMIT_S = 900
"""A case takes seconds; the demo compiles with inductor and may take a minute on a busy machine."""

ASKED_AGAIN = (
    "torch_module",
    "backward_records",
    "break_in_loop",
    "breaks_inflated",
    "compiled_autograd",
    "dynamo_reset",
    "many_frames",
    "metric_cadence",
    "observer_effect",
    "recompile_limit",
    "silence_after_limit",
)
"""Scenarios whose counts are easy to get wrong: `make scenarios` compares them with torch on the
running version, as every recorded run is with what torch counted in it."""

LIVE = {
    "closure_flag": "causes of recompiles",
    "dynamic_size": "sizes",
    "recompile_limit": "limits",
    "variant_forecast": "forecasts",
    "break_on_item": "graph breaks",
    "break_in_loop": "frames that run eager",
    "compiled_autograd": "compiled backwards",
    "observer_effect": "a compiled optimizer",
    "metric_cadence": "periodic work",
    "sync_loop": "synchronisations",
    "timer_scope": "clocks of the program",
    "pipeline_bottleneck": "data loading",
    "packing_copies": "packing",
    "padding_waste": "fixed sizes",
    "guard_cost": "guards",
    "late_compile": "late compiles",
    "export_only": "exports, of which torch's rows count more",
    "logging_disabled": "missing evidence",
    "nothing_compiled": "nothing to diagnose",
    "rank_waits": "several processes",
    "constraint_violated": "an exit code",
    "killed_midway": "a signal",
    "file_size_limited": "a journal that ends early",
    "wrong_backend_pass": "several runs: other numbers",
}
"""Scenarios whose broken program runs live in every `make test`, and what each is the one of: as
forks of a process that has torch, but those of `STARTED`. In `make scenarios` an interpreter starts
for each of both programs."""

STARTED = (
    *("closure_flag", "constraint_violated", "file_size_limited", "killed_midway"),
    "nothing_compiled",
)
"""How an interpreter starts and ends, or what torch reads when it is imported, is part of them."""

SLOW = ("changing_cache_key", "tiny_graph")
"""Several runs of a program of inductor: live in `make scenarios` alone. In every `make test`
`wrong_backend_pass` is compared with eager runs, and `test_cold_and_warm.py` starts twice."""

WARMED_SIZES = (
    *("beyond_knee", "early_exit", "padding_contaminates", "padding_waste", "too_many_sizes"),
    "varied_batches",
)
"""Scenarios whose fixed program compiles for several sizes in a warm-up: recompiles to torch."""

PINNED = "2.13.0"
"""The torch of constraints.txt."""

OF_THE_ENVIRONMENT = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_JOB_ID", "COMPILEDIAG")
"""Settings of the machine that would change what a program does."""


OF_THE_STEPS = ("CD301", "CD302", "CD303", "CD304", "CD307", "CD621", "CD631", "CD641")
"""Codes about steps that a program shows on any machine."""


def codes_with_scenarios() -> list[str]:
    """The codes of everything a run can find by itself: recompiles, forecasts, breaks, evidence,
    CUDA graphs and fixed sizes."""
    wanted = ("CD10", "CD11", "CD12", "CD15", "CD19", "CD20", "CD21", "CD29", "CD40", "CD90")
    return [code for code in REGISTER if code.startswith(wanted) or code in OF_THE_STEPS]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of the programs: inductor's caches are new, torch's settings are default."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(OF_THE_ENVIRONMENT)}
    kept["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path_factory.mktemp("inductor"))
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept


@dataclass(frozen=True)
class Runner:
    """Runs programs under compilediag, and under torch alone."""

    environment: dict[str, str]
    folder: Path
    forking: str

    def python_for(self, program: Path) -> str:
        """One that has torch already, but where that would change what the program does."""
        started = "ALL_SCENARIOS" in os.environ or program.parent.name in STARTED
        configures = "os.environ[" in program.read_text(encoding="utf-8")
        return sys.executable if started or configures else self.forking

    def receipt_of(self, program: Path, arguments=()) -> tuple[int, dict[str, Any], str]:
        """Exit code, receipt and everything that was printed."""
        output = self.folder / f"{program.parent.name}-{program.stem}"
        words = arguments if arguments[:1] == ("measure",) else ("run", *arguments)
        command = [self.python_for(program), "-m", "compilediag", *words, "--quiet", "--no-live"]
        command += ["--output", str(output), "--", str(program)]
        place = program.parent
        done = captured(*command, cwd=place, env=self.environment, timeout=RUN_LIMIT_S)
        said = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        # Not of the runs that it was compared with.
        receipts = [
            one for one in output.rglob("receipt.json") if {COLD, FOLDER}.isdisjoint(one.parts)
        ]
        assert len(receipts) == 1, f"{len(receipts)} receipts\n{said}"
        return done.returncode, json.loads(receipts[0].read_text(encoding="utf-8")), said

    def counted_by_torch(self, program: Path) -> dict[str, int]:
        """What torch's own metrics and trace count in a plain run of the program."""
        report = self.folder / f"{program.parent.name}-{program.stem}.json"
        oracle = Path(__file__).parents[1] / "support" / "oracle.py"
        subprocess.run(
            [sys.executable, str(oracle), str(report), str(program)],
            env=self.environment,
            capture_output=True,
            timeout=RUN_LIMIT_S,
            check=True,
        )
        return json.loads(report.read_text(encoding="utf-8"))["counts"]


@pytest.fixture(scope="session")
def runner(environment: dict[str, str], tmp_path_factory, fork_server: ForkServer) -> Runner:
    return Runner(environment, tmp_path_factory.mktemp("runs"), str(fork_server.python))


def is_live(item: Case) -> bool:
    """Of a program that every `make test` runs: it is listed and shows what it is listed for, or no
    recording stands for it."""
    listed = item.name in LIVE and (item.side == "broken" or not is_recordable(item))
    return "ALL_SCENARIOS" in os.environ or listed or item.needs is not None


def is_due(item: Case) -> bool:
    """Of a program that is recorded anew today: each once in ten days."""
    return is_recordable(item) and not is_live(item) and is_in_tenth(item.name)


def parameters(chosen: Callable[[Case], bool]) -> list[Any]:
    """One parameter a program; those that do not apply to this torch are skipped with a reason."""
    return [
        pytest.param(item, id=item.id, marks=marks_of(item)) for item in cases() if chosen(item)
    ]


def marks_of(item: Case) -> list[pytest.MarkDecorator]:
    """Those that need a device can be chosen with `-m gpu`."""
    marks = [pytest.mark.skip(item.skip)] if item.skip else []
    return [*marks, pytest.mark.gpu] if item.needs == "cuda" else marks


def why_without_device() -> str | None:
    """Why programs for a CUDA device cannot run here; torch is asked where there is a driver."""
    if not Path("/proc/driver/nvidia").exists():
        return "needs a CUDA device: this machine has no NVIDIA driver"
    torch: Any = pytest.importorskip("torch")
    return None if torch.cuda.is_available() else "needs a CUDA device: torch finds none"


@pytest.mark.timeout(2 * RUN_LIMIT_S + 60)
@pytest.mark.parametrize("item", parameters(is_live))
def test_program_gives_the_expected_receipt(item: Case, runner: Runner) -> None:
    """Exit code, status, verdict, counts and findings are the ones of expected.toml; where counts
    are easy to get wrong, they are those that torch itself counts in a plain run."""
    if item.needs == "cuda" and (why := why_without_device()):
        pytest.skip(why)
    exit_code, receipt, said = runner.receipt_of(item.program, item.arguments)
    counted = None
    if "ALL_SCENARIOS" in os.environ and item.name in ASKED_AGAIN:
        counted = runner.counted_by_torch(item.program)
        assert set(counted) == COUNTS
    wrong = compare(item, exit_code, receipt, counted)
    assert not wrong, "\n".join([*wrong, said])


@pytest.mark.timeout(RUN_LIMIT_S + 60)
@pytest.mark.parametrize("item", parameters(is_due))
def test_a_run_that_is_recorded_anew_gives_the_same(item, environment, runner, tmp_path) -> None:
    """The receipt of a live run, and the one that is made of its recording, are the expected one
    with torch's own counts of that run."""
    torch, caches = torch_version(), environment["TORCHINDUCTOR_CACHE_DIR"]
    recording, live = record(item, runner.python_for(item.program), torch, caches)
    for receipt in (live, replay(recording, tmp_path)):
        exit_code = receipt["header"]["run"]["exit_code"]
        assert compare(item, exit_code, receipt, recording.comparable_counts) == []


def test_every_program_is_recorded_or_live() -> None:
    """A scenario that is new has a recorded run for the pinned torch, or runs live every time."""
    recorded = {path.name.partition(".")[0] for path in recordings.list_paths(PINNED)}
    missing = {
        item.id
        for item in cases(Version(PINNED))
        if item.id not in recorded and item.name not in SLOW and not is_live(item)
    }
    assert missing == set()


@pytest.mark.parametrize("name", names())
def test_scenario_is_complete_and_readable(name: str) -> None:
    """Both programs tell their story in a docstring, and expected.toml holds known keys only."""
    document = read(name)
    assert set(document) <= {"story", "needs", "min_torch", "max_torch", "torch", *SIDES}
    assert document.get("needs", "cuda") == "cuda"
    assert document["story"].endswith((".", ":"))
    for side in SIDES:
        item = case(name, side, torch_version())
        assert ast.get_docstring(ast.parse(item.program.read_text(encoding="utf-8")))
        assert set(item.counts) <= COUNTS
        assert all(set(finding) <= FINDING_KEYS for finding in item.findings)
        assert all(finding["rule"] in REGISTER for finding in item.findings)
    broken, fixed = (case(name, side, torch_version()) for side in SIDES)
    assert broken.findings, "the broken program must be found out"
    notes_only = all(each.get("severity") == "info" for each in broken.findings)
    assert broken.verdict in (("clean",) if notes_only else ("findings", "blind"))
    assert (fixed.verdict, fixed.status, fixed.exit_code) == ("clean", "complete", 0)
    assert fixed.counts["recompiles"] == 0 or name in WARMED_SIZES
    assert all(finding.get("severity") == "info" for finding in fixed.findings)


def test_scenarios_that_are_named_exist() -> None:
    """A name that an edit changed would be compared with nothing."""
    assert {*ASKED_AGAIN, *LIVE, *SLOW} <= set(names())
    assert set(STARTED) <= set(LIVE)


@pytest.mark.parametrize("code", codes_with_scenarios())
def test_every_code_has_a_scenario(code: str) -> None:
    """Each code that one run can give is provoked by at least one broken program."""
    shown = {
        finding["rule"]
        for name in names()
        for finding in case(name, "broken", Version("2.13.0")).findings
    }
    assert code in shown


def test_anchor_must_be_on_one_line() -> None:
    """An anchor that an edit removed or doubled is an error, not a silent mismatch."""
    assert line_of("b", "a\nb\n") == 2
    with pytest.raises(ValueError, match="on 0 lines"):
        line_of("c", "a\nb\n")
    with pytest.raises(ValueError, match="on 2 lines"):
        line_of("a", "a\na\n")


def test_differences_name_what_is_missing_and_what_is_too_much() -> None:
    """An unexpected warning fails a scenario as surely as a missing one; information does not."""
    place = {"file": "/somewhere/broken.py", "line": 3, "function": "f"}
    found: list[dict[str, Any]] = [
        {"rule": "CD101", "severity": "warning", "count": 1, "steps": [1], "location": place},
        {"rule": "CD204", "severity": "info", "count": 1, "steps": [], "location": None},
    ]
    assert differences(({"rule": "CD101", "file": "broken.py", "line": 3},), found) == []
    assert differences(({"rule": "CD101"}, {"rule": "CD204", "severity": "info"}), found) == []
    wrong = differences(({"rule": "CD102"},), found)
    assert [text.split(":")[0] for text in wrong] == ["missing", "surplus"]
    assert differences(({"rule": "CD101", "count": 2},), found)[0].startswith("missing")


def test_overrides_apply_to_their_version_only() -> None:
    """`[torch."2.15"]` changes what is expected of torch 2.15, and of no other."""
    name = next(n for n in names() if "2.15" in read(n).get("torch", {}))
    newer, older, unborn = (
        [case(name, side, Version(text)) for side in SIDES]
        for text in ("2.15.0", "2.13.0", "2.150")
    )
    assert newer != older
    assert unborn == older
