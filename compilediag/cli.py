"""The command line: finds the subcommand, prints errors in one sentence, returns the exit code.

A subcommand's module is imported only when it is used: `commands/NAME.py` exposes its click
command as `command`, and `extension_points.py` names those of extensions. Nothing here imports
torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from compilediag import extension_points
from compilediag._version import __version__
from compilediag.commands.subcommand import Command
from compilediag.commands.terminal import mute_stdout, reserve_descriptors, write, write_message
from compilediag.errors import (
    EXIT_BROKEN_PIPE,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    CompilediagError,
)
from compilediag.views.text import clean

COMPLETE_VARIABLE = "_COMPILEDIAG_COMPLETE"

EVERYDAY = ("run", "show", "explain", "fix", "certify", "gate", "diff")

COMMANDS = {
    "run": "Run a program and explain why torch.compile recompiled.",
    "show": "Show the verdict of a run again.",
    "explain": "Explain a rule by its CODE, or a finding by its number N or its KEY.",
    "fix": "Try changes for the findings of a run, and prove those that work.",
    "certify": "Prove that a change makes a program better and changes no result.",
    "gate": "Judge receipts by limits and by a checked-in baseline.",
    "diff": "Compare two receipts: counts, causes, graph breaks, frames.",
    "measure against-eager": "Run a program compiled and eager in turns: does compiling pay?",
    "measure cold-and-warm": "Run a program twice: what does the second start compile?",
    "measure periodic": "Measure what each periodic group of work costs, and explain why.",
    "history stats": "Sum up a folder of receipts.",
    "history trend": "Report what got slower or less stable, and since which commit.",
    "analyze": "Explain the traces and logs of finished runs, from any machine.",
    "plan": "Choose the sizes to compile for from the sizes a run used.",
    "repro": "Write a small program that shows the cause of finding N.",
    "mcp": "Serve run, findings, explain, try, certify and gate to an agent.",
    "doctor": "Report what compilediag can and cannot observe here, and why.",
}
"""Every subcommand as it is typed, with its line in the help: the help imports none of them."""

HIDDEN = ("repro",)
"""Those that an option of another is for: `explain --repro`."""

GROUPS = {
    "measure": "Run a program several times to measure it: see the commands below.",
    "history": "Compare the receipts of many runs: see the commands below.",
}
"""The first words of those of two."""

FORMER = {
    "probe": "measure periodic",
    "stats": "history stats",
    "trend": "history trend",
}
"""Commands by the names that they once had."""


def load_command(name: str) -> click.Command:
    """Import the module of a subcommand, as it is typed, and return its click command.

    Raises:
        ExtensionMissing: the subcommand belongs to an extension that is not installed.
    """
    point = extension_points.COMMANDS.get(name)
    if point is not None:
        return extension_points.load(point, f"`compilediag {name}`")
    module = name.rpartition(" ")[2].replace("-", "_")
    return import_module(f"compilediag.commands.{module}").command


class LazyGroup(Command, click.Group):
    """A group whose commands are imported when they are called, not when they are listed."""

    def _list_summaries(self) -> dict[str, str]:
        """List the installed commands of this group, by the next word to type."""
        before = "" if self.name not in GROUPS else f"{self.name} "
        points = extension_points.COMMANDS
        listed: dict[str, str] = {}
        for typed, summary in COMMANDS.items():
            installed = typed not in points or extension_points.is_installed(points[typed])
            if typed.startswith(before) and installed and typed not in HIDDEN:
                word, _, more = typed.removeprefix(before).partition(" ")
                listed[word] = GROUPS[word] if more else summary
        return listed

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._list_summaries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The name and its summary; `resolve_command` gives the one that can be called."""
        summary = self._list_summaries().get(cmd_name)
        if summary is None:
            return None
        return click.Command(cmd_name, help=summary, short_help=summary)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = self._list_summaries()
        everyday = [name for name in summaries if name in EVERYDAY]
        more = [name for name in summaries if name not in EVERYDAY]
        for heading, names in (("Every day", everyday), ("More", more)):
            if names:
                with formatter.section(heading if everyday else "Commands"):
                    formatter.write_dl([(name, summaries[name]) for name in names])
        super().format_options(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if self.name in GROUPS:
            typed = f"{self.name} {name}"
        else:
            name = typed = FORMER.get(name, name)
        if typed in COMMANDS:
            return name, load_command(typed), rest
        if typed in GROUPS:
            return name, _make_group(name), rest
        if name.startswith("-"):
            raise click.NoSuchOption(name, ctx=ctx)
        # The command that was probably meant: one with a similar name, or `run`.
        from difflib import get_close_matches

        names = self.list_commands(ctx)
        close = get_close_matches(name, names, n=1)
        meant = f"the commands are {', '.join(names)}"
        if close:
            meant = f"did you mean `{ctx.command_path} {close[0]}`?"
        elif name.endswith(".py") or os.path.exists(name):
            meant = f"to run a program: `compilediag run {clean(name, limit=60)}`"
        raise click.UsageError(f"there is no command {clean(name, limit=60)!r}; {meant}", ctx)


def _make_group(name: str) -> LazyGroup:
    """Make the group of the commands that begin with this word."""
    lines = [f"  compilediag {typed} --help" for typed in COMMANDS if typed.startswith(f"{name} ")]
    examples = "\b\nExamples:\n" + "\n".join(lines)
    return LazyGroup(name, help=GROUPS[name], epilog=examples, no_args_is_help=True)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  compilediag run --record train.py    run it, explain its recompiles, and keep its results
  compilediag certify -- train.py      after an edit: is it better, with the same results?
  compilediag fix train.py             try changes for the findings, and prove them
  compilediag gate --update            from now on, CI reports what is worse
""",
)
@click.version_option(__version__, "-V", "--version", message="compilediag %(version)s")
def group() -> None:
    """Why did torch.compile compile again, what did it cost, and what do I change?

    Start with `compilediag run`, which needs no change to your code.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; prints every error, raises none."""
    reserve_descriptors()
    try:
        code = _dispatch(_name_probe(list(sys.argv[1:] if args is None else args)))
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison] - `>&-`
            sys.stdout.flush()
    except CompilediagError as error:
        return _report_failure(str(error), error.exit_code)
    except click.ClickException as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            write(error.format_message() + "\n")
            return error.exit_code
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "compilediag"
        sentence = f"{error.format_message().rstrip('.')} (see `{path} --help`)"
        return _report_failure(sentence, error.exit_code)
    except (KeyboardInterrupt, click.Abort) as end:
        return _report_failure(str(end) or "interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        mute_stdout()
        return EXIT_BROKEN_PIPE
    except Exception as error:
        return _report_failure(_describe_fault(error), EXIT_INTERNAL)
    return code


PROBE_FLAG = "--cadence-probe"


def _name_probe(args: list[str]) -> list[str]:
    """Name the command of `run model.py --cadence-probe`, which may stand after TARGET, too; behind
    `--` it is the target's own."""
    ours = args[: args.index("--")] if "--" in args else args
    if ours[:1] != ["run"] or PROBE_FLAG not in ours:
        return args
    at = ours.index(PROBE_FLAG)
    return ["measure", "periodic", *args[1:at], *args[at + 1 :]]


def _dispatch(args: list[str]) -> int:
    if COMPLETE_VARIABLE in os.environ:
        group.main(args, prog_name="compilediag", complete_var=COMPLETE_VARIABLE)
    try:
        with group.make_context("compilediag", args) as ctx:
            result: Any = group.invoke(ctx)
    except click.exceptions.Exit as done:
        return done.exit_code
    except SystemExit as done:
        if isinstance(done.code, str):
            return _report_failure(done.code, 1)
        result = done.code
    return result if isinstance(result, int) else EXIT_OK


def _report_failure(message: str, code: int) -> int:
    if message:
        write_message(message)
    return code


def _describe_fault(error: Exception) -> str:
    """Describe an exception that nobody meant to raise, for a bug report."""
    import platform
    import traceback

    from compilediag.project_urls import format_issue_address

    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " <- ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in reversed(frames))
    what = f"{type(error).__name__}: {clean(error, ascii_only=True, limit=300)}"
    if os.environ.get("COMPILEDIAG_TRACEBACK"):
        traceback.print_exception(error)
    return (
        f"a fault of compilediag itself, not of your program: {what}\n"
        f"  at {where} (compilediag {__version__}, Python {platform.python_version()})\n"
        f"  please report it with these lines {format_issue_address()}\n"
        "  the whole traceback: the same command with COMPILEDIAG_TRACEBACK=1"
    )
