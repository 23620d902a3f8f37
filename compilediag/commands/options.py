"""The options of `run`, `probe` and `fix`: from TARGET's words, and from pyproject.toml."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from compilediag import extension_points
from compilediag.commands.pyproject import read_defaults
from compilediag.commands.subcommand import Command, subcommand
from compilediag.errors import UsageError
from compilediag.option_fields import Given, entries, toml_keys
from compilediag.runs.supervised.options import JSON_FILE_FLAG, PROBE_FLAG, RunOptions

PRICES_VARIABLE = "COMPILEDIAG_PRICES"
"""Path of a price table, where neither `--prices` nor pyproject.toml names one."""

TELEMETRY = tuple(
    name for name, entry in entries(RunOptions).items() if entry.only == ("run",) and entry.toml
)
"""Fields about one run that is observed while it goes on; a probe, which is several, has none."""

TOML_KEYS = {table: toml_keys(RunOptions, table) for table in ("", "probe", "fix")}
"""Keys of [tool.compilediag] and of the tables below it that say how to run a program."""


def pyproject_defaults(given: Given) -> Mapping[str, Any]:
    """What pyproject.toml says for this command; the table of the probe wins in a probe, that of
    `fix` where changes are tried."""
    defaults = read_defaults(Path.cwd(), TOML_KEYS)
    probe, fix = (defaults.pop(name, {}) for name in ("probe", "fix"))
    if given.get("fix"):
        return defaults | fix
    if not given["cadence_probe"]:
        return defaults
    return {key: value for key, value in defaults.items() if key not in TELEMETRY} | probe


def refuse(options: RunOptions, names: Sequence[str], why: str) -> None:
    """Refuses the first of these options that was given.

    Raises:
        UsageError: one was; the sentence is its flag and `why`.
    """
    for name in given_of(options, names):
        raise UsageError(f"--{name.replace('_', '-')} {why}")


def given_of(options: RunOptions, names: Sequence[str]) -> dict[str, Any]:
    """Those of the options that were given, by field."""
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, False, ())}


def with_files_read(options: RunOptions) -> RunOptions:
    """The options with the price table and the settings of telemetry, which are read before the
    target starts: what is wrong with them costs no run."""
    if price_file := options.price_file or os.environ.get(PRICES_VARIABLE):
        read_prices = extension_points.load(extension_points.PRICES, "--prices")
        options = replace(options, prices=read_prices(price_file))
    if telemetry := given_of(options, TELEMETRY):
        flag = f"--{next(iter(telemetry)).replace('_', '-')}"
        settings = extension_points.load(extension_points.TELEMETRY_SETTINGS, flag)
        options = replace(options, telemetry=settings(os.environ, **telemetry))
    return options


class TargetCommand(Command):
    """A command whose last argument is TARGET with its own arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        rest = super().parse_args(ctx, [_with_json_file(word) for word in typed])
        before = typed[: len(typed) - len(ctx.params.get("target") or ())]
        target = tuple(typed[len(before) :])
        probe = self.name == "probe" or ctx.params.get("cadence_probe")
        if target[:1] == ("--",):
            target = target[1:]
        elif before[-1:] != ["--"] and PROBE_FLAG in target:
            target, probe = tuple(word for word in target if word != PROBE_FLAG), True
        ctx.params.update(target=target, cadence_probe=bool(probe))
        return rest


def _with_json_file(word: str) -> str:
    return word.replace("--json=", f"{JSON_FILE_FLAG}=", 1) if word.startswith("--json=") else word


def target_command(
    name: str, examples: str
) -> Callable[[Callable[[RunOptions], int | None]], Command]:
    """A subcommand that runs TARGET; everything after TARGET is the target's own."""
    return subcommand(
        name,
        RunOptions,
        examples=examples,
        cls=TargetCommand,
        table=pyproject_defaults,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )
