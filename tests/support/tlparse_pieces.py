"""What the tests of tlparse share: traces of one record, and a stand-in for the program."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from timelines import attempt, recompile, timeline

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


def run_of_two() -> Any:
    """What we count of `trace()`: a compile, and a recompile for one reason."""
    cause = recompile("0/1")
    return timeline([attempt("0/0"), attempt("0/1", kind="recompile", cause=cause)])
