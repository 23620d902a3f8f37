"""Runs a program several times, each time with other periodic work, and leaves one receipt.

Each variant is one supervised run with a directory and a receipt of its own. The configured one
comes first: from it come the groups that the code declares, the count of steps and the warm-up.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import replace as changed

from compilediag.errors import EXIT_INTERNAL, EXIT_OK, EXIT_USAGE, CompilediagError, UsageError
from compilediag.extensions.cadence.conclude import (
    Conclusion,
    VariantRun,
    build_cadence_section,
    conclude,
)
from compilediag.extensions.cadence.plan import (
    DEFAULT_STEPS,
    HOLE,
    OFF_TEMPLATE,
    GroupSelection,
    Plan,
    ProbeGroup,
    Variant,
    count_warmup_steps,
    list_variants,
    make_plan,
    select_groups,
    set_argument,
)
from compilediag.extensions.cadence.samples import VariantEvidence, collect_evidence
from compilediag.receipt.sanitize import sanitize
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.pipeline import make_identity
from compilediag.runs.supervised.child import Outcome, replace_receipt
from compilediag.runs.supervised.run import READ_ONCE, Program, describe_fault, make_program
from compilediag.runs.supervised.run_options import RunOptions
from compilediag_harness.redaction.redactor import Redactor
from compilediag_harness.user_api.cadence import format_variable_name

VARIANTS = "variants"
READ_BREAKS = frozenset({"CD201", "CD202"})
"""Graph breaks that read the values of a tensor."""


def build_settings(
    words: Sequence[str], groups: Sequence[ProbeGroup], plan: Plan, variant: Variant
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Build the command of a variant, and the variables that set the periods of its groups."""
    settings: dict[str, str] = {}
    for group in groups:
        on = group in variant.on
        if group.template is None:
            # Period and offset in the program's own steps.
            moved = f"{plan.every}+{(plan.first + group.shift) % plan.every}"
            settings[format_variable_name(group.name)] = moved if on else "off"
            continue
        period = plan.every if on else OFF_TEMPLATE
        if group.origin == "environment":
            name, _, value = group.template.removeprefix("env:").partition("=")
            settings[name] = value.replace(HOLE, str(period))
        else:
            words = set_argument(words, group.template, period)
    return tuple(words), settings


def _describe_problem(outcome: Outcome, evidence: VariantEvidence) -> str | None:
    receipt = outcome.receipt
    if receipt is None:
        return outcome.notes[0] if outcome.notes else "no receipt"
    if receipt.status in ("complete", "partial"):
        return None
    reason = (receipt.failure.reason or "").strip() if receipt.failure is not None else ""
    first = f": {reason.splitlines()[0]}" if reason else ""
    steps = len(evidence.samples)
    return f"{receipt.status} with exit code {outcome.exit_code} after {steps} steps{first}"


Announce = Callable[[int, int | None, Variant], None]
"""Called before each variant with its number, the total (None: not known yet), and itself."""


@dataclass(slots=True)
class _Probe:
    """A probe in progress."""

    program: Program
    wanted: GroupSelection
    announce: Announce
    started_unix: float
    plan: Plan | None = None
    groups: tuple[ProbeGroup, ...] = ()
    runs: list[VariantRun] = field(default_factory=list[VariantRun])
    problems: list[str] = field(default_factory=list[str])
    """What the probe could not do: exit code 2, after everything else is reported."""


def probe(
    words: Sequence[str],
    options: RunOptions,
    wanted: GroupSelection | None = None,
    announce: Announce = lambda number, total, variant: None,
    environ: Mapping[str, str] | None = None,
) -> Outcome:
    """Run TARGET in all variants.

    The exit code is that of the configured variant; 2 where it is 0 and the probe could not do all
    that the options require. The variants that ran are in the receipt all the same.

    Args:
        words: TARGET and everything after it.
        options: how to run each variant; `output` is the directory of the whole probe.
        wanted: which groups; those of the code by default.
        announce: called before each variant starts.
        environ: the environment of the target; this process's by default.

    Raises:
        UsageError: nothing was started.
    """
    started_unix = time.time()
    options = replace(options, steps=options.steps or DEFAULT_STEPS)
    program = make_program(words, options, environ, on_stdin=f"{READ_ONCE} to probe it")
    probe = _Probe(program, wanted or GroupSelection(), announce, started_unix)
    try:
        configured = _run(probe, Variant("configured"), None, program.words, {})
    except UsageError:
        shutil.rmtree(program.folder, ignore_errors=True)  # ours and new: nothing was started
        raise
    if _was_interrupted(configured):
        probe.problems.append("interrupted: the other variants did not run")
    elif _make_plan(probe):
        _run_others(probe)
    # The receipt of the probe, beside those of its variants, and the exit code.
    folder, code = probe.program.folder, configured.exit_code
    try:
        conclusion = _conclude_probe(probe)
        if code == EXIT_OK and probe.problems:
            code = EXIT_USAGE
        notes = (*configured.notes, *probe.problems)
        if configured.receipt is None:
            return Outcome(code, folder, None, None, notes)
        receipt = _build_receipt(probe, configured.receipt, conclusion)
    except Exception as error:
        # The receipts of the variants are there; only the one above them is not.
        return Outcome(code or EXIT_INTERNAL, folder, None, None, (describe_fault(error),))
    outcome = Outcome(code, folder, receipt, None, notes, configured.timeline)
    return replace_receipt(outcome, receipt, latest=probe.program.options.output is None)


def _run(
    probe: _Probe,
    variant: Variant,
    total: int | None,
    words: Sequence[str],
    settings: Mapping[str, str],
) -> Outcome:
    """Run one variant, supervised; a number names its directory, since groups have any name. With a
    plan, synchronisations are sampled where a group may fire, in all variants alike."""
    number, program, plan = len(probe.runs) + 1, probe.program, probe.plan
    probe.announce(number, total, variant)
    output = os.path.join(program.folder, VARIANTS, f"{number}-{variant.kind}")
    outcome = program.run(
        output,
        settings,
        words=words,
        caches="kept" if program.options.keep_caches else "empty",
        sync_steps=(plan.every, plan.first) if plan is not None and plan.every else None,
    )
    shown = dict(settings)
    if tuple(words) != program.words:
        shown["arguments"] = " ".join(words)
    receipt, path, timeline = outcome.receipt, outcome.receipt_path, outcome.timeline
    evidence = collect_evidence(timeline) if timeline is not None else VariantEvidence()
    if receipt is not None:
        # Reads inside compiled calls cannot be timed: at graph breaks that are such reads, and in
        # frames that run eagerly.
        rules = {finding.rule for finding in receipt.findings}
        if receipt.compile.eager_fallbacks or not READ_BREAKS.isdisjoint(rules):
            evidence = evidence.drop_syncs()
    goodput, uri = receipt.goodput if receipt is not None else None, None
    if path is not None:
        own, folder = Path(path), program.folder  # there, unless the target has moved it
        inside = own.is_relative_to(folder)
        uri = own.relative_to(folder).as_posix() if inside else own.as_uri()
    run = VariantRun(
        variant=variant,
        settings=shown,
        exit_code=outcome.exit_code,
        wall_s=goodput.wall_s if goodput is not None else None,
        evidence=evidence,
        receipt=receipt,
        uri=uri,
        problem=_describe_problem(outcome, evidence),
    )
    probe.runs.append(run)
    return outcome


def _was_interrupted(outcome: Outcome) -> bool:
    """True if the run ended by Ctrl-C, a signal to us, or the time limit."""
    receipt = outcome.receipt
    return outcome.stopped or (receipt is not None and receipt.status == "interrupted")


def _make_plan(probe: _Probe) -> bool:
    """Make the plan from the evidence of the configured variant; False when that cannot be done,
    which is then a problem."""
    evidence = probe.runs[0].evidence
    steps = len(evidence.samples)
    warmup = count_warmup_steps(evidence.compiled_steps, steps, probe.program.options.warmup)
    try:
        probe.groups = select_groups(probe.wanted, evidence.groups)
        # Two names that become one variable would be moved together.
        names: dict[str, str] = {}
        for group in (candidate for candidate in probe.groups if candidate.origin == "code"):
            other = names.setdefault(format_variable_name(group.name), group.name)
            if other != group.name:
                raise UsageError(
                    f"the groups {other!r} and {group.name!r} are moved by the same variable, "
                    f"{format_variable_name(group.name)}: give one of them another name"
                )
        no_groups = Plan(steps, warmup, every=0, first=0)
        probe.plan = make_plan(steps, warmup) if probe.groups or not steps else no_groups
    except UsageError as error:
        probe.problems.append(str(error))
        return False
    return True


def _run_others(probe: _Probe) -> None:
    """Run every variant but the configured one, until one is interrupted."""
    assert probe.plan is not None
    variants = list_variants(probe.groups)
    try:
        for variant in variants:
            words, settings = build_settings(probe.program.words, probe.groups, probe.plan, variant)
            outcome = _run(probe, variant, len(variants) + 1, words, settings)
            if _was_interrupted(outcome):
                problem = f"interrupted in the variant {variant.name}: later ones did not run"
                probe.problems.append(problem)
                return
    except CompilediagError as error:
        probe.problems.append(f"the later variants did not run: {error}")
    except KeyboardInterrupt:
        probe.problems.append("interrupted between two variants: later ones did not run")


def _conclude_probe(probe: _Probe) -> Conclusion:
    """Conclude the costs of the groups; groups that never fired become problems."""
    if probe.plan is None:
        return Conclusion()
    runs = {run.variant: run.evidence for run in probe.runs if run.evidence.samples}
    conclusion = conclude(probe.plan, probe.groups, runs)
    probe.problems += [
        f"group {result.group.name!r} {result.problem}"
        for result in conclusion.groups
        if result.never_fired
    ]
    return conclusion


def _build_receipt(probe: _Probe, configured: Receipt, conclusion: Conclusion) -> Receipt:
    """Build the configured variant's receipt with the probe's results in it, redacted and bounded
    like every receipt; its artifacts are found from the probe's directory."""
    program, uri = probe.program, probe.runs[0].uri
    raw_section = build_cadence_section(
        probe.plan,
        probe.groups,
        probe.runs,
        conclusion,
        fresh_caches=not program.options.keep_caches,
        notes=probe.problems,
    )
    section, finite = sanitize(raw_section, Redactor(program.secrets))
    folder = uri.rpartition("/")[0] + "/" if uri else ""
    run = changed(configured.header.run, run_id=os.path.basename(program.folder))
    checks = configured.checks
    return changed(
        configured,
        receipt_id=make_identity(probe.started_unix)[0],
        header=changed(configured.header, run=run),
        cadence=section,
        checks=checks if finite else changed(checks, values_finite=False),
        artifacts=tuple(changed(entry, uri=folder + entry.uri) for entry in configured.artifacts),
    )
