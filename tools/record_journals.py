"""Records the runs of tests/data/journals: every scenario, with what torch counted in that run.

    PYTHON tools/record_journals.py [--python ENVIRONMENT/bin/python] [--jobs 2] [NAME...]

Both programs of each scenario run under `compilediag run` of this checkout, with the torch of that
environment and under TORCH_TRACE; `tests/support/oracle.py` counts in torch's trace, and nothing of
ours takes part in that. Folders of the machine get neutral names. Where `expected.toml` asks for
options of `run` there are several runs, and for a device there is none here: both are left out.
"""

from __future__ import annotations

import argparse
import binascii
import importlib
import json
import os
import re
import shutil
import socket
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

oracle: Any = importlib.import_module("oracle")
recordings: Any = importlib.import_module("recordings")
scenario_cases: Any = importlib.import_module("scenario_cases")

LIMIT_S = 900
MAX_FILE_BYTES = 4 << 20
"""Journals of scenarios have some 20 kB."""
OF_THE_MACHINE = ("TORCH", "COMPILEDIAG", "RANK", "WORLD_SIZE", "CUDA", "PYTHON")
"""Variables of ours would change what a program does."""

_PREFIX = re.compile(r"/[^\s\"':,\]]*?(?=/lib(?:64)?/python3\.\d+/)")


def main() -> int:
    """0 when every program left a recording."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="a Python that has the torch")
    parser.add_argument("--out", type=Path, default=recordings.JOURNALS)
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("names", nargs="*", help="scenarios, or SCENARIO-SIDE; all by default")
    asked = parser.parse_args()
    torch = _ask_version(asked.python)
    chosen = [case for case in _cases(torch) if _is_chosen(case, asked.names)]
    with (
        tempfile.TemporaryDirectory(prefix="inductor-") as caches,
        ThreadPoolExecutor(asked.jobs) as pool,
    ):
        working = [pool.submit(record, case, asked, torch, caches) for case in chosen]
        problems = [each.result() for each in working]
    for problem in filter(None, problems):
        print(problem, file=sys.stderr)
    return int(any(problems))


def _ask_version(python: str) -> Version:
    code = "from importlib.metadata import version; print(version('torch'))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return Version(found.stdout.strip())


def _cases(torch: Version) -> list[Any]:
    every = (
        scenario_cases.case(name, side, torch)
        for name in scenario_cases.names()
        for side in scenario_cases.SIDES
    )
    return [case for case in every if not (case.skip or case.needs or case.arguments)]


def _is_chosen(case: Any, names: Sequence[str]) -> bool:
    return not names or case.name in names or case.id in names


def record(case: Any, asked: argparse.Namespace, torch: Version, caches: str) -> str | None:
    """Runs one program and writes its recording; what went wrong."""
    with tempfile.TemporaryDirectory(prefix="record-") as work:
        home = Path(work).resolve()
        folder = home / "scenarios" / case.name
        shutil.copytree(ROOT / "scenarios" / case.name, folder)
        traces, run, scratch = home / "traces", home / "run", home / "tmp"
        scratch.mkdir()
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(OF_THE_MACHINE)},
            "TORCH_TRACE": str(traces),
            "HOME": str(home),
            "TMPDIR": str(scratch),
            "TORCHINDUCTOR_CACHE_DIR": caches,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'harness'}",
        }
        command = [asked.python, "-m", "compilediag", "run", "--quiet", "--no-live"]
        ended = subprocess.run(
            [*command, "--output", str(run), "--", f"{case.side}.py"],
            cwd=folder,
            env=environment,
            timeout=LIMIT_S,
            check=False,
            capture_output=True,
        )
        neutral = _Neutral(home, asked.python, caches)
        try:
            recording = _recording(case, torch.base_version, ended.returncode, home, neutral)
        except (OSError, LookupError, ValueError) as error:
            said = ended.stderr.decode(errors="replace")[-2000:]
            return f"{case.id}: {type(error).__name__}: {error}\n{said}"
        path = recordings.write(recording, asked.out)
        print(f"{case.id}: {path.stat().st_size >> 10} kB, {recording.counted}", flush=True)
        return None


def _recording(case: Any, torch: str, exit_code: int, home: Path, neutral: _Neutral) -> Any:
    run, traces = home / "run", home / "traces"
    # The receipt is asked what was run, and how that ended: what torch counts has its own source.
    receipt: dict[str, Any] = json.loads((run / "receipt.json").read_text(encoding="utf-8"))
    variables: dict[str, str] = receipt["header"]["run"]["env_allowlisted"]
    texts = oracle.read_break_texts(traces)
    texts += [oracle.read_log(path) for path in sorted(run.glob("torch_logs*"))]
    written = [path for path in run.iterdir() if path.is_file() and path.name != "receipt.json"]
    return recordings.Recording(
        name=case.name,
        side=case.side,
        torch=torch,
        returncode=128 - exit_code if receipt["status"] == "killed" else exit_code,
        wall_s=round(receipt["goodput"]["wall_s"], 3) if receipt["goodput"] else 0.0,
        pid=_first_pid(run),
        variables={name: neutral.text(value) for name, value in variables.items()},
        counted=oracle.counts(oracle.read_trace_rows(traces), texts),
        files={path.name: neutral.file(path) for path in sorted(written)},
    )


def _first_pid(run: Path) -> int:
    """Of the process that no other recorded process started."""
    started: list[dict[str, Any]] = []
    for path in run.glob("journal-*.jsonl"):
        line = path.read_bytes().partition(b"\n")[0]
        if b'"k":"ProcessStarted"' in line:
            started.append(json.loads(line.split(b" ", 2)[2]))
    pids = {each["pid"] for each in started}
    return next(each["pid"] for each in started if each["parent_pid"] not in pids)


class _Neutral:
    """Gives folders of this machine the names that they have in every recording."""

    def __init__(self, home: Path, python: str, caches: str) -> None:
        environment = str(Path(python).parent.parent.absolute())
        self._names = [
            *((str(folder), recordings.HOME) for folder in (home, ROOT)),
            (environment, "/venv"),
            (caches, "/caches"),
            (socket.gethostname(), "machine"),
        ]

    def text(self, text: str) -> str:
        text = _PREFIX.sub("/venv", text)
        for name, neutral in self._names:
            text = text.replace(name, neutral)
        return text

    def file(self, path: Path) -> str:
        """The text of a file; lines of a journal get the checksum that they have now."""
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"{path.name} has more than {MAX_FILE_BYTES >> 20} MiB")
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        if not path.name.startswith("journal-"):
            return self.text(text)
        return "\n".join(self._line(line) for line in text.split("\n"))

    def _line(self, line: str) -> str:
        checksum, _, body = line.partition(" ")
        whole = checksum == _checksum(body)
        body = self.text(body)
        return f"{_checksum(body) if whole else checksum} {body}" if line else line


def _checksum(body: str) -> str:
    return f"{binascii.crc32(body.encode('utf-8', 'surrogateescape')):08x}"


if __name__ == "__main__":
    sys.exit(main())
