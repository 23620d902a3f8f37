"""The options of the commands that run a program: one table for the command line, pyproject.toml
and the runs.

To add one, add a field here. What the processes of the program need of it is a field of
`ProcessOptions`, which the inside defines and `run.py` fills.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from compilediag.compare.gate.limits import Limit, parse_limits
from compilediag.errors import UsageError
from compilediag.option_fields import argument, flag, option

if TYPE_CHECKING:
    from compilediag.receipt.run_metadata import CostEstimate
    from compilediag_harness.base.process_options import WriteTracingPlan

GRACE_S = 4.5
"""Seconds between the second Ctrl-C, or the time limit, and the end by force."""

JSON_FILE_FLAG = "--json-file"
"""What --json=FILE is parsed as: an option of click has a value always, or never."""

_NUMBER = (int, float)


def check_positive(key: str, value: float) -> float:
    """Check the value of an option that must be more than 0."""
    if not 0 < value < float("inf"):
        raise UsageError(f"{key} must be more than 0, not {value}")
    return value


def _check_name(key: str, value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}", value):
        raise UsageError(f"{key} may hold letters, digits, '.', '_' and '-' only, at most 80")
    return value


def _parse_warmup(key: str, value: str | int) -> int | None:
    if value == "auto":
        return None
    if str(value).isdecimal():
        return int(value)
    raise UsageError(f"{key} must be a number of steps or auto, not {value!r}")


def _check_json_file(key: str, value: str) -> str:
    """Check the file before the target starts: what cannot be written costs no run."""
    folder = os.path.dirname(os.path.abspath(value))
    if not value or os.path.isdir(value) or not os.path.isdir(folder):
        raise UsageError(f"--json={value} names no file in an existing folder")
    return value


def _check_page(key: str, value: str) -> str:
    """Check the page before the target starts, as `_check_json_file`."""
    from compilediag.runs.run_directory import PAGE_MARK, check_file

    check_file(value, PAGE_MARK)
    return value


_BUDGET = re.compile(r"(\d+(?:\.\d+)?)([smh]?)\Z")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def _parse_budget(key: str, value: str | float) -> float:
    match = _BUDGET.match(str(value))
    if match is None or not float(match[1]):
        raise UsageError(f"--{key} must be a time such as 90s, 10m or 1h, not {value!r}")
    return float(match[1]) * _SECONDS[match[2]]


_COMMANDS = ("run", "against-eager", "cold-and-warm", "periodic")
"""Those whose options `RunOptions` are."""

_rare_option, _rare_flag = partial(option, hidden=_COMMANDS), partial(flag, hidden=_COMMANDS)
"""What --help-all alone shows."""
_run_option = partial(option, only="run", hidden=("run",))
"""What a plain run alone has."""

_RUN, _RECORDED, _REPORTED = "The run", "What is recorded", "What is reported"
"""Headings of the help."""


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The time in which changes are tried, and what becomes of those that are proved."""

    budget_s: float | None = option(
        "--budget TIME",
        "Start no run after this time: 90s, 10m, 1h.",
        only=("fix", "against-eager"),
        toml=(str, *_NUMBER),
        tables=("fix",),
        check=_parse_budget,
    )
    rounds: int | None = option(
        "--rounds R",
        "Pairs of runs, compiled and eager; default: 3.",
        only="against-eager",
        type=click.IntRange(min=1),
    )
    env: str | None = option("--env FILE", "Write the proved `export` lines to a file.", only="fix")
    patch: str | None = option(
        "--patch FILE", "Write the proved edits to a file, for `git apply`.", only="fix"
    )
    apply: bool = flag("--apply", "Make the proved edits in the program's files.", only="fix")
    force: bool = flag(
        "--force",
        "With --apply: also edit files with changes that git has not committed.",
        only="fix",
    )
    yes: bool = flag(
        "--yes",
        "Do not ask before running the program several times.",
        only=("fix", "against-eager", "cold-and-warm"),
    )


@dataclass(frozen=True, slots=True)
class RunOptions(TrialOptions):
    """The program to run, how, and what to print of it."""

    target: tuple[str, ...] = argument(
        default=(), nargs=-1, type=click.UNPROCESSED, metavar="TARGET [ARGS]..."
    )
    output: str | None = option(
        "-o --output DIR",
        "Directory for this run, new or empty.",
        toml=str,
        heading=_RUN,
    )
    name: str | None = _rare_option(
        "--name NAME",
        "Name of the configuration; default: the name of the script.",
        toml=str,
        check=_check_name,
    )
    steps: int | None = option(
        "--steps N",
        "Stop cleanly after this many steps.",
        type=click.IntRange(min=1),
        toml=int,
        tables=("", "probe", "fix"),
        check=check_positive,
        heading=_RUN,
    )
    warmup: int | None = option(
        "--warmup N|auto",
        "First steps that count as warm-up; default: auto.",
        toml=(int, str),
        check=_parse_warmup,
        heading=_RUN,
    )
    timeout_s: float | None = option(
        "--timeout S",
        "End the target after S seconds.",
        type=float,
        toml=_NUMBER,
        tables=("", "fix"),
        check=check_positive,
        heading=_RUN,
    )
    grace_s: float = _rare_option(
        "--grace S",
        f"Seconds from a second Ctrl-C until the target is killed; default: {GRACE_S:g}.",
        default=GRACE_S,
        type=float,
        toml=_NUMBER,
        check=check_positive,
    )
    limits: tuple[Limit, ...] = option(
        "--fail-on EXPR",
        "Exit with 3 if a limit is exceeded: 'recompiles>0,graph_breaks>2'.",
        default=(),
        toml=str,
        check=lambda key, value: parse_limits(value),
        heading=_REPORTED,
    )
    record: bool = flag(
        "--record/--no-record",
        "Record what `compilediag certify` compares a change with: results, prints, sources.",
        toml=bool,
        only="run",
        heading=_RECORDED,
    )
    trace: bool = _rare_flag("--trace", "Keep torch's trace (TORCH_TRACE).", toml=bool)
    tlparse: bool = flag(
        "--tlparse",
        "Keep torch's trace, and link tlparse's report of it.",
        toml=bool,
        heading=_RECORDED,
    )
    depyf: bool = _rare_flag("--depyf", "Run it a second time and decompile its frames.", toml=bool)
    price_file: str | None = _rare_option(
        "--prices FILE", "Price table (TOML), to estimate what the run cost.", toml=str
    )
    html: str | None = option(
        "--html FILE",
        "Write the report to FILE as one offline page.",
        toml=str,
        check=_check_page,
        heading=_REPORTED,
    )
    quiet: bool = flag("--quiet", "Print no verdict.", toml=bool, heading=_REPORTED)
    as_json: bool = flag(
        "--json",
        "Print the receipt as JSON instead; --json=FILE writes it to a file.",
        toml=bool,
        heading=_REPORTED,
    )
    json_file: str | None = _rare_option(f"{JSON_FILE_FLAG} FILE", "", check=_check_json_file)
    live: bool = _rare_flag(
        "--live-lines --live/--no-live",
        "On a terminal, show a line for each recompile.",
        default=True,
        toml=bool,
    )
    otlp: str | None = _run_option(
        "--otlp URL|env",
        "Report to an OpenTelemetry collector; env: at the address in its own variables.",
        toml=str,
    )
    prometheus_textfile: str | None = _run_option(
        "--prometheus-textfile FILE", "Report to Prometheus through a file, X.prom.", toml=str
    )
    telemetry_every: float | None = _run_option(
        "--telemetry-every S",
        "Seconds between pushes; default and minimum: 15.",
        type=float,
        toml=_NUMBER,
    )
    trace_writes: bool = flag(
        "--trace-writes --witness",
        "Record which line changes a guarded value; without TARGET, repeat the last run.",
        only="run",
        heading=_RECORDED,
    )
    past_limit: bool = flag(
        "--past-limit",
        "Lift the recompile limit, to see what comes after it.",
        only="run",
        heading=_RECORDED,
    )
    group: tuple[str, ...] = option(
        "--group NAME=TEMPLATE",
        "Periodic work and how its period {n} is set; NAME alone: only this group of the code.",
        default=(),
        multiple=True,
        only="periodic",
    )
    keep_caches: bool = flag(
        "--keep-caches",
        "Use the existing caches, not empty ones for each run that is compared.",
        toml=bool,
        tables=("probe",),
        only=("against-eager", "periodic"),
    )
    groups: Mapping[str, str] | None = option("", "", toml=dict, tables=("probe",))
    """Templates of pyproject.toml, by the names of their groups."""
    prices: CostEstimate | None = None
    """What an hour of a device costs, from `price_file`; None: no cost is estimated."""
    telemetry: Any = None
    """The settings of an extension that sends metrics of the run while it goes on."""
    write_tracing_plan: WriteTracingPlan | None = None
    """Steps and guards for which `trace_writes` holds; None: all."""
    sync_steps: tuple[int, int] | None = None
    """Period and first step of the work that a variant of a probe moves."""
    output_file: str | None = None
    """File that gets the target's stdout and stderr, and its stdin is empty: nobody looks on."""
