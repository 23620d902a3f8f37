"""`compilediag run`: runs a program and says why torch.compile compiled again.

Its options are `RunOptions` in `runs/supervised/run_options.py`, since runs read them too.
"""

from __future__ import annotations

from dataclasses import replace

from compilediag.commands.target import finish, read_option_files, refuse, target_command
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
        why = "compares runs under torch's limit: leave --past-limit out"
        refuse(options, ("record",), why)
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
