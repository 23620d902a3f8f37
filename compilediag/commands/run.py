"""`compilediag run`: runs a program and says why torch.compile compiled again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.run_defaults import read_defaults
from compilediag.commands.run_options import (
    PROBE_FLAG,
    TARGET_IS_MARKED,
    TELEMETRY,
    TargetCommand,
    with_probe_options,
    with_run_options,
    with_telemetry_options,
)
from compilediag.errors import EXIT_GATE, UsageError
from compilediag.runs.supervised.options import GRACE_S, LiveMode, Options, Outcome
from compilediag.views.style import RenderOptions

if TYPE_CHECKING:
    from compilediag.compare.gate.expression import Limit
    from compilediag.receipt.prices import PriceTable
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.runs.telemetry.settings import TelemetrySettings

PIPE_WIDTH = 100
MOST_WIDTH = 120


@click.command(
    name="run",
    cls=TargetCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  compilediag run train.py --lr 3e-4
  compilediag run --steps 50 -- -m package.train
  compilediag run torchrun --nproc-per-node 2 train.py
  compilediag run --otlp http://localhost:4318 train.py
  compilediag run model.py --cadence-probe
""",
)
@with_run_options
@with_telemetry_options
@click.option(
    "--cadence-probe",
    is_flag=True,
    help="Find what periodic work costs: see `compilediag probe`. Also after TARGET.",
)
@with_probe_options
@click.argument("target", nargs=-1, type=click.UNPROCESSED, metavar="TARGET [ARGS]...")
@click.pass_context
def command(
    ctx: click.Context, target: tuple[str, ...], *, cadence_probe: bool, **given: Any
) -> int:
    """Run a program and say why torch.compile compiled again.

    TARGET is a Python file, `-m MODULE`, `-c CODE`, or any program; what follows it is the
    target's own. The exit code is the target's; with --fail-on it is 3 where the target succeeds
    and a limit is exceeded.
    """
    from compilediag.runs.supervised import run

    if target and target[0] == "--":
        target = target[1:]
    if not ctx.meta.get(TARGET_IS_MARKED) and PROBE_FLAG in target[1:]:
        cadence_probe, target = True, tuple(word for word in target if word != PROBE_FLAG)
    if cadence_probe:
        if asked := [name for name in TELEMETRY if given.pop(name) is not None]:
            told = f"--{asked[0].replace('_', '-')}"
            raise UsageError(f"{told} tells of one run: leave it out of a probe, which is several")
        from compilediag.commands.probe import probe_target

        return probe_target(target, given)
    if given["group"] or given["keep_caches"]:
        raise UsageError("--group and --keep-caches belong to the cadence probe: --cadence-probe")
    if not target:
        raise UsageError("say what to run: `compilediag run train.py`")
    settings = {**read_defaults(Path.cwd()), **flags_of(given)}
    limits = limits_of(settings)
    outcome = run(target, options_of(settings))
    report(outcome, settings)
    return gated(outcome, limits)


def limits_of(settings: dict[str, Any]) -> tuple[Limit, ...]:
    """What the run is judged by when it has ended.

    Raises:
        UsageError: the expression does not parse.
    """
    if settings.get("fail_on") is None:
        return ()
    from compilediag.compare.gate.expression import parse_limits

    return parse_limits(settings["fail_on"])


def gated(outcome: Outcome, limits: tuple[Limit, ...]) -> int:
    """The exit code: a target that failed has the last word, else the limits do. What cannot be
    judged does not pass; 2 would say that nothing was started."""
    if not limits or outcome.receipt is None:
        return outcome.exit_code
    from compilediag.compare.gate.judge import judge

    for item in (failures := judge(outcome.receipt, limits=limits).failures):
        if item.kind in ("limit", "not_judged"):
            say(f"compilediag: the gate failed: {_clean(item.message)}\n")
    return EXIT_GATE if failures and outcome.exit_code == 0 else outcome.exit_code


def flags_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options of the command line that were given, by the names they have in pyproject.toml."""
    ours = {key: value for key, value in given.items() if key not in ("group", "keep_caches")}
    flags = {key: value for key, value in ours.items() if value is not None}
    if "as_json" in flags:
        flags["json"] = flags.pop("as_json")
    if flags.pop("live_lines", False):
        flags["live"] = "lines"
    return flags


def options_of(settings: dict[str, Any]) -> Options:
    """Settings of either origin as options.

    Raises:
        UsageError: a value is out of its range.
    """
    timeout_s, grace_s = settings.get("timeout"), settings.get("grace", GRACE_S)
    steps = settings.get("steps")
    for name, value in (("timeout", timeout_s), ("grace", grace_s), ("steps", steps)):
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name} must be more than 0, not {value}")
    return Options(
        output=settings.get("output"),
        name=_name(settings.get("name")),
        steps=steps,
        warmup=_warmup(settings.get("warmup", "auto")),
        timeout_s=timeout_s,
        grace_s=grace_s,
        trace=settings.get("trace", False),
        tlparse=settings.get("tlparse", False),
        depyf=settings.get("depyf", False),
        profile_on_signal=settings.get("profile_on_signal", False),
        prices=_prices(settings.get("prices")),
        live=_live(settings),
        telemetry=_telemetry(settings),
    )


def _telemetry(settings: dict[str, Any]) -> TelemetrySettings | None:
    if all(settings.get(name) is None for name in TELEMETRY):
        return None
    from compilediag.runs.telemetry.settings import telemetry_settings

    return telemetry_settings(settings, os.environ)


def _prices(path: str | None) -> PriceTable | None:
    """The table that an option, pyproject.toml or the environment names; without one no cost is
    estimated. Read before the target starts: a table that is wrong costs no run."""
    from compilediag.runs.supervised.price_file import VARIABLE, read_prices

    path = path or os.environ.get(VARIABLE)
    return read_prices(path) if path else None


def _name(value: str | None) -> str | None:
    if value is not None and not (0 < len(value) <= 80 and _harmless(value)):
        raise UsageError("name may hold letters, digits, '.', '_' and '-' only, at most 80")
    return value


def _harmless(value: str) -> bool:
    return value[0] != "." and all(c.isascii() and (c.isalnum() or c in "._-") for c in value)


def _warmup(value: str | int) -> int | None:
    if value == "auto":
        return None
    if str(value).isdecimal():
        return int(value)
    raise UsageError(f"warmup must be a number of steps or auto, not {value!r}")


def _live(settings: dict[str, Any]) -> LiveMode | None:
    value = settings.get("live", True)
    if settings.get("quiet") or value is False:
        return None
    if value is True or value == "title":
        return "title"
    if value == "lines":
        return "lines"
    raise UsageError(f"live must be true, false, 'title' or 'lines', not {value!r}")


def report(outcome: Outcome, settings: dict[str, Any]) -> None:
    """The verdict goes to stderr: stdout is the target's, byte for byte."""
    if settings.get("json") and outcome.receipt is not None:
        from compilediag.receipt.file import to_json

        sys.stdout.write(to_json(outcome.receipt).decode("utf-8"))
        sys.stdout.flush()
    if outcome.receipt is not None and not (settings.get("quiet") or settings.get("json")):
        say(_verdict(outcome.receipt, outcome, settings))
    if not settings.get("quiet") or outcome.receipt_path is None:
        for note in outcome.notes:
            say(f"compilediag: {_clean(note)}\n")


def _verdict(receipt: Receipt, outcome: Outcome, settings: dict[str, Any]) -> str:
    columns = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
    suffix = f" {shlex.quote(settings['output'])}" if settings.get("output") else ""
    suffix = suffix if outcome.receipt_path else ""
    look = RenderOptions(
        min(columns, MOST_WIDTH), _color(), not _can_encode("✗✓→·…▁█"), os.getcwd()
    )
    if receipt.cadence is not None:
        from compilediag.views.cadence import render_cadence

        return render_cadence(receipt, look, suffix)
    from compilediag.views.verdict import render

    return render(
        receipt,
        width=look.width,
        color=look.color,
        ascii=look.ascii_only,
        root=look.root,
        suffix=suffix,
    )


def _color() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _can_encode(text: str) -> bool:
    try:
        text.encode(sys.stderr.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def _clean(text: str) -> str:
    from compilediag.views.text import clean

    return clean(text, limit=2000)


def say(text: str) -> None:
    """Writes to stderr; a stderr that is gone must not hide the exit code."""
    encoding = sys.stderr.encoding or "ascii"
    try:
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except OSError:
        pass
