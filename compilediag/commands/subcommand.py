"""A subcommand: options (`option_fields.py`), their defaults in pyproject.toml, and its help."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import click

from compilediag.commands.terminal import write
from compilediag.errors import UsageError
from compilediag.option_fields import (
    Given,
    GroupedOption,
    Options,
    collect_options,
    fill_options,
)

if TYPE_CHECKING:
    from pathlib import Path


class Command(click.Command):
    """A click command whose options stand below headings; its epilog holds an example. Where some
    are hidden, --help-all shows them too."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *parameters, help_option = super().get_params(ctx)
        if any(isinstance(each, click.Option) and each.hidden for each in parameters):
            parameters.append(
                click.Option(
                    ["--help-all"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    help="Show every option.",
                    callback=_show_help_all,
                )
            )
        return [*parameters, help_option]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                grouped = isinstance(parameter, GroupedOption)
                shown.setdefault(parameter.heading if grouped else "Options", []).append(row)
        for heading, rows in sorted(shown.items(), key=lambda pair: pair[0] == "Options"):
            with formatter.section(heading):
                formatter.write_dl(rows)


def subcommand(
    name: str,
    options: type[Options],
    *,
    examples: str,
    cls: type[Command] = Command,
    table: Callable[[Given], Mapping[str, Any]] = lambda given: {},
) -> Callable[[Callable[[Options], int | None]], Command]:
    """Make a function of typed options a command; its docstring is the help. `table` gives the
    defaults of pyproject.toml for what was not given, by key.
    """

    def make_command(function: Callable[[Options], int | None]) -> Command:
        def callback(**given: Any) -> int | None:
            return function(fill_options(options, given, table(given)))

        return cls(
            name=name,
            callback=callback,
            params=_make_parameters(options, name),
            help=inspect.getdoc(function),
            epilog=f"\b\nExamples:\n{examples}",
        )

    return make_command


def _show_help_all(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    """Show the help with every option, and end."""
    if not given:
        return
    options = [each for each in ctx.command.params if isinstance(each, click.Option)]
    rare = [each for each in options if each.hidden and each.help]  # a spelling has no help
    for each in rare:
        each.hidden = False
    write(ctx.get_help() + "\n")
    for each in rare:
        each.hidden = True
    ctx.exit()


def _make_parameters(options: type, command: str) -> list[click.Parameter]:
    """Make the parameters that a command has of these options."""
    made: list[click.Parameter] = []
    for field, entry in collect_options(options).items():
        if entry.make_parameter and (not entry.only or command in entry.only):
            parameter = entry.make_parameter(field)
            if isinstance(parameter, click.Option) and command in entry.hidden:
                parameter.hidden = True
            made.append(parameter)
    return made


# --- [tool.compilediag] of pyproject.toml --------------------------------------------------------

TABLES = ("probe", "fix", "gate")
"""Tables below it; each is checked by the commands that read it."""

Keys = Mapping[str, tuple[type, ...]]
"""Key to the types that its value may have."""


def read_defaults(start: Path, keys: Mapping[str, Keys]) -> dict[str, Any]:
    """Read the table of the nearest pyproject.toml at or above the folder `start`; empty when there
    is none. `keys` are of the table itself at "", of a table below it at its name; what has none is
    not read."""
    toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            table: Any = toml.loads(file.read_text(encoding="utf-8"))
        except RecursionError as error:
            raise UsageError(f"{file} cannot be read: it is nested too deep") from error
        except (OSError, ValueError) as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
        for key in ("tool", "compilediag"):
            table = _require_table(table.get(key, {}), f"{key} in {file}")
        return check_tables(table, keys, str(file))
    return {}


def check_tables(table: dict[str, Any], keys: Mapping[str, Keys], where: str) -> dict[str, Any]:
    """Check the part of the table that is read and return it.

    Raises:
        UsageError: a key is not known, or a value has a type that its key may not have.
    """
    own = {key: value for key, value in table.items() if key not in TABLES and "" in keys}
    read = own | {key: value for key, value in table.items() if key in TABLES and key in keys}
    if own:
        _check_keys(own, keys[""], f"[tool.compilediag] of {where}")
    for name in read.keys() - own.keys():
        shown = f"[tool.compilediag.{name}] of {where}"
        _check_keys(_require_table(table[name], shown), keys[name], shown)
    for group, template in read.get("probe", {}).get("groups", {}).items():
        if not isinstance(template, str):
            raise UsageError(
                f"{group} in [tool.compilediag.probe.groups] of {where} must be a template "
                "such as '--entropy-every {n}'"
            )
    return read


def _require_table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} is no table")
    return cast("dict[str, Any]", value)


def _check_keys(table: Mapping[str, Any], keys: Keys, name: str) -> None:
    for key, value in table.items():
        kinds = keys.get(key)
        if kinds is None:
            raise UsageError(f"unknown key {key!r} in {name}: the keys are {', '.join(keys)}")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise UsageError(f"{key} in {name} must be {wanted}")
