"""Runs a program several times, each time with other periodic work, and leaves one receipt.

Each variant is one supervised run with a directory and a receipt of its own. The configured one
comes first: it tells which groups the code declares, how many steps there are and how long the
warm-up is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compilediag.diagnosis.cadence.conclude import Conclusion, conclude
from compilediag.diagnosis.cadence.groups import GroupSelection, ProbeGroup, all_groups
from compilediag.diagnosis.cadence.plan import (
    DEFAULT_STEPS,
    Plan,
    Variant,
    make_plan,
    variants_of,
    warmup_steps,
)
from compilediag.errors import (
    EXIT_INTERNAL,
    EXIT_OK,
    EXIT_USAGE,
    CompilediagError,
    OutputUnwritable,
    UsageError,
)
from compilediag.runs.run_directory import make_run_dir
from compilediag.runs.supervised.options import Options, Outcome
from compilediag.runs.supervised.probe_variant import ProbeEnvironment, moved, run_variant
from compilediag.runs.supervised.run import fault_note
from compilediag.runs.supervised.target import parse_target
from compilediag_harness.user_api.cadence import variable

if TYPE_CHECKING:
    from compilediag.receipt.build.cadence import VariantRun
    from compilediag.receipt.schema.receipt import Receipt

Announce = Callable[[int, int | None, Variant], None]
"""Told before each variant: its number, how many there are (None: not known yet), and it."""


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """How to probe, beside how to run."""

    wanted: GroupSelection = field(default_factory=GroupSelection)
    keep_caches: bool = False
    """Use the caches of the environment in place of an empty one for each variant."""


@dataclass(slots=True)
class _Probe:
    """A probe in progress."""

    ground: ProbeEnvironment
    wanted: GroupSelection
    announce: Announce
    plan: Plan | None = None
    groups: tuple[ProbeGroup, ...] = ()
    runs: list[VariantRun] = field(default_factory=list["VariantRun"])
    problems: list[str] = field(default_factory=list[str])
    """What the probe could not do: exit code 2, after everything else is told."""


def probe(
    words: Sequence[str],
    options: Options,
    probe_options: ProbeOptions,
    announce: Announce = lambda number, total, variant: None,
    environ: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs TARGET in all variants.

    The exit code is that of the configured variant; 2 where it is 0 and the probe could not do
    what it was asked for. What did run is in the receipt all the same.

    Args:
        words: TARGET and everything after it.
        options: how to run each variant; `output` is the directory of the whole probe.
        probe_options: which groups, and which caches.
        announce: told before each variant starts.
        environ: the environment of the target; this process's by default.

    Raises:
        UsageError: nothing was started.
    """
    variables = dict(os.environ if environ is None else environ)
    target = parse_target(words)
    if target.kind == "stdin":
        raise UsageError("a program on stdin can be read only once: put it into a file to probe it")
    started_unix = time.time()
    name = options.name or target.name
    folder = make_run_dir(options.output, name, now=started_unix, pid=os.getpid())
    each = replace(options, name=name, steps=options.steps or DEFAULT_STEPS)
    ground = ProbeEnvironment(tuple(words), each, variables, folder, probe_options.keep_caches)
    running = _Probe(ground, probe_options.wanted, announce)
    try:
        configured = _run(running, Variant("configured"), 1, None, ground.words, {})
    except UsageError:
        shutil.rmtree(folder, ignore_errors=True)  # ours and new: nothing was started
        raise
    if _interrupted(configured):
        running.problems.append("interrupted: the other variants did not run")
    elif _planned(running):
        _run_others(running)
    return _conclude(running, configured, started_unix)


def _run(
    running: _Probe,
    variant: Variant,
    number: int,
    total: int | None,
    words: Sequence[str],
    settings: Mapping[str, str],
) -> Outcome:
    running.announce(number, total, variant)
    outcome, told = run_variant(running.ground, variant, number, words, settings, running.plan)
    running.runs.append(told)
    return outcome


def _interrupted(outcome: Outcome) -> bool:
    return outcome.receipt is not None and outcome.receipt.status == "interrupted"


def _planned(running: _Probe) -> bool:
    """Makes the plan from what the configured variant told; False when that cannot be done, which
    is then a problem."""
    evidence = running.runs[0].evidence
    steps = len(evidence.samples)
    warmup = warmup_steps(evidence.compiled_steps, steps, running.ground.options.warmup)
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
    seen: dict[str, str] = {}
    for group in (item for item in groups if item.origin == "code"):
        other = seen.setdefault(variable(group.name), group.name)
        if other != group.name:
            raise UsageError(
                f"the groups {other!r} and {group.name!r} are moved by the same variable, "
                f"{variable(group.name)}: give one of them another name"
            )


def _run_others(running: _Probe) -> None:
    """Every variant but the configured one, until somebody interrupts."""
    assert running.plan is not None
    variants = variants_of(running.groups)
    try:
        for number, variant in enumerate(variants, start=2):
            words, settings = moved(running.ground.words, running.groups, running.plan, variant)
            outcome = _run(running, variant, number, len(variants) + 1, words, settings)
            if _interrupted(outcome):
                running.problems.append(
                    f"interrupted in the variant {variant.name}: later ones did not run"
                )
                return
    except CompilediagError as error:
        running.problems.append(f"the later variants did not run: {error}")
    except KeyboardInterrupt:
        running.problems.append("interrupted between two variants: later ones did not run")


# --- the end -----------------------------------------------------------------------------------


def _conclude(running: _Probe, configured: Outcome, started_unix: float) -> Outcome:
    """The receipt of the probe, beside those of its variants, and what the shell is told."""
    folder, code = running.ground.folder, configured.exit_code
    try:
        conclusion = _conclusion(running)
        if code == EXIT_OK and running.problems:
            code = EXIT_USAGE
        notes = (*configured.notes, *running.problems)
        if configured.receipt is None:
            return Outcome(code, folder, None, None, notes)
        receipt = _receipt(running, configured.receipt, conclusion, started_unix)
    except Exception as error:
        # The receipts of the variants are there; only what stands above them is not.
        return Outcome(code or EXIT_INTERNAL, folder, None, None, (fault_note(error),))
    try:
        path = _write(running, receipt)
    except OutputUnwritable as error:
        return Outcome(code, folder, receipt, None, (*notes, str(error)))
    return Outcome(code, folder, receipt, path, notes, configured.timeline)


def _conclusion(running: _Probe) -> Conclusion:
    """What the variants say; groups that never fired become problems."""
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


def _receipt(
    running: _Probe, configured: Receipt, conclusion: Conclusion, started_unix: float
) -> Receipt:
    from compilediag.receipt.build.cadence import ProbeFacts, probe_receipt
    from compilediag.receipt.redact import secret_values
    from compilediag.receipt.ulid import ulid

    ground = running.ground
    facts = ProbeFacts(
        receipt_id=ulid(int(started_unix * 1000), os.urandom(10)),
        run_id=os.path.basename(ground.folder),
        fresh_caches=not ground.keep_caches,
        plan=running.plan,
        groups=running.groups,
        runs=tuple(running.runs),
        notes=tuple(running.problems),
        secret_values=tuple(secret_values(ground.words, ground.variables)),
    )
    return probe_receipt(configured, facts, conclusion)


def _write(running: _Probe, receipt: Receipt) -> str:
    from compilediag.receipt.file import write_receipt
    from compilediag.receipt.locate import RECEIPT_NAME, point_latest

    path = Path(running.ground.folder) / RECEIPT_NAME
    write_receipt(receipt, path)
    if running.ground.options.output is None:
        with contextlib.suppress(OutputUnwritable):  # the receipt is there; only its short name not
            point_latest(path.parent)
    return str(path)
