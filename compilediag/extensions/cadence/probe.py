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

from compilediag.errors import (
    EXIT_INTERNAL,
    EXIT_OK,
    EXIT_USAGE,
    CompilediagError,
    UsageError,
)
from compilediag.extensions.cadence.conclude import Conclusion, conclude
from compilediag.extensions.cadence.groups import (
    GroupSelection,
    ProbeGroup,
    all_groups,
    variable_of,
    with_argument,
)
from compilediag.extensions.cadence.plan import (
    DEFAULT_STEPS,
    OFF_TEMPLATE,
    Plan,
    Variant,
    make_plan,
    variants_of,
    warmup_steps,
)
from compilediag.extensions.cadence.receipt import ProbeFacts, VariantRun, probe_receipt
from compilediag.extensions.cadence.samples import VariantEvidence, evidence_of
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.pipeline import receipt_identity
from compilediag.runs.supervised.child import Outcome, with_receipt
from compilediag.runs.supervised.options import RunOptions
from compilediag.runs.supervised.run import READ_ONCE, Program, fault_note, program_in_own_folder
from compilediag_harness.user_api.cadence import variable

VARIANTS = "variants"
READ_BREAKS = frozenset({"CD201", "CD202"})
"""Graph breaks that read the values of a tensor."""


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
    program: Program,
    variant: Variant,
    number: int,
    words: Sequence[str],
    settings: Mapping[str, str],
    plan: Plan | None = None,
) -> tuple[Outcome, VariantRun]:
    """One supervised run; its directory is named by a number, since groups have any name. With a
    plan, synchronisations are sampled where a group may fire, in all variants alike."""
    output = os.path.join(program.folder, VARIANTS, f"{number}-{variant.kind}")
    label = f"{variant.kind} {variant.name}" if variant.kind == "alone" else variant.kind
    outcome = program.run(
        output,
        settings,
        words=words,
        keep_caches=program.options.keep_caches,
        label=f"variant {number}, {label}",
        sync_steps=(plan.every, plan.first) if plan is not None and plan.every else None,
    )
    shown = dict(settings)
    if tuple(words) != program.words:
        shown["arguments"] = " ".join(words)
    return outcome, _variant_run(program, variant, shown, outcome)


def _variant_run(
    program: Program, variant: Variant, settings: Mapping[str, str], outcome: Outcome
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
        uri=_uri(Path(path), program.folder) if path is not None else None,
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
    """Runs TARGET in all variants.

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
    program = program_in_own_folder(words, options, environ, on_stdin=f"{READ_ONCE} to probe it")
    running = _Probe(program, wanted or GroupSelection(), announce, started_unix)
    try:
        configured = _run(running, Variant("configured"), None, program.words, {})
    except UsageError:
        shutil.rmtree(program.folder, ignore_errors=True)  # ours and new: nothing was started
        raise
    if _interrupted(configured):
        running.problems.append("interrupted: the other variants did not run")
    elif _make_plan(running):
        _run_others(running)
    return _conclude(running, configured)


def _run(
    running: _Probe,
    variant: Variant,
    total: int | None,
    words: Sequence[str],
    settings: Mapping[str, str],
) -> Outcome:
    number = len(running.runs) + 1
    running.announce(number, total, variant)
    outcome, record = run_variant(running.program, variant, number, words, settings, running.plan)
    running.runs.append(record)
    return outcome


def _interrupted(outcome: Outcome) -> bool:
    """Ctrl-C, a signal to us, or the time limit."""
    receipt = outcome.receipt
    return outcome.stopped or (receipt is not None and receipt.status == "interrupted")


def _make_plan(running: _Probe) -> bool:
    """Makes the plan from the evidence of the configured variant; False when that cannot be done,
    which is then a problem."""
    evidence = running.runs[0].evidence
    steps = len(evidence.samples)
    warmup = warmup_steps(evidence.compiled_steps, steps, running.program.options.warmup)
    try:
        running.groups = all_groups(running.wanted, evidence.groups)
        _check_variables(running.groups)
        no_groups = Plan(steps, warmup, every=0, first=0)
        running.plan = make_plan(steps, warmup) if running.groups or not steps else no_groups
    except UsageError as error:
        running.problems.append(str(error))
        return False
    return True


def _check_variables(groups: Sequence[ProbeGroup]) -> None:
    """Two names that become one variable would be moved together."""
    names: dict[str, str] = {}
    for group in (item for item in groups if item.origin == "code"):
        other = names.setdefault(variable(group.name), group.name)
        if other != group.name:
            raise UsageError(
                f"the groups {other!r} and {group.name!r} are moved by the same variable, "
                f"{variable(group.name)}: give one of them another name"
            )


def _run_others(running: _Probe) -> None:
    """Every variant but the configured one, until one is interrupted."""
    assert running.plan is not None
    variants = variants_of(running.groups)
    try:
        for variant in variants:
            words, settings = settings_of(
                running.program.words, running.groups, running.plan, variant
            )
            outcome = _run(running, variant, len(variants) + 1, words, settings)
            if _interrupted(outcome):
                running.problems.append(
                    f"interrupted in the variant {variant.name}: later ones did not run"
                )
                return
    except CompilediagError as error:
        running.problems.append(f"the later variants did not run: {error}")
    except KeyboardInterrupt:
        running.problems.append("interrupted between two variants: later ones did not run")


def _conclude(running: _Probe, configured: Outcome) -> Outcome:
    """The receipt of the probe, beside those of its variants, and the exit code."""
    folder, code = running.program.folder, configured.exit_code
    try:
        conclusion = _conclusion(running)
        if code == EXIT_OK and running.problems:
            code = EXIT_USAGE
        notes = (*configured.notes, *running.problems)
        if configured.receipt is None:
            return Outcome(code, folder, None, None, notes)
        receipt = _receipt(running, configured.receipt, conclusion)
    except Exception as error:
        # The receipts of the variants are there; only the one above them is not.
        return Outcome(code or EXIT_INTERNAL, folder, None, None, (fault_note(error),))
    outcome = Outcome(code, folder, receipt, None, notes, configured.timeline)
    return with_receipt(outcome, receipt, latest=running.program.options.output is None)


def _conclusion(running: _Probe) -> Conclusion:
    """The costs of the groups; groups that never fired become problems."""
    if running.plan is None:
        return Conclusion()
    runs = {item.variant: item.evidence for item in running.runs if item.evidence.samples}
    conclusion = conclude(running.plan, running.groups, runs)
    running.problems += [
        f"group {result.group.name!r} {result.problem}"
        for result in conclusion.groups
        if result.never_fired
    ]
    return conclusion


def _receipt(running: _Probe, configured: Receipt, conclusion: Conclusion) -> Receipt:
    program = running.program
    facts = ProbeFacts(
        receipt_id=receipt_identity(running.started_unix)[0],
        run_id=os.path.basename(program.folder),
        fresh_caches=not program.options.keep_caches,
        plan=running.plan,
        groups=running.groups,
        runs=tuple(running.runs),
        notes=tuple(running.problems),
        secret_values=program.secrets,
    )
    return probe_receipt(configured, facts, conclusion)
