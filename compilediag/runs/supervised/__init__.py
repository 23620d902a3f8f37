"""Runs the user's program as a supervised child: `run(words, RunOptions()) -> Outcome`.

The child is the program exactly as it would run without us: docs/reference/run.md.
"""

from __future__ import annotations

from compilediag.runs.supervised.child import Outcome
from compilediag.runs.supervised.run import run
from compilediag.runs.supervised.run_options import RunOptions

__all__ = ["Outcome", "RunOptions", "run"]
