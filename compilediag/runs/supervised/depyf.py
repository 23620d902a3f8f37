"""The bytecode that torch.compile made of each frame, as Python, from a second run of the target.

The measured run is not touched: depyf would replace the code that is executed, and may end the
program. The second run has a fresh cache, prints nothing, and may fail: that costs these files.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Sequence

from compilediag.readers.storage import open_regular
from compilediag.runs.run_directory import ARTIFACTS, DEPYF
from compilediag.runs.supervised.child import (
    ExitInfo,
    SupervisedRun,
    make_child_environment,
    start_target,
    supervise,
)
from compilediag.runs.supervised.signals import GroupSignalMonitor, SignalInbox
from compilediag.runs.tools.tlparse import describe_exit_code
from compilediag_harness.base.process_options import ProcessOptions
from compilediag_harness.redaction.redactor import Redactor

MAX_BYTES = 8 << 20
"""A larger file is left out."""
MAX_FILES = 200
FOLDER_VARIABLE = "COMPILEDIAG_DEPYF_DIR"
CHILD_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "depyf_child")
"""Goes onto PYTHONPATH."""
_NAME = re.compile(r"a?\d[\d-]{0,60}-[A-Za-z0-9_]{0,60}\.py")


def decompile_frames(
    run: SupervisedRun, first: ExitInfo, inbox: SignalInbox, group_monitor: GroupSignalMonitor
) -> tuple[str, ...]:
    """Run the target again and put the decompiled frames among the artifacts.

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
            # A run directory of its own: the events of the second run count nowhere.
            options = ProcessOptions(steps=run.options.steps)
            variables = make_child_environment(run.variables, scratch, options)
            variables |= {
                "PYTHONPATH": os.pathsep.join([CHILD_FOLDER, variables["PYTHONPATH"]]),
                FOLDER_VARIABLE: notes,
                "TORCHINDUCTOR_CACHE_DIR": os.path.join(scratch, "inductor"),
                "TRITON_CACHE_DIR": os.path.join(scratch, "triton"),
            }
            started = time.monotonic()
            child = start_target(run.target.command, variables, output_file=os.devnull)
            ended = supervise(
                child,
                inbox,
                group_monitor,
                started=started,
                grace_s=run.options.grace_s,
                timeout_s=time_s,
            )
            count = _copy_decompiled(notes, into, run.secrets)
    except Exception as error:
        return (f"depyf: nothing was decompiled: {type(error).__name__}: {error}"[:300],)
    problem = None if count else "it compiled nothing"
    if ended.timed_out:
        problem = f"it took longer than {time_s:g} s"
    elif ended.interrupts or ended.passed_on:
        problem = "it was stopped"
    elif ended.returncode:
        problem = describe_exit_code(ended.returncode)
    sentences = [f"depyf: the second run of the target: {problem}"] if problem else []
    if count:
        sentences.append(f"what torch.compile made of each frame: {os.path.relpath(into)}")
    return tuple(sentences)


def _copy_decompiled(notes: str, into: str, known: Sequence[str]) -> int:
    """Copy the files that the child wrote under its names, without secrets; return their number."""
    os.makedirs(into, exist_ok=True)
    redactor, count = Redactor(known), 0
    names = [name for name in os.listdir(notes) if _NAME.fullmatch(name)]
    for name in sorted(names, key=lambda name: [int(x) for x in re.findall(r"\d+", name)]):
        file = open_regular(os.path.join(notes, name)) if count < MAX_FILES else None
        if file is None:
            continue
        with file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) <= MAX_BYTES:
            with open(os.path.join(into, name), "x", encoding="utf-8") as copy:
                copy.write(redactor.redact_text(raw.decode("utf-8", "replace")))
            count += 1
    return count
