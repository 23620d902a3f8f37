"""The screen of `run` and `probe` when the target has ended, and their exit code."""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from compilediag import extension_points
from compilediag.commands.receipts import suffix_for
from compilediag.commands.terminal import (
    abandon_stdout,
    json_text,
    render_options,
    write_json,
    write_message,
    write_stderr,
)
from compilediag.errors import EXIT_GATE, CompilediagError, OutputUnwritable
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised.options import RunOptions
from compilediag.runs.supervised.supervised_run import Outcome
from compilediag_harness.base import atomic_write


def finish(outcome: Outcome, options: RunOptions) -> int:
    """Prints the verdict and returns the exit code: that of a target that failed comes first, then
    that of the limits. What cannot be judged does not pass; 2 would say that nothing was started.
    What becomes of our own output changes no exit code.
    """
    if outcome.receipt is not None and outcome.receipt.status == "interrupted":
        # One more Ctrl-C of somebody impatient must not replace the target's exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    _report(outcome, options)
    if outcome.receipt is None or not options.limits:
        return outcome.exit_code
    from compilediag.compare.gate.judge import judge

    failures = judge(outcome.receipt, limits=options.limits).failures
    for item in failures:
        if item.kind in ("limit", "not_judged"):
            write_message(f"the gate failed: {item.message}")
    return outcome.exit_code or (EXIT_GATE if failures else 0)


def _report(outcome: Outcome, options: RunOptions) -> None:
    """The verdict goes to stderr, and so it does where --json cannot be printed: stdout is the
    target's, byte for byte, or that of --json."""
    receipt = outcome.receipt
    if receipt is not None:
        printed = options.as_json and _printed(receipt)
        if options.json_file is not None:
            _write_json_file(receipt, options.json_file)
        if options.html is not None:
            _write_page(outcome, receipt, options.html, quiet=options.quiet)
        if not printed and not options.quiet:
            place = outcome.run_dir if outcome.moved else options.output
            suffix = suffix_for(place) if outcome.receipt_path else ""
            write_stderr(_screen(receipt, suffix))
    if not options.quiet or outcome.receipt_path is None or outcome.moved:
        for note in outcome.notes:
            write_message(note)


def _printed(receipt: Receipt) -> bool:
    try:
        write_json(msgspec.to_builtins(receipt))
    except OutputUnwritable as error:
        write_message(str(error))
        return False
    except BrokenPipeError:  # `| head -1`: the reader has what it wanted
        abandon_stdout()
    return True


def _write_json_file(receipt: Receipt, path: str) -> None:
    content = json_text(msgspec.to_builtins(receipt)).encode("ascii")
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe, `--json=>(jq .)`
            with open(path, "wb") as stream:
                stream.write(content)
        else:
            atomic_write.write(path, [content])
    except OSError as error:
        write_message(f"--json={path} cannot be written: {error.strerror or error}")


def _write_page(outcome: Outcome, receipt: Receipt, file: str, *, quiet: bool) -> None:
    """The page of the run; what becomes of it changes no exit code."""
    from compilediag.commands.pages import report_page

    if outcome.receipt_path is None:
        return
    try:
        sentence = report_page(receipt, outcome.receipt_path, file, outcome.run_dir)
    except CompilediagError as error:
        write_message(f"--html={file}: {error}")
        return
    if not quiet:
        write_message(sentence)


def _screen(receipt: Receipt, suffix: str) -> str:
    """The table of a probe, or the verdict on a run."""
    if receipt.cadence is None:
        from compilediag.views import verdict

        return verdict.render(receipt, render_options(sys.stderr), suffix=suffix)
    render = extension_points.load(extension_points.CADENCE_VIEW, "the table of a probe")
    return render(receipt, render_options(sys.stderr), suffix)
