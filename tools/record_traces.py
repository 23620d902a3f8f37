"""Records the traces of tests/data/traces_<version>, with what torch itself counted beside them.

    PYTHON tools/record_traces.py --python ENVIRONMENT/bin/python tests/data/traces_2.7.1

Programs of scenarios run under TORCH_TRACE in that environment, and once more under
`tests/support/oracle.py`, which asks torch. The traces are made small and lose what is of the
machine: folders are renamed, configuration dumps emptied, graphs and generated code left out, and
digests of changed payloads written again. Needs only the standard library; no compilediag is
imported.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

PROGRAMS = (
    "backward_records",
    "break_in_loop",
    "break_on_exception",
    "breaks_inflated",
    "closure_flag",
    "container_structure",
    "dynamic_size",
    "dynamo_reset",
    "global_variable",
    "module_attribute",
    "recompile_limit",
    "tensor_metadata",
)
"""Scenarios: recompiles of several kinds, at the limit and after a reset, breaks with their
restarts, frames that run eager, backwards through aot_eager."""

HOME = "/home/user"
"""Where the programs seem to have run."""

_RECORD = re.compile(rb"[^\t\n][^\n]*\n(?:\t[^\n]*\n)*")
_LEFT_OUT = re.compile(
    rb'\] \{"(?:\w+_graph|inductor_\w+|dynamo_output_graph|describe_\w+|dump_file)"'
    rb'|"name": "(?:\w*bytecode\w*|\w*graph\b(?!_break)\w*|\w*_code)"'
)
_CONFIGURATION = re.compile(rb'("(?:inductor|functorch|compiler)_config": )"(?:[^"\\]|\\.)*"')
_PACKAGES = re.compile(rb"/[^\s\"':,\]]*?(?=/lib(?:64)?/python3\.\d+/)")
_DIGEST = re.compile(rb'(?<="has_payload": ")[0-9a-f]{32}(?="\}$)')


def main() -> int:
    """0 when every program was recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the traces and expected.json go")
    parser.add_argument("--python", default=sys.executable, help="a Python that has the torch")
    parser.add_argument("programs", nargs="*", help="scenarios; a dozen by default")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    expected = {
        name: record(name, asked.python, asked.folder) for name in asked.programs or PROGRAMS
    }
    told = json.dumps(expected, indent=1, sort_keys=True)
    (asked.folder / "expected.json").write_text(told + "\n", encoding="utf-8")
    return 0


def record(name: str, python: str, folder: Path) -> dict[str, Any]:
    """Writes the trace of one program; what torch counted when it ran again."""
    with tempfile.TemporaryDirectory(prefix="record-") as work:
        home = Path(work).resolve()
        program = home / "scenarios" / name / "broken.py"
        shutil.copytree(ROOT / "scenarios" / name, program.parent)
        traces = home / "traces"
        _run([python, str(program)], home, TORCH_TRACE=str(traces))
        report = home / "report.json"
        _run(
            [python, str(ROOT / "tests" / "support" / "oracle.py"), str(report), str(program)], home
        )
        [trace] = traces.iterdir()
        content = clean(trace.read_bytes(), str(home))
        with (folder / f"{name}.log.gz").open("wb") as target:
            target.write(gzip.compress(content, mtime=0))
        return _told(json.loads(report.read_text(encoding="utf-8")), str(home))


def _run(command: list[str], home: Path, **variables: str) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = {**kept, **variables, "HOME": str(home), "TORCHINDUCTOR_CACHE_DIR": str(home)}
    done = subprocess.run(command, cwd=home, env=environment, check=False, capture_output=True)
    if done.returncode:
        sys.stderr.buffer.write(done.stderr)
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")


def _told(report: dict[str, Any], home: str) -> dict[str, Any]:
    """The counts, each place of a break, and torch's reason for each compile that had one."""
    breaks = [[file.replace(home, HOME), line] for file, line in report["sites"]]
    reasons = [
        [row["epoch"], row["id"], row["reason"].split("\n")[0].strip().replace(home, HOME)]
        for row in report["rows"]
        if row["reason"] is not None
    ]
    return {"counts": report["counts"], "breaks": breaks, "reasons": reasons}


def clean(trace: bytes, home: str) -> bytes:
    """The trace without what is of the machine, and without what is large."""
    kept = (found[0] for found in _RECORD.finditer(trace))
    return b"".join(_cleaned(each, home) for each in kept if not _LEFT_OUT.search(_head(each)))


def _head(record: bytes) -> bytes:
    return record.partition(b"\n")[0][:500]


def _cleaned(record: bytes, home: str) -> bytes:
    """One record with neutral folders, and the digest that its payload has now."""
    record = record.replace(home.encode(), HOME.encode())
    record = _CONFIGURATION.sub(rb'\1"{}"', _PACKAGES.sub(b"/venv", record))
    line, _, payload = record.partition(b"\n")
    if payload:
        plain = payload[1:-1].replace(b"\n\t", b"\n")
        digest = hashlib.md5(plain, usedforsecurity=False).hexdigest()
        line = _DIGEST.sub(digest.encode(), line)
    return line + b"\n" + payload


if __name__ == "__main__":
    sys.exit(main())
