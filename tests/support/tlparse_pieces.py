"""What the tests of tlparse share: traces of one record, and a stand-in for the program."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from compilediag.runs.tools.tlparse import Report, make_reports

HEAD = "V1121 14:11:01.404000 100 torch/_dynamo/utils.py:2009] "


def record(metadata: dict[str, Any] | str, payload: str | None = None) -> bytes:
    """One record as torch writes it."""
    if payload is not None and isinstance(metadata, dict):
        digest = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
        metadata = {**metadata, "has_payload": digest}
    text = metadata if isinstance(metadata, str) else json.dumps(metadata)
    lines = [HEAD + text, *(f"\t{line}" for line in (payload or "").split("\n") if payload)]
    return "".join(f"{line}\n" for line in lines).encode()


def ids(frame: int, compile_: int) -> dict[str, int]:
    return {"frame_id": frame, "frame_compile_id": compile_, "attempt": 0}


GOOD = """
mkdir "$3"; echo '<html>' > "$3/index.html"
echo '{}' > "$3/compile_directory.json"; : > "$3/raw.jsonl"
"""


def stand_in(folder: Path, body: str) -> str:
    """A program that is called as tlparse is: LOG -o FOLDER --no-browser."""
    path = folder / "stand-in"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


METRICS = {
    "co_name": "f",
    "co_filename": "a.py",
    "co_firstlineno": 1,
    "recompile_reason": None,
    "guard_latency_us": 5,
}
"""What rows have since torch 2.7."""


def trace(*extra: bytes) -> bytes:
    """A first compile and a recompile of one frame."""
    reason = "0/0: n == 2"
    return b"".join(
        [
            record({"dynamo_start": {"stack": []}, **ids(0, 0)}),
            record({"compilation_metrics": {"compile_id": "0/0", **METRICS}, **ids(0, 0)}),
            record(
                {"artifact": {"name": "recompile_reasons", "encoding": "json"}, **ids(0, 1)}, reason
            ),
            record({"compilation_metrics": {"compile_id": "0/1", **METRICS}, **ids(0, 1)}),
            *extra,
        ]
    )


def one(log: str, tmp_path: Path, program: str | None) -> Report:
    """The report of one log; nothing but it is left in the folder of reports."""
    into = tmp_path / "out"
    (report,) = make_reports([log], str(into), (), program)
    assert sorted(os.listdir(into)) == ([] if report.folder is None else ["1"])
    return report
