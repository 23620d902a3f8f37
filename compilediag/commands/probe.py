"""`compilediag probe`: what each periodic group of work costs, found by moving it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compilediag.commands.run import flags_of, gated, limits_of, options_of, report, say
from compilediag.commands.run_defaults import read_defaults
from compilediag.commands.run_options import (
    PROBE_FLAG,
    TARGET_IS_MARKED,
    TELEMETRY,
    TargetCommand,
    with_probe_options,
    with_run_options,
)
from compilediag.errors import UsageError

if TYPE_CHECKING:
    from compilediag.diagnosis.cadence.plan import Variant


@click.command(
    name="probe",
    cls=TargetCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  compilediag probe model.py                      the groups that model.py declares
  compilediag probe --group 'entropy=--entropy-every {n}' train.py --lr 3e-4
  compilediag probe --group 'eval=env:EVAL_EVERY={n}' --steps 200 -- -m package.train
  compilediag run model.py --cadence-probe        the same command by another name
""",
)
@with_run_options
@with_probe_options
@click.argument("target", nargs=-1, type=click.UNPROCESSED, metavar="TARGET [ARGS]...")
@click.pass_context
def command(ctx: click.Context, target: tuple[str, ...], **given: Any) -> int:
    """Find what each periodic group of work costs, and why.

    Runs TARGET several times: as it is, with every group off, with each group alone, with all in
    the same steps. Groups are declared in the code with `compilediag.cadence`, or named here by
    a template: {n} is the place for the period. Without any, rhythms are looked for in the step
    times. The exit code is that of TARGET as it is.
    """
    if target and target[0] == "--":
        target = target[1:]
    if not ctx.meta.get(TARGET_IS_MARKED):
        target = tuple(word for word in target if word != PROBE_FLAG)
    return probe_target(target, given)


def probe_target(target: tuple[str, ...], given: dict[str, Any]) -> int:
    """Probes TARGET with the options of the command line; `run --cadence-probe` comes here too."""
    from compilediag.diagnosis.cadence.groups import parse_groups
    from compilediag.runs.supervised.probe import ProbeOptions, probe

    if not target:
        raise UsageError("say what to probe: `compilediag probe train.py`")
    # Telemetry is of one run: the defaults of `run` do not hold for a probe.
    defaults = {k: v for k, v in read_defaults(Path.cwd()).items() if k not in TELEMETRY}
    table = defaults.pop("probe", {})
    settings = {**defaults, **{k: v for k, v in table.items() if k == "steps"}, **flags_of(given)}
    keep = given["keep_caches"]
    options = ProbeOptions(
        wanted=parse_groups(given["group"], table.get("groups", {})),
        keep_caches=table.get("keep_caches", False) if keep is None else keep,
    )
    quiet = bool(settings.get("quiet"))
    limits = limits_of(settings)
    outcome = probe(target, options_of(settings), options, _silent if quiet else _announce)
    report(outcome, settings)
    return gated(outcome, limits)


def _silent(number: int, total: int | None, variant: Variant) -> None:
    """Says nothing."""


def _announce(number: int, total: int | None, variant: Variant) -> None:
    """One line before each variant, which has the terminal while it runs."""
    from compilediag.views.cadence_variants import variant_sentence

    names = [group.name for group in variant.on]
    say(variant_sentence(number, total, variant.kind, names) + "\n")
