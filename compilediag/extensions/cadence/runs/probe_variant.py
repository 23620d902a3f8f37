"""One variant of a probe: the settings of its groups, its caches, its run, and the record of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from compilediag.extensions.cadence.diagnosis.groups import ProbeGroup, variable_of, with_argument
from compilediag.extensions.cadence.diagnosis.plan import OFF_TEMPLATE, Plan, Variant
from compilediag.extensions.cadence.diagnosis.samples import VariantEvidence, evidence_of
from compilediag.extensions.cadence.receipt.cadence import VariantRun
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised.empty_caches import caches
from compilediag.runs.supervised.options import Options, Outcome
from compilediag.runs.supervised.run import run
from compilediag_harness.collectors.sync_schedule import STEPS_VARIABLE
from compilediag_harness.user_api.cadence import variable

VARIANTS = "variants"
READ_BREAKS = frozenset({"CD201", "CD202"})
"""Graph breaks that read the values of a tensor."""


@dataclass(frozen=True, slots=True)
class ProbeEnvironment:
    """What all variants of a probe share."""

    words: tuple[str, ...]
    """TARGET and everything after it, as it was typed."""
    options: Options
    variables: Mapping[str, str]
    """The environment of the target."""
    folder: str
    """The probe's directory."""
    keep_caches: bool


def settings_of(
    words: Sequence[str], groups: Sequence[ProbeGroup], plan: Plan, variant: Variant
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command of a variant, and the variables that set the periods of its groups."""
    settings: dict[str, str] = {}
    for group in groups:
        on = group in variant.on
        if group.template is None:
            settings[variable(group.name)] = plan.setting(group) if on else "off"
            continue
        period = plan.every if on else OFF_TEMPLATE
        if group.origin == "environment":
            name, value = variable_of(group.template, period)
            settings[name] = value
        else:
            words = with_argument(words, group.template, period)
    return tuple(words), settings


def run_variant(
    environment: ProbeEnvironment,
    variant: Variant,
    number: int,
    words: Sequence[str],
    settings: Mapping[str, str],
    plan: Plan | None = None,
) -> tuple[Outcome, VariantRun]:
    """One supervised run; its directory is named by a number, since groups have any name. With a
    plan, synchronisations are sampled where a group may fire, in all variants alike."""
    output = os.path.join(environment.folder, VARIANTS, f"{number}-{variant.kind}")
    label = f"{variant.kind} {variant.name}" if variant.kind == "alone" else variant.kind
    options = replace(environment.options, output=output, label=f"variant {number}, {label}")
    with caches(keep=environment.keep_caches) as empty:
        sampling = {STEPS_VARIABLE: f"{plan.every}+{plan.first}"} if plan is not None else {}
        outcome = run(words, options, {**environment.variables, **empty, **sampling, **settings})
    shown = dict(settings)
    if tuple(words) != environment.words:
        shown["arguments"] = " ".join(words)
    return outcome, _variant_run(environment, variant, shown, outcome)


def _variant_run(
    environment: ProbeEnvironment, variant: Variant, settings: Mapping[str, str], outcome: Outcome
) -> VariantRun:
    receipt, path = outcome.receipt, outcome.receipt_path
    evidence = evidence_of(outcome.timeline) if outcome.timeline is not None else VariantEvidence()
    if receipt is not None and _reads_out_of_sight(receipt):
        evidence = evidence.without_syncs()
    goodput = receipt.goodput if receipt is not None else None
    return VariantRun(
        variant=variant,
        settings=settings,
        exit_code=outcome.exit_code,
        wall_s=goodput.wall_s if goodput is not None else None,
        evidence=evidence,
        receipt=receipt,
        uri=_uri(Path(path), environment.folder) if path is not None else None,
        problem=_problem(outcome, evidence),
    )


def _uri(path: Path, folder: str) -> str:
    """Relative to the probe's directory, where the target has left it there."""
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    return path.as_uri()


def _reads_out_of_sight(receipt: Receipt) -> bool:
    """Whether tensors may be read inside compiled calls, where reads cannot be timed: at graph
    breaks that are such reads, and in frames that run eagerly."""
    rules = {finding.rule for finding in receipt.findings}
    return bool(receipt.compile.eager_fallbacks or not READ_BREAKS.isdisjoint(rules))


def _problem(outcome: Outcome, evidence: VariantEvidence) -> str | None:
    receipt = outcome.receipt
    if receipt is None:
        return outcome.notes[0] if outcome.notes else "no receipt"
    if receipt.status in ("complete", "partial"):
        return None
    reason = (receipt.failure.reason or "").strip() if receipt.failure is not None else ""
    first = f": {reason.splitlines()[0]}" if reason else ""
    steps = len(evidence.samples)
    return f"{receipt.status} with exit code {outcome.exit_code} after {steps} steps{first}"
