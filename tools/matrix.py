"""Runs the contract tests, those that compare with a plain run, those of compile costs, those of
values and the three-bug scenario on several torch versions.

Each version gets an environment of its own under `.matrix/`, removed afterwards unless `--keep`:
one takes several gigabytes. Needs only the standard library; `make matrix` calls it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".matrix"
NEEDED = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "numpy")
"""What the tests need beside the project; torch warns when it is imported without numpy."""

COSTS = ("compile_phases", "compile_caches", "guard_cost", "numbers", "pages_of_costs")
"""Tests of what differs most between versions of torch: its timing of compiles, its caches, its
settings."""


VALUES = ("skill", "lost_effects", "varied_calls")
"""Tests of what compiled code gives: facts of the skill, effects that graphs lack, calls that are
made again."""

PLAIN_RUN = (
    "tests/end_to_end/test_plain_run.py",
    "tests/torch/test_unseen_by_dynamo.py",
    "tests/torch/test_entry_points.py",
)
"""Programs see under compilediag what they see without."""


def main() -> int:
    """The number of versions that failed, capped at 1: the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="+", help="torch versions, such as 2.13.0")
    parser.add_argument("--keep", action="store_true", help="leave the environments in .matrix/")
    options = parser.parse_args()
    results = [(version, *check(version, keep=options.keep)) for version in options.versions]
    for version, problem, minutes in results:
        print(f"torch {version:8}  {problem or 'passed':24}  {minutes:.1f} min")
    return int(any(problem for _, problem, _ in results))


def check(version: str, *, keep: bool) -> tuple[str | None, float]:
    """What failed on this version (None when nothing did), and the minutes it took."""
    began = time.monotonic()
    environment = FOLDER / f"torch-{version}"
    python = environment / "bin" / "python"
    print(f"\n=== torch {version}", flush=True)
    try:
        for name, command in stages(version, environment, python):
            if subprocess.run(command, cwd=ROOT, env=child_environment(), check=False).returncode:
                return f"{name} failed", (time.monotonic() - began) / 60
        return None, (time.monotonic() - began) / 60
    finally:
        if not keep:
            shutil.rmtree(environment, ignore_errors=True)


def stages(version: str, environment: Path, python: Path) -> list[tuple[str, list[str]]]:
    """The commands of one version, in order, each with the name of what it does."""
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    pins = constraints_for(version)
    pytest = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return [
        ("environment", [sys.executable, "-m", "venv", str(environment)]),
        ("install", [*pip, "-c", str(pins), "-e", ".[torch]", *NEEDED]),
        ("version", [str(python), "-c", VERSION_CHECK, version]),
        ("contract tests", [*pytest, "tests/torch/test_torch_api.py"]),
        ("plain run", [*pytest, *PLAIN_RUN]),
        ("compile costs", [*pytest, *(f"tests/torch/test_{name}.py" for name in COSTS)]),
        ("values", [*pytest, *(f"tests/torch/test_{name}.py" for name in VALUES)]),
        ("three_bugs", [*pytest, "tests/end_to_end/test_scenarios.py", "-k", "three_bugs"]),
    ]


VERSION_CHECK = (
    "import sys, torch; seen = torch.__version__.partition('+')[0]; "
    "sys.exit(None if seen == sys.argv[1] else f'{seen} was installed')"
)


def constraints_for(version: str) -> Path:
    """The project's pins with another torch; numpy is left free, old torch builds need older."""
    FOLDER.mkdir(exist_ok=True)
    pins = FOLDER / f"constraints-{version}.txt"
    kept = [
        line
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith(("torch==", "numpy=="))
    ]
    pins.write_text("\n".join([f"torch=={version}", *kept, ""]), encoding="utf-8")
    return pins


def child_environment() -> dict[str, str]:
    """Ours, without what would make the child import or compile differently; scenarios run live."""
    dropped = ("PYTHONPATH", "TORCH_LOGS", "TORCH_TRACE", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "ALL_SCENARIOS": "1"}


if __name__ == "__main__":
    sys.exit(main())
