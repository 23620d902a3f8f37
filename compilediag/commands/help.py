"""Commands whose help is drawn by rich-click on a terminal and is plain text in a pipe.

rich and rich-click cost more to import than everything else a short command does, so they are
imported when help is drawn and at no other time.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click


class Command(click.Command):
    """A click command with help for people on a terminal; give it an epilog with an example."""

    _asks_for_help: click.Option | None = None

    def get_help(self, ctx: click.Context) -> str:
        return _drawn(self, ctx) if is_terminal() else super().get_help(ctx)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """As click's own, which would look for translations of its one sentence, and import
        `locale` for it, whenever a command starts."""
        if self._asks_for_help is None:  # one for good: click compares options by identity
            self._asks_for_help = click.Option(
                [*self.get_help_option_names(ctx)],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_print_help,
                help="Show this message and exit.",
            )
        return self._asks_for_help


class Group(Command, click.Group):
    """A click group with help for people on a terminal."""


def _print_help(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def is_terminal() -> bool:
    """Whether stdout is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _drawn(command: click.Command, ctx: click.Context) -> str:
    """The help of the same command, as rich-click draws it."""
    import rich_click

    if isinstance(command, click.Group):
        listed = {name: command.get_command(ctx, name) for name in command.list_commands(ctx)}
        commands: dict[str, click.Command] = {
            name: rich_click.RichCommand(name=name, short_help=item.get_short_help_str(limit=100))
            for name, item in listed.items()
            if item is not None
        }
        twin = rich_click.RichGroup(**_same(command), commands=commands)
        twin.list_commands = lambda ctx: list(listed)
    else:
        twin = rich_click.RichCommand(**_same(command))
    twin_context = rich_click.RichContext(
        twin,
        info_name=ctx.info_name,
        parent=ctx.parent,
        help_option_names=list(ctx.help_option_names),
    )
    return twin.get_help(twin_context).rstrip() + "\n\n" + _examples(command.epilog or "")


def _same(command: click.Command) -> dict[str, Any]:
    return {"name": command.name, "params": command.params, "help": command.help}


def _examples(epilog: str) -> str:
    """The epilog as it is written: rich-click would flow its lines together."""
    return "\n".join(f" {line}" for line in epilog.replace("\b\n", "").strip("\n").split("\n"))
