"""A subcommand: its options, which are declared in a dataclass (`option_fields.py`), and its help.

rich and rich-click cost more to import than everything else a short command does, so they are
imported only when help is drawn on a terminal.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from compilediag.commands.terminal import is_terminal
from compilediag.option_fields import Given, Options, entries, filled


class Command(click.Command):
    """A click command with help for people on a terminal; its epilog holds an example."""

    def get_help(self, ctx: click.Context) -> str:
        return _drawn(self, ctx) if is_terminal(sys.stdout) else super().get_help(ctx)


class CommandGroup(Command, click.Group):
    """A click group with the same help."""


def subcommand(
    name: str,
    options: type[Options],
    *,
    examples: str,
    cls: type[Command] = Command,
    table: Callable[[Given], Mapping[str, Any]] = lambda given: {},
    **settings: Any,
) -> Callable[[Callable[[Options], int | None]], Command]:
    """Makes a function of typed options a command; its docstring is the help. `table` gives the
    defaults of pyproject.toml for what was not given, by key; `settings` are of click's command.
    """

    def made(function: Callable[[Options], int | None]) -> Command:
        def callback(**given: Any) -> int | None:
            return function(filled(options, given, table(given)))

        return cls(
            name=name,
            callback=callback,
            params=[
                entry.param(field)
                for field, entry in entries(options).items()
                if entry.param and (not entry.only or name in entry.only)
            ],
            help=inspect.getdoc(function),
            epilog=f"\b\nExamples:\n{examples}",
            **settings,
        )

    return made


def _drawn(command: click.Command, ctx: click.Context) -> str:
    """The help of the same command, as rich-click draws it."""
    import rich_click

    same: dict[str, Any] = {"name": command.name, "params": command.params, "help": command.help}
    if isinstance(command, click.Group):
        listed = command.list_commands(ctx)
        commands: dict[str, click.Command] = {}
        for name in listed:
            if (item := command.get_command(ctx, name)) is not None:
                short = item.get_short_help_str(limit=100)
                commands[name] = rich_click.RichCommand(name=name, short_help=short)
        twin = rich_click.RichGroup(**same, commands=commands)
        twin.list_commands = lambda ctx: listed
    else:
        twin = rich_click.RichCommand(**same)
    twin_context = rich_click.RichContext(
        twin,
        info_name=ctx.info_name,
        parent=ctx.parent,
        help_option_names=list(ctx.help_option_names),
    )
    # The epilog as it is written: rich-click would flow its lines together.
    examples = (command.epilog or "").replace("\b\n", "").strip("\n").split("\n")
    indented = "\n".join(f" {line}" for line in examples)
    return f"{twin.get_help(twin_context).rstrip()}\n\n{indented}"
