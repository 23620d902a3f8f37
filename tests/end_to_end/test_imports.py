"""What short commands import: never torch, numpy, scipy, pandas, dask, depyf or pytest.

Each case is a child process that runs the command and then reports which modules it holds.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest
from command_line import captured

HEAVY = (
    *("torch", "numpy", "scipy", "depyf", "pytest", "pandas", "triton", "sympy", "distributed"),
    *("fsspec", "opentelemetry"),
)

PROBE = """
import sys
target, heavy = sys.argv[1], sys.argv[2].split(",")
sys.argv = ["compilediag", *sys.argv[3:]]
before = set(sys.modules)
code = 0
try:
    if target == "-":
        from compilediag.cli import main
        code = main()
    else:
        __import__(target)
except SystemExit as end:
    code = end.code
seen = sorted(set(heavy) & set(sys.modules) - before)
sys.stderr.write(f"\\n{code} {','.join(seen)}")
"""

RECEIPT = Path(__file__).parents[1] / "data" / "receipt-example.json"


def heavy_after(target: str, *arguments: str, cwd: Path, heavy=HEAVY) -> tuple[int, list[str]]:
    """The exit code of `compilediag ARGUMENTS` ("-") or of an import, and the heavy modules."""
    words = ("-c", PROBE, target, ",".join(heavy), *arguments)
    done = captured(sys.executable, *words, cwd=cwd, check=True)
    code, _, seen = done.stderr.rpartition("\n")[2].partition(" ")
    return int(code), seen.split(",") if seen else []


UPDATE = ("gate", "--any-code", "a.json", "--update", "--reason", "known")
FILES = ("--format", "sarif=s", "--format", "junit=j", "--format", "gitlab=g")
TRACE = RECEIPT.parent / "traces" / "break_in_loop.log.gz"


@pytest.mark.parametrize(
    "commands",
    [
        [("--help",)],
        [("--version",)],
        [("explain", "CD103")],
        [("run", "--help")],
        [("doctor", "--help")],
        [("show", "a.json")],
        [("show", "--json", "a.json")],
        [("diff", "a.json", "b.json")],
        [("stats", ".")],
        [("trend", ".")],
        [UPDATE, ("gate", "--any-code", "b.json", *FILES)],
        [("analyze", str(TRACE))],
    ],
    ids=lambda commands: " ".join(commands[-1][:2]),
)
def test_commands_are_light(commands: list[tuple[str, ...]], tmp_path: Path) -> None:
    """Where only receipts and traces are looked at, there need be no torch."""
    for name in ("a.json", "b.json"):
        shutil.copy(RECEIPT, tmp_path / name)
    for arguments in commands:
        assert heavy_after("-", *arguments, cwd=tmp_path) == (0, [])


@pytest.mark.parametrize(
    "arguments",
    [
        ("gate", "--any-code", "a.json", "--fail-on", "recompiles>9"),
        ("diff", "a.json", "a.json"),
        ("show", "a.json"),
    ],
)
def test_reading_a_receipt_loads_nothing_that_folds_a_run(arguments, tmp_path: Path) -> None:
    """Half a start of gate and diff went into it once."""
    shutil.copy(RECEIPT, tmp_path / "a.json")
    folding = (
        "compilediag.timeline.timeline",
        "compilediag.diagnosis.causes.run_causes",
        "compilediag_harness.wire",
    )
    assert heavy_after("-", *arguments, cwd=tmp_path, heavy=folding)[1] == []


@pytest.mark.parametrize(
    "module", ["compilediag", "compilediag_harness", "compilediag.rules.diagnose"]
)
def test_packages_are_light(module: str, tmp_path: Path) -> None:
    """Importing the packages costs a user's program no torch."""
    assert heavy_after(module, cwd=tmp_path) == (0, [])


def test_the_probe_sees_torch(tmp_path: Path) -> None:
    """The check can fail: a module that imports torch is caught."""
    (tmp_path / "guilty.py").write_text("import torch\n", encoding="utf-8")
    _, seen = heavy_after("guilty", cwd=tmp_path)
    assert "torch" in seen


CHILD = """
import sys
import compilediag as cd
from compilediag import cadence, drive, span, step
for _ in range(3):
    with span("x"):
        step()
assert drive(lambda step: cadence("c", 2).due(step), steps=3) == 3
import threading
assert threading.active_count() == 1
print(sorted({"torch", "rich", "click", "msgspec", "numpy"} & set(sys.modules)))
"""


def test_it_is_inert_and_imports_nothing_heavy(tmp_path: os.PathLike[str]) -> None:
    """Without `compilediag run`: no torch, no terminal library, no thread, no file."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = captured(sys.executable, "-c", CHILD, cwd=tmp_path, env=env, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    assert os.listdir(tmp_path) == []
