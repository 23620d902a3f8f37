"""Records the runs of tests/data/journals: every scenario, with what torch counted in that run.

    python tools/record_journals.py [--python ENVIRONMENT/bin/python] [--jobs 2] [NAME...]

Both programs of each scenario run under `compilediag run` of this checkout with the torch of that
environment, as `tests/support/recorder.py` says.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "harness"), str(ROOT / "tests" / "support")]

recorder: Any = importlib.import_module("recorder")
recordings: Any = importlib.import_module("recordings")
scenario_cases: Any = importlib.import_module("scenario_cases")


def main() -> int:
    """0 when every program left a recording."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="a Python that has the torch")
    parser.add_argument("--out", type=Path, default=recordings.JOURNALS)
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--missing", action="store_true", help="only those not recorded yet")
    parser.add_argument("names", nargs="*", help="scenarios, or SCENARIO-SIDE; all by default")
    asked = parser.parse_args()
    torch = _ask_version(asked.python)
    there = {path.name for path in (asked.out / torch.base_version).glob("*.json.gz")}
    chosen = [
        case
        for case in scenario_cases.cases(torch)
        if recorder.is_recordable(case)
        and _is_chosen(case, asked.names)
        and not (asked.missing and f"{case.id}.json.gz" in there)
    ]
    with (
        tempfile.TemporaryDirectory(prefix="inductor-") as caches,
        ThreadPoolExecutor(asked.jobs) as pool,
    ):
        working = [pool.submit(_record, case, asked, torch, caches) for case in chosen]
        problems = [each.result() for each in working]
    return int(any(problems))


def _ask_version(python: str) -> Version:
    code = "from importlib.metadata import version; print(version('torch'))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return Version(found.stdout.strip())


def _is_chosen(case: Any, names: Sequence[str]) -> bool:
    return not names or case.name in names or case.id in names


def _record(case: Any, asked: argparse.Namespace, torch: Version, caches: str) -> bool:
    """Records one program; whether that failed."""
    try:
        recording, _ = recorder.record(case, asked.python, torch, caches)
    except (OSError, LookupError, ValueError, subprocess.SubprocessError) as error:
        print(f"{case.id}: {type(error).__name__}: {error}", file=sys.stderr)
        return True
    path = recordings.write(recording, asked.out)
    print(f"{case.id}: {path.stat().st_size >> 10} kB, {recording.counted}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
