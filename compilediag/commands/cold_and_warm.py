"""`compilediag run --cold-and-warm`: what a second start of a program still compiles, and why."""

from __future__ import annotations

import shlex
import sys

import click

from compilediag.commands.options import RunOptions, supervised_options
from compilediag.commands.run_report import finish
from compilediag.commands.terminal import is_terminal, write_message, write_stderr
from compilediag.errors import UsageError
from compilediag.runs.supervised.cold_and_warm import run_twice
from compilediag.views.text import clean

_OTHERS = ("fix", "cadence_probe", "witness", "depyf", "group", "keep_caches")
"""Options that make other runs, or change what is compiled."""


def run_cold_and_warm(options: RunOptions) -> int:
    """Runs TARGET twice with the same caches, and returns the exit code.

    Raises:
        UsageError: nothing was started.
    """
    for name in _OTHERS:
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} makes other runs than --cold-and-warm: leave one of them out")
    if not options.target:
        raise UsageError("name the program: `compilediag run --cold-and-warm train.py`")
    _confirm(options)
    return finish(
        run_twice(options.target, supervised_options(options), lambda text: _say(options, text)),
        options,
    )


def _say(options: RunOptions, text: str) -> None:
    if not options.quiet:
        write_stderr(f"compilediag: {text}\n")


def _confirm(options: RunOptions) -> None:
    """A rerun repeats side effects: that is said before, also where nobody is asked."""
    what = (
        f"runs {clean(shlex.join(options.target), limit=200)} twice; what it writes or sends, it "
        "writes or sends each time"
    )
    if not options.yes and not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError(f"--cold-and-warm {what}: say --yes where nobody can be asked")
    if not options.yes or not options.quiet:
        write_message(f"--cold-and-warm {what}.")
    if not options.yes and not click.confirm("go on?", default=False, err=True):
        raise UsageError("nothing was run")
