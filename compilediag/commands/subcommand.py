"""A subcommand: its options, declared once as the fields of a frozen dataclass, and its help.

    class ShowOptions:
        frames: bool = flag("--frames", "Show each frame.")

The field is the option's name, type and default in the code; the command line, the help and the
keys of pyproject.toml follow from it. rich and rich-click cost more to import than everything else
a short command does, so they are imported only when help is drawn on a terminal.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from compilediag.commands.terminal import is_terminal

Options = TypeVar("Options")
Given = Mapping[str, Any]
"""What click parsed, by the names of the fields; None, or (), for what was not given."""


Check = Callable[[str, Any], Any]
"""Takes the key of an option and a value of either origin, and gives the value of the field."""


@dataclass(frozen=True, slots=True)
class Entry:
    """How a field of a command's options is given."""

    param: Callable[[str], click.Parameter] | None
    """Makes the parameter of the command line; None: the value stands in pyproject.toml alone."""
    key: str | None = None
    """Its name in pyproject.toml and in messages; None: that of the field."""
    toml: tuple[type, ...] = ()
    """Types that its value may have in pyproject.toml; empty: it is no key there."""
    tables: tuple[str, ...] = ()
    """Where it is a key: "" for [tool.compilediag], "probe" for a table of this name below it."""
    only: tuple[str, ...] = ()
    """The commands that have it, where others share the table of options; empty: all."""
    check: Check = lambda key, value: value


def option(
    flags: str,
    about: str,
    *,
    default: Any = None,
    toml: type | tuple[type, ...] = (),
    tables: tuple[str, ...] = ("",),
    only: str | tuple[str, ...] = (),
    check: Check = lambda key, value: value,
    **attributes: Any,
) -> Any:
    """A field that is given by an option. `flags` are as help shows them, "-o --output DIR", and ""
    for a value of pyproject.toml alone; `attributes` are of click's option; the rest is `Entry`'s.
    """
    names = [word for word in flags.split() if word.startswith("-")]
    metavar = " ".join(word for word in flags.split() if word not in names) or None

    def param(field: str) -> click.Parameter:
        settings: dict[str, Any] = {
            "default": None,
            "metavar": metavar,
            "help": about,
            **attributes,
        }
        return click.Option([*names, field], **settings)

    key = names[-1].partition("/")[0].strip("-").replace("-", "_") if names else None
    types = toml if isinstance(toml, tuple) else (toml,)
    commands = only if isinstance(only, tuple) else (only,)
    entry = Entry(param if names else None, key, types, tables, commands, check)
    return dataclasses.field(default=default, metadata={"entry": entry})


def flag(flags: str, about: str, *, default: Any = False, **attributes: Any) -> Any:
    """A field that is true where its flag is given."""
    return option(flags, about, default=default, is_flag=True, **attributes)


def argument(*, default: Any = None, **attributes: Any) -> Any:
    """A field that is given by its position."""
    entry = Entry(lambda field: click.Argument([field], **attributes))
    return dataclasses.field(default=default, metadata={"entry": entry})


def receipt_argument() -> Any:
    """A receipt file or the folder of a run; None: the latest run."""
    return argument(required=False, type=click.Path())


def entries(options: type) -> dict[str, Entry]:
    """The options of a dataclass, by field; those that several commands share come last."""
    found = {field.name: field.metadata["entry"] for field in dataclasses.fields(options)}
    return dict(sorted(found.items(), key=lambda pair: len(pair[1].only) > 1))


def toml_keys(options: type, table: str) -> dict[str, tuple[type, ...]]:
    """Keys of options in a table of pyproject.toml, with the types of their values."""
    return {
        entry.key or name: entry.toml
        for name, entry in entries(options).items()
        if entry.toml and table in entry.tables
    }


def filled(options: type[Options], given: Given, table: Mapping[str, Any]) -> Options:
    """The typed options: what was given on the command line, else what `table` of pyproject.toml
    says, else the default of the field.
    """
    values: dict[str, Any] = {}
    for field, entry in entries(options).items():
        key, value = entry.key or field, given.get(field)
        if value is None or value == ():
            value = table.get(key) if entry.toml else None
        if value is not None:
            values[field] = entry.check(key, value)
    return options(**values)


class Command(click.Command):
    """A click command with help for people on a terminal; its epilog holds an example."""

    def get_help(self, ctx: click.Context) -> str:
        return _drawn(self, ctx) if is_terminal(sys.stdout) else super().get_help(ctx)


class Group(Command, click.Group):
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
        listed = {name: command.get_command(ctx, name) for name in command.list_commands(ctx)}
        commands: dict[str, click.Command] = {
            name: rich_click.RichCommand(name=name, short_help=item.get_short_help_str(limit=100))
            for name, item in listed.items()
            if item is not None
        }
        twin = rich_click.RichGroup(**same, commands=commands)
        twin.list_commands = lambda ctx: list(listed)
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
