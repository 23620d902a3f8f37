"""`run --depyf`: the second run of a target, which decompiles its frames."""

from __future__ import annotations

import os
import signal
import tempfile

from compilediag.runs.run_directory import ARTIFACTS, DEPYF
from compilediag.runs.supervised.child import ExitInfo
from compilediag.runs.supervised.child_env import child_environment
from compilediag.runs.supervised.signals import SignalInbox
from compilediag.runs.supervised.supervised_run import SupervisedRun
from compilediag.runs.tools.depyf import decompile_run, time_for
from compilediag_harness.base.process_options import ProcessOptions

_STOP_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})


def decompile(run: SupervisedRun, ended: ExitInfo, inbox: SignalInbox) -> tuple[str, ...]:
    """Runs the target again and puts the decompiled frames among the artifacts.

    Returns notes for the user. Whatever goes wrong costs these files alone.
    """
    if ended.interrupts or run.target.kind == "stdin":
        return ("depyf: the target is not run a second time",)
    into = os.path.join(run.run_dir, ARTIFACTS, DEPYF)
    try:
        # A run directory of its own: the events of the second run count nowhere.
        with tempfile.TemporaryDirectory(prefix="compilediag-second-") as scratch:
            made = decompile_run(
                run.target.command,
                child_environment(run.variables, scratch, ProcessOptions(steps=run.options.steps)),
                into,
                time_s=run.options.timeout_s or time_for(ended.wall_s),
                known=run.secrets,
                stopped=lambda: bool(_STOP_SIGNALS & set(inbox.wait(0))),
            )
    except Exception as error:
        return (f"depyf: nothing was decompiled: {type(error).__name__}: {error}"[:300],)
    notes = [f"depyf: {made.problem}"] if made.problem else []
    if made.files:
        notes.append(f"what torch.compile made of each frame: {os.path.relpath(into)}")
    return tuple(notes)
