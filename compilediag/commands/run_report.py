"""What `run` and `probe` print when the target has ended, and their exit code."""

from __future__ import annotations

import sys

import msgspec

from compilediag.commands.options import RunOptions
from compilediag.commands.receipts import suffix_for, verdict
from compilediag.commands.terminal import render_options, write_json, write_message, write_stderr
from compilediag.errors import EXIT_GATE, EXIT_INTERNAL, OutputUnwritable
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised.options import Outcome


def finish(outcome: Outcome, options: RunOptions) -> int:
    """Prints the verdict and returns the exit code: that of a target that failed comes first, then
    that of the limits. What cannot be judged does not pass; 2 would say that nothing was started.
    """
    unprinted = _report(outcome, options)
    code = outcome.exit_code or unprinted
    if outcome.receipt is None or not options.limits:
        return code
    from compilediag.compare.gate.judge import judge

    failures = judge(outcome.receipt, limits=options.limits).failures
    for item in failures:
        if item.kind in ("limit", "not_judged"):
            write_message(f"the gate failed: {item.message}")
    return code or (EXIT_GATE if failures else 0)


def _report(outcome: Outcome, options: RunOptions) -> int:
    """The verdict goes to stderr: stdout is the target's, byte for byte, but for --json."""
    code = 0
    if outcome.receipt is not None and options.as_json:
        try:
            write_json(msgspec.to_builtins(outcome.receipt))
        except OutputUnwritable as error:
            write_message(str(error))
            code = EXIT_INTERNAL
    elif outcome.receipt is not None and not options.quiet:
        suffix = suffix_for(options.output) if outcome.receipt_path else ""
        write_stderr(_screen(outcome.receipt, suffix))
    if not options.quiet or outcome.receipt_path is None:
        for note in outcome.notes:
            write_message(note)
    return code


def _screen(receipt: Receipt, suffix: str) -> str:
    """The table of a probe, or the verdict on a run."""
    if receipt.cadence is None:
        return verdict(receipt, render_options(sys.stderr), suffix)
    from compilediag.views.cadence import render_cadence

    return render_cadence(receipt, render_options(sys.stderr), suffix)
