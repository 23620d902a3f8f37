"""The words of a command that runs the program again: what it is about to do, and a question where
somebody is there."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence

import click

from compilediag.commands.terminal import is_terminal, write_message, write_stderr
from compilediag.errors import UsageError
from compilediag.views.text import clean


def confirm_reruns(
    command: str, words: Sequence[str], how_often: str, *, yes: bool, quiet: bool
) -> None:
    """A rerun repeats side effects: that is said before, also where nobody is asked.

    Args:
        command: as it was typed: "fix", "--against-eager".
        words: the command line of the program.
        how_often: what follows "runs PROGRAM", as "twice".
        yes: the answer was given with the command.
        quiet: with `yes`, nothing is printed.

    Raises:
        UsageError: the answer was no, or nobody can be asked.
    """
    what = (
        f"runs {clean(shlex.join(words), limit=200)} {how_often}; what it writes or sends, it "
        "writes or sends each time"
    )
    if not yes and not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError(f"{command} {what}: add --yes if nobody can be asked")
    if not yes or not quiet:
        write_message(f"{command} {what}.")
    if not yes and not click.confirm("go on?", default=False, err=True):
        raise UsageError("nothing was run")


def announcer(*, quiet: bool) -> Callable[[str], None]:
    """Takes what is run next, for the user; says nothing to one who wants quiet."""

    def announce(text: str) -> None:
        if not quiet:
            write_stderr(f"compilediag: {clean(text, limit=300)}\n")

    return announce
