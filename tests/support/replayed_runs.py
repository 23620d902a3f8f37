"""Receipts of recorded runs: what `compilediag run` makes of the files that a run has left."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
from recordings import Recording

from compilediag.receipt.schema.identity import Provenance
from compilediag.runs.supervised.assemble import assemble
from compilediag.runs.supervised.child import ExitInfo, SupervisedRun
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.supervised.target import Target

STARTED_UNIX = 1_790_000_000.0
"""When a replayed run is said to have started."""


def replay(recording: Recording, folder: Path) -> dict[str, Any]:
    """The receipt of a recorded run, whose files are unpacked into `folder`."""
    recording.unpack(folder)
    program = recording.program
    target = Target("script", (sys.executable, program), recording.side, script=program)
    run = SupervisedRun(
        words=(program,),
        target=target,
        options=RunOptions(output=str(folder), live=False, quiet=True),
        variables=recording.variables,
        run_dir=str(folder),
        started_unix=STARTED_UNIX,
        folder=os.path.dirname(program),
    )
    ended = ExitInfo(recording.pid, recording.returncode, recording.wall_s)
    receipt, _, _ = assemble(run, ended, Provenance())
    return json.loads(msgspec.json.encode(receipt))
