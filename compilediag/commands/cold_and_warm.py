"""`compilediag run --cold-and-warm`: what a second start of a program still compiles, and why."""

from __future__ import annotations

from compilediag.commands.confirm import announcer, confirm_reruns
from compilediag.commands.options import refuse, with_files_read
from compilediag.commands.run_report import finish
from compilediag.errors import UsageError
from compilediag.runs.supervised.cold_and_warm import run_twice
from compilediag.runs.supervised.options import RunOptions

_OTHERS = ("fix", "cadence_probe", "witness", "depyf", "group", "keep_caches")
"""Options that make other runs, or change what is compiled."""


def run_cold_and_warm(options: RunOptions) -> int:
    """Runs TARGET twice with the same caches, and returns the exit code.

    Raises:
        UsageError: nothing was started.
    """
    refuse(options, _OTHERS, "makes other runs than --cold-and-warm: leave one of them out")
    if not options.target:
        raise UsageError("name the program: `compilediag run --cold-and-warm train.py`")
    confirm_reruns("--cold-and-warm", options.target, "twice", yes=options.yes, quiet=options.quiet)
    announce = announcer(quiet=options.quiet)
    return finish(run_twice(options.target, with_files_read(options), announce), options)
