"""`compilediag measure against-eager`: the program compiled and eager in turns."""

from __future__ import annotations

import os

import msgspec

from compilediag.commands.target import (
    TELEMETRY,
    confirm_reruns,
    finish,
    make_announcer,
    read_option_files,
    refuse,
    target_command,
)
from compilediag.compare.against_eager import conclude, find_slower_than_eager, make_not_concluded
from compilediag.compare.intervals import require_scipy
from compilediag.errors import EXIT_INTERRUPTED, EXIT_USAGE, UsageError
from compilediag.fixes.numbers import find_number_differences, format_difference
from compilediag.receipt.assemble import extend_receipt
from compilediag.receipt.schema.comparisons import AgainstEagerSection, NumbersSection
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised.child import replace_receipt
from compilediag.runs.supervised.run import Program
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.trials.against_eager import (
    COMPILED,
    FOLDER,
    PAIRS,
    Pairs,
    compare_numbers,
    run_pairs,
)
from compilediag.runs.trials.trial import Trial, describe_failure, run_first_trial, run_with_plan
from compilediag.runs.work_progress import WorkProgress

_ONE_RUN = ("trace", "tlparse", "depyf")
"""RunOptions that change the runs that are compared, or make others."""


def run_against_eager(options: RunOptions) -> int:
    """Run a program compiled and eager in turns: does compiling pay?

    The exit code is that of TARGET as it is, and 2 where that is 0 and nothing could be concluded.
    """
    _require_possible(options)
    pairs = options.rounds or PAIRS
    times = f"{2 * pairs} times, compiled and eager in turns, and once more to compare numbers"
    confirm_reruns("against-eager", options.target, times, options)
    target, run_options = options.target, read_option_files(options)
    stage = f"run 0: compiled, pair 1 of {pairs}"
    announce = make_announcer(quiet=options.quiet)
    announce(f"{stage}; its output goes to a file")
    with WorkProgress(stage=stage, silent=options.quiet):
        outcome, first = run_first_trial(
            lambda own, caches: run_with_plan(target, own, {**os.environ, **caches}, COMPILED),
            run_options,
            FOLDER,
            keep_caches=options.keep_caches,
        )
    receipt, timeline = outcome.receipt, outcome.timeline
    if receipt is None or timeline is None:
        return finish(outcome, options)
    made = Pairs(
        _make_program(options, os.path.join(outcome.run_dir, FOLDER)),
        announce,
        rounds=pairs,
        budget_s=options.budget_s,
        caches="kept" if options.keep_caches else "empty",
        quiet=options.quiet,
    )
    payoff, numbers = _compare_arms(made, first, receipt)
    cache_state = "kept" if options.keep_caches else "fresh"
    section = msgspec.structs.replace(payoff, caches=cache_state, runs=tuple(made.records))
    findings = [*find_slower_than_eager(timeline, payoff)]
    if numbers is not None:
        section = msgspec.structs.replace(section, numbers=numbers)
        findings += find_number_differences(timeline, numbers)
    final = extend_receipt(receipt, timeline, findings, made.program.secrets, against_eager=section)
    code = finish(replace_receipt(outcome, final, latest=False), options)
    if first.interrupted or made.interrupted:
        return code or EXIT_INTERRUPTED
    nothing = payoff.verdict == "not_concluded" and (numbers is None or numbers.same is None)
    return code or (EXIT_USAGE if nothing else 0)


command = target_command(
    "against-eager",
    """\
  compilediag measure against-eager train.py --lr 3e-4
  compilediag measure against-eager --rounds 5 --budget 30m train.py
""",
)(run_against_eager)


def _make_program(options: RunOptions, folder: str) -> Program:
    """Make the program with the steps, limits and warm-up of the first run, and no other option."""
    limits = RunOptions(
        steps=options.steps,
        warmup=options.warmup,
        timeout_s=options.timeout_s,
        grace_s=options.grace_s,
    )
    return Program(options.target, limits, os.environ, folder)


def _require_possible(options: RunOptions) -> None:
    refuse(options, _ONE_RUN, "changes the runs that against-eager compares: leave it out")
    several = "reports one run, and against-eager makes several: leave it out"
    refuse(options, TELEMETRY, several)
    if not options.target:
        raise UsageError("say what to run: `compilediag measure against-eager train.py`")
    if options.target[0] == "-":
        raise UsageError("a program on stdin can be read only once: put it into a file")
    require_scipy()


def _compare_arms(
    pairs: Pairs, first: Trial, receipt: Receipt
) -> tuple[AgainstEagerSection, NumbersSection | None]:
    """Compare both arms, and their numbers, where the first run can be compared with others."""
    if first.interrupted:
        return make_not_concluded("interrupted in the first run: nothing was compared"), None
    if first.problem:
        return make_not_concluded(f"the program does not run: {describe_failure(first)}"), None
    if not receipt.compile.compiles:
        why = "the program compiled nothing: there is nothing to compare with eager"
        return make_not_concluded(why), None
    run_pairs(pairs, first)
    numbers = None
    if not pairs.interrupted:
        numbers = compare_numbers(pairs)
    return _conclude_payoff(pairs, numbers), numbers


def _conclude_payoff(pairs: Pairs, numbers: NumbersSection | None) -> AgainstEagerSection:
    """Conclude whether compiling pays. `numbers`: the comparison of what both arms computed, if it
    was made; outputs that differ are the verdict, whatever the seconds say."""
    if not pairs.made:
        return make_not_concluded(pairs.stopped or "no pair of runs was made")
    differing = numbers.differences if numbers is not None else ()
    difference = format_difference(differing[0]) if differing else None
    section = conclude(pairs.made, difference)
    limited = any(not pair.eager.whole for pair in pairs.made)
    if pairs.stopped is None or limited:  # the latter has a note of its own
        return section
    stopped = f"{len(pairs.made)} of {pairs.rounds} pairs: {pairs.stopped}"
    return msgspec.structs.replace(section, notes=(stopped, *section.notes))
