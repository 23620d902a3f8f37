"""`compilediag measure periodic`: measures what each group of periodic work costs, by moving it."""

from __future__ import annotations

from compilediag.commands.target import finish, read_option_files, target_command
from compilediag.commands.terminal import write_stderr
from compilediag.errors import UsageError
from compilediag.extensions.cadence import probe as probes
from compilediag.extensions.cadence.plan import Variant, parse_groups
from compilediag.extensions.cadence.view import describe_variant
from compilediag.runs.supervised.run_options import RunOptions


def probe_target(options: RunOptions) -> int:
    """Measure what each periodic group of work costs, and explain why.

    Runs TARGET several times: unchanged, with every group off, with each group alone, and with all
    in the same steps. Groups are declared in the code with `compilediag.cadence`, or named here by
    a template, where {n} stands for the period. Without any, it looks for rhythms in the step
    times. The exit code is that of the unchanged run.
    """
    if not options.target:
        raise UsageError("say what to run: `compilediag measure periodic train.py`")
    wanted = parse_groups(options.group, options.groups or {})

    def announce(index: int, total: int | None, variant: Variant) -> None:
        """One line before each variant, which has the terminal while it runs."""
        if not options.quiet:
            names = [group.name for group in variant.on]
            write_stderr(describe_variant(index, total, variant.kind, names) + "\n")

    outcome = probes.probe(options.target, read_option_files(options), wanted, announce)
    return finish(outcome, options)


command = target_command(
    "periodic",
    """\
  compilediag measure periodic model.py           the groups that model.py declares
  compilediag measure periodic --group 'entropy=--entropy-every {n}' train.py --lr 3e-4
  compilediag measure periodic --group 'eval=env:EVAL_EVERY={n}' --steps 200 -- -m package.train
  compilediag run model.py --cadence-probe        the same command by another name
""",
)(probe_target)
