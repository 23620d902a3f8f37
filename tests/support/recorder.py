"""Runs a program of a scenario under `compilediag run`, and records the run with torch's counts.

torch writes its trace of the run into a folder of its own, and `oracle.py` counts in it: nothing of
ours takes part in that. Folders of the machine get neutral names. Nothing here imports torch.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import oracle
from packaging.version import Version
from recordings import HOME, Recording
from scenario_cases import Case

ROOT = Path(__file__).resolve().parents[2]

LIMIT_S = 900
"""A case takes seconds; the demo compiles with inductor and may take a minute on a busy machine."""
MAX_FILE_BYTES = 4 << 20
"""Journals of scenarios have some 20 kB."""
OF_THE_MACHINE = ("TORCH", "COMPILEDIAG", "RANK", "WORLD_SIZE", "CUDA", "PYTHON")
"""Variables of ours would change what a program does."""

_PREFIX = re.compile(r"/[^\s\"':,\]]*?(?=/lib(?:64)?/python3\.\d+/)")


def is_recordable(case: Case) -> bool:
    """One run on a CPU: options of `run` make several, and devices are not everywhere."""
    return not (case.skip or case.needs or case.arguments)


def record(
    case: Case, python: str, torch: Version, caches: str
) -> tuple[Recording, dict[str, Any]]:
    """The recording of one run, and the receipt that the run itself wrote.

    Args:
        case: the program.
        python: one that has the torch.
        torch: its version.
        caches: the folder of inductor's caches.

    Raises:
        LookupError: the run left no receipt; the message has what was printed.
    """
    with tempfile.TemporaryDirectory(prefix="record-") as work:
        home = Path(work).resolve()
        folder = home / "scenarios" / case.name
        shutil.copytree(ROOT / "scenarios" / case.name, folder)
        (home / "tmp").mkdir()
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(OF_THE_MACHINE)},
            "TORCH_TRACE": str(home / "traces"),
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "TORCHINDUCTOR_CACHE_DIR": caches,
            "TORCHINDUCTOR_VEC_ISA_OK": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'harness'}",
        }
        command = [python, "-m", "compilediag", "run", "--quiet", "--no-live"]
        ended = subprocess.run(
            [*command, "--output", str(home / "run"), "--", f"{case.side}.py"],
            cwd=folder,
            env=environment,
            timeout=LIMIT_S,
            check=False,
            capture_output=True,
        )
        said = ended.stderr.decode(errors="replace")[-4000:]
        if not (home / "run" / "receipt.json").exists():
            raise LookupError(f"{case.id}: no receipt\n{said}")
        receipt = json.loads((home / "run" / "receipt.json").read_text(encoding="utf-8"))
        neutral = _Neutral(home, python, caches)
        return _recording(case, torch, ended.returncode, receipt, home, neutral), receipt


def _recording(
    case: Case,
    torch: Version,
    exit_code: int,
    receipt: dict[str, Any],
    home: Path,
    neutral: _Neutral,
) -> Recording:
    run, traces = home / "run", home / "traces"
    # The receipt is asked what was run, and how that ended: what torch counts has its own source.
    variables: dict[str, str] = receipt["header"]["run"]["env_allowlisted"]
    texts = oracle.read_break_texts(traces) + oracle.read_skip_texts(traces)
    written = [path for path in run.iterdir() if path.is_file() and path.name != "receipt.json"]
    return Recording(
        name=case.name,
        side=case.side,
        torch=torch.base_version,
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
            *((str(folder), HOME) for folder in (home, ROOT)),
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
