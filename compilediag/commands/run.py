"""`compilediag run`: runs a program and says why torch.compile compiled again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.help import Command
from compilediag.commands.run_defaults import read_defaults
from compilediag.errors import UsageError
from compilediag.supervisor.options import GRACE_S, LiveMode, Options, Outcome

if TYPE_CHECKING:
    from compilediag.receipt.schema import Receipt

PIPE_WIDTH = 100
MOST_WIDTH = 120


@click.command(
    name="run",
    cls=Command,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  compilediag run train.py --lr 3e-4
  compilediag run --steps 50 -- -m package.train
  compilediag run torchrun --nproc-per-node 2 train.py
""",
)
@click.option("--output", metavar="DIR", help="Directory for this run; new or empty.")
@click.option("--name", metavar="NAME", help="Name of the lane; default: of the script.")
@click.option("--steps", type=click.IntRange(min=1), help="Stop cleanly after this many steps.")
@click.option("--warmup", metavar="N|auto", help="Steps that count as warm-up; default: auto.")
@click.option("--timeout", metavar="S", type=float, help="End the target after S seconds.")
@click.option(
    "--grace",
    metavar="S",
    type=float,
    help=f"Seconds from Ctrl-C to the end by force; default: {GRACE_S:g}.",
)
@click.option("--trace", is_flag=True, default=None, help="Keep torch's trace (TORCH_TRACE).")
@click.option("--quiet", is_flag=True, default=None, help="Print no verdict.")
@click.option("--json", "as_json", is_flag=True, default=None, help="Print the receipt instead.")
@click.option(
    "--live/--no-live", default=None, help="Progress in the title of the terminal while it runs."
)
@click.option("--live-lines", is_flag=True, default=None, help="Progress as lines of text instead.")
@click.argument("target", nargs=-1, type=click.UNPROCESSED, metavar="TARGET [ARGS]...")
def command(target: tuple[str, ...], **given: Any) -> int:
    """Run a program and say why torch.compile compiled again.

    TARGET is a Python file, `-m MODULE`, `-c CODE`, or any program; what follows it is the
    target's own. The exit code is the target's.
    """
    from compilediag.supervisor import run

    if target and target[0] == "--":
        target = target[1:]
    if not target:
        raise UsageError("say what to run: `compilediag run train.py`")
    settings = {**read_defaults(Path.cwd()), **_flags(given)}
    outcome = run(target, options_of(settings))
    _report(outcome, settings)
    return outcome.exit_code


def _flags(given: dict[str, Any]) -> dict[str, Any]:
    """The options of the command line that were given, by the names they have in pyproject.toml."""
    flags = {key: value for key, value in given.items() if value is not None}
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
        live=_live(settings),
    )


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


def _report(outcome: Outcome, settings: dict[str, Any]) -> None:
    """The verdict goes to stderr: stdout is the target's, byte for byte."""
    if settings.get("json") and outcome.receipt is not None:
        from compilediag.receipt.file import encoded

        sys.stdout.write(encoded(outcome.receipt).decode("utf-8"))
        sys.stdout.flush()
    if outcome.receipt is not None and not (settings.get("quiet") or settings.get("json")):
        _say(_verdict(outcome.receipt, outcome, settings))
    if not settings.get("quiet") or outcome.receipt_path is None:
        for note in outcome.notes:
            _say(f"compilediag: {_clean(note)}\n")


def _verdict(receipt: Receipt, outcome: Outcome, settings: dict[str, Any]) -> str:
    from compilediag.views.verdict import render

    columns = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
    suffix = f" {shlex.quote(settings['output'])}" if settings.get("output") else ""
    return render(
        receipt,
        width=min(columns, MOST_WIDTH),
        color=_color(),
        ascii=not _can_encode("✗✓→·…"),
        root=os.getcwd(),
        suffix=suffix if outcome.receipt_path else "",
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


def _say(text: str) -> None:
    """Writes to stderr; a stderr that is gone must not hide the exit code."""
    encoding = sys.stderr.encoding or "ascii"
    try:
        sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stderr.flush()
    except OSError:
        pass
