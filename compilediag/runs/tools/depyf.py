"""The bytecode that torch.compile made of each frame, as Python, from a second run of the target.

The measured run is not touched: depyf would replace the code that is executed, and may end the
program. The second run has a fresh cache, prints nothing, and may fail: that costs these files.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from compilediag.readers.lenient_json import parse
from compilediag.readers.storage import open_regular
from compilediag.runs.tools.limited import Limits, run_with_limits
from compilediag_harness.redaction.redactor import Redactor

MAX_LINE_BYTES = 8 << 20
MAX_FILES = 200
FOLDER_VARIABLE = "COMPILEDIAG_DEPYF_DIR"
_UNLIMITED = -1
CHILD_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "depyf_child")
"""Goes onto PYTHONPATH."""
_HARMLESS = re.compile(r"[^A-Za-z0-9_]+")
_COMPILE_ID = re.compile(r"!?[\d/]{1,60}\Z")

_CALLED = (
    "# `__compiled_fn_...` are the captured graphs, `__resume_at_...` what goes on behind a graph\n"
    "# break.\n"
)
_AFTER_BREAK = (
    "# This frame is what runs after a graph break: torch made a function of the rest of the\n"
    "# interrupted one, and compiled it by itself.\n"
)


class Decompiled(NamedTuple):
    """The result of the second run."""

    files: tuple[str, ...]
    """Paths of the written files, one a compile."""
    problem: str | None = None
    """What went wrong, in one sentence; there may be files all the same."""


def decompile_run(
    command: Sequence[str],
    environment: Mapping[str, str],
    into: str,
    *,
    time_s: float,
    known: Sequence[str] = (),
    stopped: Callable[[], bool] | None = None,
) -> Decompiled:
    """Runs the target again, with fresh caches, and writes its frames as Python.

    Args:
        command: the target, as the measured run started it.
        environment: of the measured run's target.
        into: a folder for the files, which is made.
        time_s: longest time of the run.
        known: secret values, which are redacted.
        stopped: called regularly; True ends the run.
    """
    os.makedirs(into, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compilediag-depyf-") as work:
        notes = os.path.join(work, "notes")
        os.mkdir(notes)
        paths = [CHILD_FOLDER, *filter(None, [environment.get("PYTHONPATH")])]
        child = {
            **environment,
            "PYTHONPATH": os.pathsep.join(paths),
            FOLDER_VARIABLE: notes,
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(work, "inductor"),
            "TRITON_CACHE_DIR": os.path.join(work, "triton"),
        }
        limits = Limits(time_s, _UNLIMITED, _UNLIMITED)
        ended = run_with_limits(command, os.getcwd(), limits, child, stopped)
        files = tuple(_written(notes, into, known))
    if ended.problem is not None:
        return Decompiled(files, f"the second run of the target: {ended.problem}")
    return Decompiled(files, None if files else "the second run of the target compiled nothing")


def _written(notes: str, into: str, known: Sequence[str]) -> Iterator[str]:
    """One file a compile; names are numbers and a word."""
    redactor = Redactor(known)
    for note in islice(_notes_in(notes), MAX_FILES):
        compile_id = str(note.get("compile_id"))
        if not _COMPILE_ID.match(compile_id):
            continue
        identity = compile_id.replace("/", "-").replace("!", "a")
        word = _HARMLESS.sub("_", str(note.get("function")))[:60]
        path = os.path.join(into, f"{identity}-{word}.py")
        text = redactor.text(_text(compile_id, note))
        try:
            with open(path, "x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except FileExistsError:  # ids repeat after a reset and in every process: the first is kept
            continue
        yield path


def _notes_in(folder: str) -> Iterator[dict[str, Any]]:
    for name in sorted(os.listdir(folder)):
        file = open_regular(os.path.join(folder, name))
        if file is None:
            continue
        with file:
            while line := file.readline(MAX_LINE_BYTES):
                raw = parse(line)
                if isinstance(raw, dict):
                    yield cast("dict[str, Any]", raw)


def _text(compile_id: str, note: dict[str, Any]) -> str:
    """The file of one compile: the compiled code, the original code, and the guards."""
    frame = f"{_line(note.get('function'))}, line {_line(note.get('line'))}"
    parts = [f"# Compile {compile_id} of {frame}: what torch.compile made of it.\n{_CALLED}"]
    if note.get("resumes") is True:
        parts.append(_AFTER_BREAK)
    parts.append(_part("what runs", note.get("after")))
    parts.append(_part("what it was made of", note.get("before")))
    guards = note.get("guards")
    if isinstance(guards, str):
        parts.append("# --- the guards of this variant\n" + _commented(guards))
    return "\n".join(parts)


def _part(name: str, code: Any) -> str:
    pair = cast("list[object]", code) if isinstance(code, list) else []
    if len(pair) != 2 or not isinstance(pair[0], str):
        return f"# --- {name}: not known\n"
    if pair[1] == "depyf":
        return f"# --- {name}, decompiled by depyf\n{pair[0]}"
    return f"# --- {name}, as bytecode: depyf could not decompile it\n{_commented(pair[0])}"


def _commented(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


def _line(value: object) -> str:
    return " ".join(str(value).split())[:120]


def time_for(wall_s: float) -> float:
    """Longest time of a second run: it starts with empty caches, and decompiles at its end."""
    return 3 * wall_s + 120
