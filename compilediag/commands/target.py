"""Common parts of the commands that run a program: their options, from TARGET's words and
pyproject.toml; the question before it is run again; the screen at its end, and the exit code."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from compilediag import extension_points
from compilediag.commands.receipts import format_suffix, write_html
from compilediag.commands.subcommand import Command, read_defaults, subcommand
from compilediag.commands.terminal import (
    format_json,
    get_render_options,
    is_terminal,
    mute_stdout,
    write,
    write_message,
    write_stderr,
)
from compilediag.errors import EXIT_GATE, CompilediagError, OutputUnwritable, UsageError
from compilediag.option_fields import collect_options, collect_toml_keys
from compilediag.runs.supervised.child import Outcome
from compilediag.runs.supervised.run_options import JSON_FILE_FLAG, RunOptions
from compilediag.views.text import clean
from compilediag_harness.base import atomic_write

PRICES_VARIABLE = "COMPILEDIAG_PRICES"
"""Path of a price table, where neither `--prices` nor pyproject.toml names one."""

TELEMETRY = tuple(
    name
    for name, entry in collect_options(RunOptions).items()
    if entry.only == ("run",) and entry.toml and name != "record"
)
"""Fields about one run that is observed while it goes on; a probe, which is several, has none."""

TOML_KEYS = {table: collect_toml_keys(RunOptions, table) for table in ("", "probe", "fix")}
"""Keys of [tool.compilediag] and of the tables below it that say how to run a program."""


def read_pyproject_defaults(table: str) -> Mapping[str, Any]:
    """Read what pyproject.toml says for a command; the `table` of its own, if there is one, wins:
    that of the probe, which is several runs and has no telemetry, or that of `fix`."""
    defaults = read_defaults(Path.cwd(), TOML_KEYS)
    own = {name: defaults.pop(name, {}) for name in ("probe", "fix")}.get(table, {})
    without = TELEMETRY if table == "probe" else ()
    return {key: value for key, value in defaults.items() if key not in without} | own


def refuse(options: RunOptions, names: Sequence[str], why: str) -> None:
    """Refuse the first of these options that was given.

    Raises:
        UsageError: one was; the sentence is its flag and `why`.
    """
    for name in select_given(options, names):
        raise UsageError(f"--{name.replace('_', '-')} {why}")


def select_given(options: RunOptions, names: Sequence[str]) -> dict[str, Any]:
    """Select those of the options that were given, by field."""
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, False, ())}


def read_option_files(options: RunOptions) -> RunOptions:
    """Read the price table and the settings of telemetry into the options, before the target
    starts: what is wrong with them costs no run."""
    if price_file := options.price_file or os.environ.get(PRICES_VARIABLE):
        read_prices = extension_points.load(extension_points.PRICES, "--prices")
        options = replace(options, prices=read_prices(price_file))
    if telemetry := select_given(options, TELEMETRY):
        flag = f"--{next(iter(telemetry)).replace('_', '-')}"
        settings = extension_points.load(extension_points.TELEMETRY_SETTINGS, flag)
        options = replace(options, telemetry=settings(os.environ, **telemetry))
    return options


class TargetCommand(Command):
    """A command whose last argument is TARGET with its own arguments."""

    ignore_unknown_options = True
    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        long = [
            word.replace("--json=", f"{JSON_FILE_FLAG}=", 1) if word.startswith("--json=") else word
            for word in typed
        ]
        rest = super().parse_args(ctx, long)
        target = tuple(typed[len(typed) - len(ctx.params.get("target") or ()) :])
        ctx.params["target"] = target[1:] if target[:1] == ("--",) else target
        return rest


def target_command(
    name: str, examples: str
) -> Callable[[Callable[[RunOptions], int | None]], Command]:
    """Make a subcommand that runs TARGET; everything after TARGET is the target's own."""
    return subcommand(
        name,
        RunOptions,
        examples=examples,
        cls=TargetCommand,
        table=lambda given: read_pyproject_defaults("probe" if name == "periodic" else ""),
    )


# --- before it is run again ----------------------------------------------------------------------


def confirm_reruns(command: str, words: Sequence[str], how_often: str, options: RunOptions) -> None:
    """Confirm that a program runs again: side effects are repeated, which is said in any event.

    Args:
        command: as it was typed: "fix", "against-eager".
        words: the command line of the program.
        how_often: what follows "runs PROGRAM", as "twice".
        options: `yes` confirms it with the command; with `quiet`, too, nothing is printed.

    Raises:
        UsageError: the user refused, or nobody is there to confirm.
    """
    what = (
        f"runs {clean(shlex.join(words), limit=200)} {how_often}; what it writes or sends, it "
        "writes or sends each time"
    )
    if not options.yes and not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError(f"{command} {what}: add --yes if nobody can be asked")
    if not options.yes or not options.quiet:
        write_message(f"{command} {what}.")
    if not options.yes and not click.confirm("go on?", default=False, err=True):
        raise UsageError("nothing was run")


def make_announcer(*, quiet: bool) -> Callable[[str], None]:
    """Make a function that tells the user what is run next; with `quiet` it says nothing."""
    if quiet:
        return lambda text: None
    return lambda text: write_stderr(f"compilediag: {clean(text, limit=300)}\n")


# --- when it has ended ---------------------------------------------------------------------------


def finish(outcome: Outcome, options: RunOptions) -> int:
    """Print the verdict and return the exit code: that of a target that failed comes first, then
    that of the limits. What cannot be judged does not pass; 2 would say that nothing was started.
    What becomes of our own output changes no exit code.
    """
    receipt = outcome.receipt
    if receipt is not None and receipt.status == "interrupted":
        # One more Ctrl-C of somebody impatient must not replace the target's exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if receipt is not None:
        _report_verdict(outcome, options)
    if not options.quiet or outcome.receipt_path is None or outcome.moved:
        for note in outcome.notes:
            write_message(note)
    if receipt is None or not options.limits:
        return outcome.exit_code
    from compilediag.compare.gate.judge import judge

    failures = judge(receipt, limits=options.limits).failures
    for failure in failures:
        if failure.kind in ("limit", "not_judged"):
            write_message(f"the gate failed: {failure.message}")
    return outcome.exit_code or (EXIT_GATE if failures else 0)


def _report_verdict(outcome: Outcome, options: RunOptions) -> None:
    """Report the verdict on stderr, also where --json cannot be printed: stdout is the target's."""
    receipt = outcome.receipt
    assert receipt is not None
    place = outcome.run_dir if outcome.moved else options.output
    suffix = format_suffix(place) if outcome.receipt_path else ""
    printed = changed = False
    if receipt.verdict == "clean":
        from compilediag.runs.certify.recorded import has_changed_since

        changed = has_changed_since(receipt)
    if options.as_json or options.json_file is not None:
        from compilediag.views.next_command import choose_command

        following = f"compilediag {choose_command(receipt, suffix, changed=changed)}"
        text = format_json({**msgspec.to_builtins(receipt), "next": following})
        printed = options.as_json and _print_json(text)
        if options.json_file is not None:
            path = options.json_file
            content = text.encode("ascii")
            try:
                if os.path.exists(path) and not os.path.isfile(path):  # a pipe, `--json=>(jq .)`
                    with open(path, "wb") as stream:
                        stream.write(content)
                else:
                    atomic_write.write(path, [content])
            except OSError as error:
                write_message(f"--json={path} cannot be written: {error.strerror or error}")
    if options.html is not None and outcome.receipt_path is not None:
        try:
            page = write_html(receipt, outcome.receipt_path, options.html, outcome.run_dir)
            if not options.quiet:
                write_message(page)
        except CompilediagError as error:
            write_message(f"--html={options.html}: {error}")
    if printed or options.quiet:
        return
    screen = get_render_options(sys.stderr)
    if receipt.cadence is None:
        from compilediag.views.verdict import render

        write_stderr(render(receipt, screen, suffix=suffix, changed=changed))
    else:
        render = extension_points.load(extension_points.CADENCE_VIEW, "the table of a probe")
        write_stderr(render(receipt, screen, suffix=suffix))


def _print_json(text: str) -> bool:
    try:
        write(text)
    except OutputUnwritable as error:
        write_message(str(error))
        return False
    except BrokenPipeError:  # `| head -1`: the reader has what it wanted
        mute_stdout()
    return True
