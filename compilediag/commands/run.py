"""`compilediag run`: runs a program and says why torch.compile compiled again.

Its options are `RunOptions` in `runs/supervised/run_options.py`, since runs read them too.
"""

from __future__ import annotations

from dataclasses import replace

from compilediag import extension_points
from compilediag.commands.target import (
    finish,
    read_option_files,
    refuse,
    select_given,
    target_command,
)
from compilediag.commands.terminal import write_message
from compilediag.errors import UsageError
from compilediag.runs import supervised
from compilediag.runs.supervised.run_options import RunOptions


@target_command(
    "run",
    """\
  compilediag run train.py --lr 3e-4
  compilediag run --steps 50 -- -m package.train
  compilediag run torchrun --nproc-per-node 2 train.py
  compilediag run --record train.py       before an edit that `compilediag certify` proves
  compilediag run --trace-writes          the last run again: which line changes a value
""",
)
def command(options: RunOptions) -> int:
    """Run a program and explain why torch.compile recompiled.

    TARGET is a Python file, `-m MODULE`, `-c CODE` or any program; everything after it is passed
    to the target. The exit code is the target's; with --fail-on it is 3 if the target succeeds but
    a limit is exceeded.
    """
    if options.past_limit:
        others = ("against_eager", "cold_and_warm", "fix", "cadence_probe", "record")
        refuse(options, others, "compares runs under torch's limit: leave --past-limit out")
    if options.against_eager:
        from compilediag.commands.against_eager import run_against_eager

        return run_against_eager(options)
    if options.cold_and_warm:
        from compilediag.commands.cold_and_warm import run_cold_and_warm

        return run_cold_and_warm(options)
    if options.fix:
        from compilediag.commands.fix import run_and_fix

        return run_and_fix(options)
    for field, point in extension_points.RUN_MODES.items():
        if getattr(options, field):
            return extension_points.load(point, f"--{field.replace('_', '-')}")(options)
    for fields, sentence in _BELONGING.items():
        if select_given(options, fields):
            raise UsageError(sentence)
    if options.record:
        from compilediag.runs.certify.recorded import record_run

        refuse(options, ("trace_writes", "depyf"), "runs it otherwise than --record: leave one out")
        if not options.target:
            raise UsageError("say what to run: `compilediag run --record train.py`")
        return finish(record_run(options.target, read_option_files(options)), options)
    if options.target:
        return finish(supervised.run(options.target, read_option_files(options)), options)
    if not options.trace_writes:
        raise UsageError("say what to run: `compilediag run train.py`")
    from compilediag.runs.supervised.target import find_last_run

    again = find_last_run()
    if not options.quiet:
        write_message(again.sentence)
    chosen = replace(read_option_files(options), write_tracing_plan=again.plan)
    return finish(supervised.run(again.words, chosen), options)


_BELONGING = {
    ("patch", "env", "apply", "budget_s", "rounds", "yes"): (
        "--env, --patch and --apply belong to --fix, --rounds to --against-eager, --budget to "
        "both, and --yes to these and to --cold-and-warm"
    ),
    ("group", "keep_caches"): (
        "--group and --keep-caches belong to the cadence probe, --cadence-probe; the latter to "
        "--against-eager, too"
    ),
}
"""Options of the other modes, and what is said where they are given to a plain run."""
