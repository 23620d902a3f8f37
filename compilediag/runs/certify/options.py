"""The options of `certify`: one table for the command line and the executions."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import click

from compilediag.errors import UsageError
from compilediag.option_fields import argument, flag, option
from compilediag.runs.supervised.run_options import check_positive
from compilediag_harness.wire import SettingChange


def parse_variables(texts: Iterable[str]) -> dict[str, str]:
    """Parse lines of environment, NAME=VALUE.

    Raises:
        UsageError: one is nothing like that.
    """
    pairs = [text.partition("=") for text in texts]
    for name, equals, value in pairs:
        if not name.strip() or not equals:
            raise UsageError(f"--env {name}{value}: write it as NAME=VALUE")
    return {name: value for name, _, value in pairs}


def parse_setting(text: str) -> SettingChange:
    """Parse `torch._dynamo.config.NAME=VALUE`.

    Raises:
        UsageError: it is nothing like that.
    """
    name, equals, value = text.partition("=")
    module, _, option = name.strip().rpartition(".")
    if not equals or not module.startswith("torch.") or not option.isidentifier():
        raise UsageError(f"--config {text}: write it as torch._dynamo.config.NAME=VALUE")
    try:
        parsed = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        parsed = value.strip()
    if not isinstance(parsed, bool | int | float | str | None):
        raise UsageError(f"--config {text}: the value is no number, text, True, False or None")
    return SettingChange(module, option, parsed)


def parse_command(text: str) -> tuple[str, ...]:
    """Parse a command line as a shell does.

    Raises:
        UsageError: it is empty, or a quote is not closed.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--also {text}: {error}") from error
    if not words:
        raise UsageError("--also needs a command line, such as 'train.py --seq 512'")
    return words


@dataclass(frozen=True, slots=True)
class CertifyOptions:
    """The program, its two states, how they are executed, and how the proof is shown."""

    target: tuple[str, ...] = argument(
        default=(), nargs=-1, type=click.UNPROCESSED, metavar="TARGET [ARGS]..."
    )
    base: str | None = option("--base REF", "The old state: a branch, tag or commit.")
    against: str | None = option("--against DIR", "The old state: another folder; without git.")
    patch: str | None = option("--patch FILE", "The new state: the files with a diff.")
    env: Mapping[str, str] | None = option(
        "--env NAME=VALUE",
        "The new state: with this variable.",
        multiple=True,
        check=lambda key, value: parse_variables(value),
    )
    config: tuple[SettingChange, ...] = option(
        "--config NAME=VALUE",
        "The new state: with this option, such as torch._dynamo.config.recompile_limit=16.",
        default=(),
        multiple=True,
        check=lambda key, value: tuple(map(parse_setting, value)),
    )
    also: tuple[tuple[str, ...], ...] = option(
        "--also COMMAND",
        "A further command line that must give the same: 'train.py --seq 512'.",
        default=(),
        multiple=True,
        check=lambda key, value: tuple(map(parse_command, value)),
    )
    with_untracked: bool = flag(
        "--with-untracked", "Python files that git does not know are a part of the change."
    )
    no_vary: bool = flag("--no-vary", "Make no calls with other inputs; the proof says so.")
    keep_caches: bool = flag("--keep-caches", "Write into the existing compile caches, too.")
    timeout_s: float | None = option(
        "--timeout S",
        "End each execution after S seconds; default: 4 times the old state's, a minute, and one "
        "for each compile.",
        type=float,
        check=check_positive,
    )
    everything: bool = flag("--all", "Show every case behind each point.")
    as_md: bool = flag("--md", "Print it as Markdown, for a pull request.")
    as_json: bool = flag("--json", "Print it as JSON, at most 2 kB without --all.")
    quiet: bool = flag("-q --quiet", "Show no progress.")
