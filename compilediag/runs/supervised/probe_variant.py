"""One variant of a probe: what moves its groups, its caches, its run, and what that told."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compilediag.diagnosis.cadence.groups import Group, variable_of, with_argument
from compilediag.diagnosis.cadence.plan import OFF_TEMPLATE, Plan, Variant
from compilediag.diagnosis.cadence.samples import Evidence, evidence_of
from compilediag.receipt.build.cadence import VariantRun
from compilediag.runs.supervised.options import Options, Outcome
from compilediag.runs.supervised.run import run
from compilediag_harness.collectors.sync_schedule import STEPS_VARIABLE
from compilediag_harness.user_api.cadence import variable

if TYPE_CHECKING:
    from compilediag.receipt.schema.receipt import Receipt

VARIANTS = "variants"
READ_BREAKS = frozenset({"CD201", "CD202"})
"""Graph breaks that read the values of a tensor."""
CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


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


def moved(
    words: Sequence[str], groups: Sequence[Group], plan: Plan, variant: Variant
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command of a variant, and the variables that move its groups."""
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
    ground: ProbeEnvironment,
    variant: Variant,
    number: int,
    words: Sequence[str],
    settings: Mapping[str, str],
    plan: Plan | None = None,
) -> tuple[Outcome, VariantRun]:
    """One supervised run; its directory has a number for a name, since groups have any name. With
    a plan, synchronisations are sampled where a group may fire, in all variants alike."""
    output = os.path.join(ground.folder, VARIANTS, f"{number}-{variant.kind}")
    label = f"{variant.kind} {variant.name}" if variant.kind == "alone" else variant.kind
    options = replace(ground.options, output=output, label=f"variant {number}, {label}")
    with _caches(keep=ground.keep_caches) as caches:
        sampling = {STEPS_VARIABLE: f"{plan.every}+{plan.first}"} if plan is not None else {}
        outcome = run(words, options, {**ground.variables, **caches, **sampling, **settings})
    return outcome, _told(ground, variant, words, settings, outcome)


@contextlib.contextmanager
def _caches(*, keep: bool) -> Generator[dict[str, str], None, None]:
    """Variables that give one variant new, empty caches, which are gone with it."""
    if keep:
        yield {}
        return
    with tempfile.TemporaryDirectory(
        prefix="compilediag-caches-", ignore_cleanup_errors=True
    ) as folder:
        yield {name: os.path.join(folder, name.partition("_")[0]) for name in CACHE_VARIABLES}


def _told(
    ground: ProbeEnvironment,
    variant: Variant,
    words: Sequence[str],
    settings: Mapping[str, str],
    outcome: Outcome,
) -> VariantRun:
    evidence = evidence_of(outcome.timeline) if outcome.timeline is not None else Evidence()
    if outcome.receipt is not None and _reads_out_of_sight(outcome.receipt):
        evidence = evidence.without_syncs()
    uri = None
    if outcome.receipt_path is not None:
        uri = Path(outcome.receipt_path).relative_to(ground.folder).as_posix()
    shown = dict(settings)
    if tuple(words) != ground.words:
        shown["arguments"] = " ".join(words)
    receipt = outcome.receipt
    goodput = receipt.goodput if receipt is not None else None
    return VariantRun(
        variant=variant,
        settings=shown,
        exit_code=outcome.exit_code,
        wall_s=goodput.wall_s if goodput is not None else None,
        evidence=evidence,
        receipt=receipt,
        uri=uri,
        problem=_problem(outcome, evidence),
    )


def _reads_out_of_sight(receipt: Receipt) -> bool:
    """Whether tensors may be read inside of compiled calls, where reads cannot be timed: at graph
    breaks that are such reads, and in frames that run eagerly."""
    rules = {finding.rule for finding in receipt.findings}
    return bool(receipt.compile.eager_fallbacks or not READ_BREAKS.isdisjoint(rules))


def _problem(outcome: Outcome, evidence: Evidence) -> str | None:
    if outcome.receipt is None:
        return outcome.notes[0] if outcome.notes else "no receipt"
    if outcome.receipt.status in ("complete", "partial"):
        return None
    reason = outcome.receipt.failure.reason if outcome.receipt.failure is not None else None
    first = f": {reason.strip().splitlines()[0]}" if reason and reason.strip() else ""
    steps = len(evidence.samples)
    return f"{outcome.receipt.status} with exit code {outcome.exit_code} after {steps} steps{first}"
