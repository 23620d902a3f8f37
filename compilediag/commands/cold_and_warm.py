"""`compilediag measure cold-and-warm`: a second start with the caches of the first."""

from __future__ import annotations

from compilediag.commands.target import (
    confirm_reruns,
    finish,
    make_announcer,
    read_option_files,
    refuse,
    target_command,
)
from compilediag.errors import UsageError
from compilediag.runs.supervised.run_options import RunOptions


def run_cold_and_warm(options: RunOptions) -> int:
    """Run a program twice: what does the second start compile?

    Both starts have the same caches, which are empty at first. The exit code is TARGET's.
    """
    from compilediag.runs.supervised.run import run_twice

    refuse(options, ("depyf",), "makes other runs than cold-and-warm: leave one of them out")
    if not options.target:
        raise UsageError("say what to run: `compilediag measure cold-and-warm train.py`")
    confirm_reruns("cold-and-warm", options.target, "twice", options)
    announce = make_announcer(quiet=options.quiet)
    return finish(run_twice(options.target, read_option_files(options), announce), options)


command = target_command(
    "cold-and-warm",
    """\
  compilediag measure cold-and-warm train.py --lr 3e-4
  compilediag measure cold-and-warm --yes train.py      in a script: no question
""",
)(run_cold_and_warm)
