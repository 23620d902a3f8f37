"""The bytecode that torch.compile made of each frame, as Python, from a second run of the target.

The measured run is not touched: depyf would replace the code that is executed, and may end the
program. The second run has a fresh cache, prints nothing, and may fail: that costs these files.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, cast

from compilediag.readers.lines import parse_json
from compilediag.readers.storage import open_regular
from compilediag.runs.run_directory import ARTIFACTS, DEPYF
from compilediag.runs.supervised.child import ExitInfo, child_environment, start, supervise
from compilediag.runs.supervised.signals import GroupWitness, SignalInbox
from compilediag.runs.supervised.supervised_run import SupervisedRun
from compilediag.runs.tools.tlparse import ended_with
from compilediag_harness.base.process_options import ProcessOptions
from compilediag_harness.redaction.redactor import Redactor

MAX_LINE_BYTES = 8 << 20
MAX_FILES = 200
FOLDER_VARIABLE = "COMPILEDIAG_DEPYF_DIR"
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


def decompile(
    run: SupervisedRun, first: ExitInfo, inbox: SignalInbox, witness: GroupWitness
) -> tuple[str, ...]:
    """Runs the target again and puts the decompiled frames among the artifacts.

    Returns notes for the user. Whatever goes wrong costs these files alone.
    """
    if first.interrupts or run.target.kind == "stdin":
        return ("depyf: the target is not run a second time",)
    into = os.path.join(run.run_dir, ARTIFACTS, DEPYF)
    # A second run starts with empty caches, and decompiles at its end.
    time_s = run.options.timeout_s or 3 * first.wall_s + 120
    try:
        with tempfile.TemporaryDirectory(prefix="compilediag-second-") as scratch:
            notes = os.path.join(scratch, "notes")
            os.mkdir(notes)
            started = time.monotonic()
            child = start(
                run.target.command, _environment(run, scratch, notes), output_file=os.devnull
            )
            ended = supervise(
                child,
                inbox,
                witness,
                started=started,
                grace_s=run.options.grace_s,
                timeout_s=time_s,
            )
            files = list(_written(notes, into, run.secrets))
    except Exception as error:
        return (f"depyf: nothing was decompiled: {type(error).__name__}: {error}"[:300],)
    problem = _problem(ended, time_s) or (None if files else "it compiled nothing")
    told = [f"depyf: the second run of the target: {problem}"] if problem else []
    if files:
        told.append(f"what torch.compile made of each frame: {os.path.relpath(into)}")
    return tuple(told)


def _environment(run: SupervisedRun, scratch: str, notes: str) -> dict[str, str]:
    """That of the measured run, with empty caches and a run directory of its own: the events of the
    second run count nowhere."""
    options = ProcessOptions(steps=run.options.steps)
    variables = child_environment(run.variables, scratch, options)
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join([CHILD_FOLDER, variables["PYTHONPATH"]]),
        FOLDER_VARIABLE: notes,
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(scratch, "triton"),
    }


def _problem(ended: ExitInfo, time_s: float) -> str | None:
    if ended.timed_out:
        return f"it took longer than {time_s:g} s"
    if ended.interrupts or ended.passed_on:
        return "it was stopped"
    return ended_with(ended.returncode) if ended.returncode else None


def _written(notes: str, into: str, known: Sequence[str]) -> Iterator[str]:
    """One file a compile; names are numbers and a word."""
    os.makedirs(into, exist_ok=True)
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
                raw = parse_json(line)
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
