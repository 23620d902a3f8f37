"""`compilediag probe`: what each periodic group of work costs, found by moving it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compilediag.commands.options import (
    TARGET_SETTINGS,
    TELEMETRY,
    RunOptions,
    TargetCommand,
    pyproject_defaults,
    supervised_options,
)
from compilediag.commands.run_report import finish
from compilediag.commands.subcommand import subcommand
from compilediag.commands.terminal import write_stderr
from compilediag.errors import UsageError

if TYPE_CHECKING:
    from compilediag.diagnosis.cadence.plan import Variant


@subcommand(
    "probe",
    RunOptions,
    cls=TargetCommand,
    table=pyproject_defaults,
    context_settings=TARGET_SETTINGS,
    examples="""\
  compilediag probe model.py                      the groups that model.py declares
  compilediag probe --group 'entropy=--entropy-every {n}' train.py --lr 3e-4
  compilediag probe --group 'eval=env:EVAL_EVERY={n}' --steps 200 -- -m package.train
  compilediag run model.py --cadence-probe        the same command by another name
""",
)
def command(options: RunOptions) -> int:
    """Find what each periodic group of work costs, and why.

    Runs TARGET several times: as it is, with every group off, with each group alone, with all in
    the same steps. Groups are declared in the code with `compilediag.cadence`, or named here by
    a template: {n} is the place for the period. Without any, rhythms are looked for in the step
    times. The exit code is that of TARGET as it is.
    """
    return probe_target(options)


def probe_target(options: RunOptions) -> int:
    """Probes TARGET; `run --cadence-probe` comes here too."""
    from compilediag.diagnosis.cadence.groups import wanted_of
    from compilediag.runs.supervised.probe import ProbeOptions, probe

    if observed := [name for name in TELEMETRY if getattr(options, name)]:
        flag = f"--{observed[0].replace('_', '-')}"
        raise UsageError(f"{flag} reports one run: leave it out of a probe, which is several")
    if not options.target:
        raise UsageError("say what to probe: `compilediag probe train.py`")
    probed = ProbeOptions(
        wanted=wanted_of(options.group, options.groups or {}), keep_caches=options.keep_caches
    )
    announce = _silent if options.quiet else _announce
    return finish(probe(options.target, supervised_options(options), probed, announce), options)


def _silent(index: int, total: int | None, variant: Variant) -> None:
    """Prints nothing."""


def _announce(index: int, total: int | None, variant: Variant) -> None:
    """One line before each variant, which has the terminal while it runs."""
    from compilediag.views.cadence_variants import variant_sentence

    names = [group.name for group in variant.on]
    write_stderr(variant_sentence(index, total, variant.kind, names) + "\n")
