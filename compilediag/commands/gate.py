"""`compilediag gate`: judges receipts by limits and the checked-in baseline."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.help import Command
from compilediag.commands.params import PATH
from compilediag.commands.terminal import write
from compilediag.compare.gate.ab import MIN_ROUNDS, ROUNDS
from compilediag.errors import EXIT_GATE, EXIT_OK, EXIT_USAGE, UsageError

if TYPE_CHECKING:
    from compilediag.commands.gate_inputs import Lane
    from compilediag.compare.gate.expression import Limit
    from compilediag.compare.gate.judgement import Judgement


@click.command(
    name="gate",
    cls=Command,
    epilog="""\b
Examples:
  compilediag gate --fail-on 'recompiles>0,graph_breaks>2'   limits for the latest run
  compilediag gate --update --reason "warm-up"               record it in compilediag.lock.json
  compilediag gate                                           judge by compilediag.lock.json
  compilediag gate --format sarif=gate.sarif                 and write a file for CI
  compilediag gate --ab 'python old.py' 'python new.py'      is the second slower?
""",
)
@click.argument("receipts", metavar="[RECEIPT]...", nargs=-1, type=PATH)
@click.option(
    "--baseline", metavar="FILE", help="The baseline; default: compilediag.lock.json, if there."
)
@click.option("--lane", metavar="NAME", help="Lane of the baseline; default: the receipt's own.")
@click.option("--fail-on", metavar="EXPR", help="Limits such as 'recompiles>0,CD103>0'.")
@click.option("--strict-improvement", is_flag=True, help="Fail for what is better, too.")
@click.option("--own-code-only", is_flag=True, help="Judge only what your own code does.")
@click.option("--update", is_flag=True, help="Record the receipts in the baseline.")
@click.option("--reason", metavar="TEXT", help="With --update: why what is new is all right.")
@click.option(
    "--format",
    "formats",
    metavar="NAME[=FILE]",
    multiple=True,
    help="terminal, github, gitlab, sarif, junit, md, json.",
)
@click.option(
    "--ab",
    nargs=2,
    metavar="CMD_A CMD_B",
    help="Measure two command lines in turns; fail if B is slower.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=MIN_ROUNDS),
    help=f"Pairs that --ab measures; default: {ROUNDS}.",
)
def command(receipts: tuple[str, ...], **given: Any) -> int:
    """Judge receipts by limits and by a checked-in baseline.

    RECEIPT is a receipt file or the folder of a run; the default is the latest run. Several
    receipts are several lanes. Counts are judged, never seconds, unless --ab measures them.

    The exit code is 0 where everything passes, 3 where something fails, and 2 where nothing can
    be said: a blind receipt, a lane the baseline does not have, a file that is none.
    """
    _refuse_what_does_not_go_together(given)
    if given["update"]:
        return _update(receipts, given)
    pair: tuple[str, str] | None = given["ab"]
    code = EXIT_OK
    if pair is None or receipts or given["baseline"] or given["fail_on"]:
        code = _judge(receipts, given)
    if pair is not None:
        code = _worse(code, _measure(pair, given["rounds"] or ROUNDS, given["formats"]))
    return code


def _refuse_what_does_not_go_together(given: dict[str, Any]) -> None:
    names = {
        "--fail-on": given["fail_on"],
        "--strict-improvement": given["strict_improvement"],
        "--own-code-only": given["own_code_only"],
        "--format": given["formats"],
        "--ab": given["ab"],
    }
    asked = [name for name, value in names.items() if value]
    if given["update"] and asked:
        raise UsageError(f"--update records and does not judge: leave {asked[0]} away")
    if given["reason"] is not None and not given["update"]:
        raise UsageError("--reason goes with --update: it says why the baseline may change")
    if given["reason"] is not None and not given["reason"].strip():
        raise UsageError("--reason is empty: say in words why what is new is all right")
    if given["rounds"] is not None and given["ab"] is None:
        raise UsageError("--rounds goes with --ab")


def _update(receipts: Sequence[str], given: dict[str, Any]) -> int:
    from compilediag.commands.gate_inputs import baseline_path, lanes_of
    from compilediag.commands.gate_update import update

    reason: str | None = given["reason"]
    path = baseline_path(given["baseline"])
    update(lanes_of(receipts, given["lane"]), path, reason.strip() if reason else None)
    return EXIT_OK


def _judge(receipts: Sequence[str], given: dict[str, Any]) -> int:
    """Everything that can be wrong with the question is found before an answer is written."""
    from compilediag.commands.gate_inputs import baseline_path, lanes_of, shown_path
    from compilediag.commands.gate_output import outputs_of, show
    from compilediag.compare.gate.baseline_file import read_lock
    from compilediag.compare.gate.judge import judge

    limits = _limits(given["fail_on"])
    outputs = outputs_of(given["formats"], os.environ)
    path = baseline_path(given["baseline"])
    if path is None and not limits:
        raise UsageError(
            "there is nothing to judge by: no compilediag.lock.json here or above. Type "
            "`compilediag gate --update` to record the latest run as the baseline, or give limits: "
            "`compilediag gate --fail-on 'recompiles>0'`"
        )
    lock = read_lock(path) if path is not None else None
    lanes = lanes_of(receipts, given["lane"])
    judgements = [
        judge(
            lane.receipt,
            limits=limits,
            baseline=lock.lane(lane.name) if lock is not None else None,
            baseline_name=shown_path(path) if path is not None else None,
            strict=given["strict_improvement"],
            own_code_only=given["own_code_only"],
            lane=lane.name,
        )
        for lane in lanes
    ]
    show(judgements, outputs)
    if "terminal" in outputs.shown:
        write(f"\n  next: {_next(judgements, lanes)}\n")
    return exit_code(judgements)


def _limits(expression: str | None) -> tuple[Limit, ...]:
    if expression is None:
        return ()
    from compilediag.compare.gate.expression import parse_limits

    return parse_limits(expression)


def exit_code(judgements: Sequence[Judgement]) -> int:
    """What fails is told before what cannot be judged; neither is a pass."""
    if any(item.judged and not item.passed for item in judgements):
        return EXIT_GATE
    return EXIT_OK if all(item.passed for item in judgements) else EXIT_USAGE


def _next(judgements: Sequence[Judgement], lanes: Sequence[Lane]) -> str:
    """The command that helps most now."""
    from compilediag.commands.receipts import suffix_for

    pairs = list(zip(judgements, lanes, strict=True))
    for judgement, lane in pairs:
        suffix = suffix_for(lane.where)
        found = next((item.finding for item in judgement.failures if item.finding), None)
        if judgement.judged and found:
            return f"compilediag explain {found.removeprefix('F')}{suffix}"
        if judgement.failures:
            return f"compilediag show{suffix}"
    better = [lane for judgement, lane in pairs if judgement.improvements]
    if better:
        return f"compilediag gate --update{suffix_for(better[0].where)}"
    return f"compilediag show{suffix_for(lanes[0].where)}"


def _measure(pair: tuple[str, str], rounds: int, formats: Sequence[str]) -> int:
    import sys

    from compilediag.commands.gate_ab import compared, report
    from compilediag.commands.gate_output import outputs_of

    found = compared(*pair, rounds)
    text = report(*pair, rounds, found)
    if outputs_of(formats, os.environ).for_people:
        write(text)
    else:
        print(text, end="", file=sys.stderr)
    if not found:
        return EXIT_USAGE
    return EXIT_GATE if any(item.slower for item in found) else EXIT_OK


def _worse(*codes: int) -> int:
    """A failure is told before what cannot be judged."""
    return next((code for code in (EXIT_GATE, EXIT_USAGE) if code in codes), EXIT_OK)
