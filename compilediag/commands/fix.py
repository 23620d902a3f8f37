"""`compilediag fix`: tries changes for the findings of a run, and proves those that work."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from compilediag.commands.receipts import find_finding
from compilediag.commands.subcommand import subcommand
from compilediag.commands.target import (
    TargetCommand,
    confirm_reruns,
    make_announcer,
    read_pyproject_defaults,
)
from compilediag.commands.terminal import format_json, get_render_options, write, write_message
from compilediag.errors import EXIT_GATE, EXIT_INTERRUPTED, EXIT_OK, OutputUnwritable, UsageError
from compilediag.option_fields import argument, collect_options, flag, names_finding, option
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.certify.recorded import find_recorded_run, keep_proved, record_run
from compilediag.runs.fix.campaign import (
    list_candidates,
    list_editable_files,
    make_campaign,
    run_campaign,
)
from compilediag.runs.fix.results import (
    build_fix_json,
    build_plan,
    choose_next,
    format_certify,
    format_env,
    read_together,
    save_results,
)
from compilediag.runs.fix.sources import (
    apply,
    format_patch,
    make_changes,
    require_committed,
)
from compilediag.runs.supervised.child import Outcome
from compilediag.runs.supervised.run import Program
from compilediag.runs.supervised.run_options import RunOptions, TrialOptions, check_positive
from compilediag.runs.supervised.target import find_repeatable_run, list_changed_files
from compilediag.runs.trials.trial import (
    FOLDER,
    Trial,
    choose_campaign_folder,
    describe_failure,
    run_first_trial,
)
from compilediag.runs.work_progress import WorkProgress
from compilediag.views.fix import render_candidates, render_fixes
from compilediag_harness.base import atomic_write
from compilediag_harness.wire import SourceChange


@dataclass(frozen=True, slots=True)
class FixOptions(TrialOptions):
    """The findings to fix."""

    target: tuple[str, ...] = argument(
        default=(), nargs=-1, type=click.UNPROCESSED, metavar="[N | TARGET [ARGS]...]"
    )
    steps: int | None = option(
        "--steps N",
        "Stop each run cleanly after this many steps.",
        type=click.IntRange(min=1),
        toml=int,
        check=check_positive,
    )
    timeout_s: float | None = option(
        "--timeout S",
        "End each run after S seconds.",
        type=click.FloatRange(min=0, min_open=True),
        toml=(int, float),
        check=check_positive,
    )
    dry_run: bool = flag(
        "--dry-run", "List what would be tried for the latest run, and run nothing."
    )
    quiet: bool = flag("-q --quiet", "Show no progress.")
    as_json: bool = flag("--json", "Print everything that was tried as JSON.")


class FixCommand(TargetCommand):
    """The command whose argument is a finding's number, or TARGET with its own arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if _get_finding_word(args[:1]):  # options may follow it
            args = [*args[1:], args[0]]
        return super().parse_args(ctx, args)


@subcommand(
    "fix",
    FixOptions,
    examples="""\
  compilediag fix train.py --lr 3e-4    run it, try changes for each finding, prove them
  compilediag fix                       the same for the latest run
  compilediag fix 2                     finding 2 of the latest run only (or its key)
  compilediag fix --dry-run             list what would be tried
  compilediag fix --apply               make the proved edits in your files
  compilediag fix --patch fix.patch     write the proved edits as a diff, for `git apply`
  compilediag fix --steps 20 --budget 10m train.py    short runs; none starts after 10 minutes
  compilediag fix --yes --env fix.sh train.py         for a script: no question, lines to a file
""",
    cls=FixCommand,
    table=lambda given: read_pyproject_defaults("fix"),
)
def command(options: FixOptions) -> int:
    """Try changes for the findings of a run, and prove those that work.

    Changes are searched in short runs that compile with the backend "eager". Those that remove
    their finding are certified together, as `compilediag certify` does, in one run of the whole
    program with its own backend. None of your files is changed without --apply. The exit code is 0
    if every finding of at least `warning` has a proved change, and 3 if one has none.
    """
    word = _get_finding_word(options.target)
    shared = {key: getattr(options, key) for key in collect_options(FixOptions) if key != "dry_run"}
    run_options = RunOptions(**shared)
    require_possible(run_options)
    if options.target and word is None:
        if options.dry_run:
            raise UsageError("--dry-run uses the latest run: do not name a program")
        _confirm(run_options, options.target)
        outcome, trial = _run_first(run_options)
        for note in outcome.notes:
            write_message(note)
        return fix_run(run_options, outcome, trial)
    path, receipt = find_repeatable_run("compilediag fix train.py")
    findings = receipt.findings
    if word is not None:
        findings = (find_finding(word, receipt, path),)
    edits_first = options.apply or options.patch is not None
    listed = list_candidates(receipt, findings, edits_first=edits_first)
    if options.dry_run:
        rows = [(finding, listed[finding.id]) for finding in findings]
        if run_options.as_json:
            write(format_json(build_plan(receipt, rows)))
            return EXIT_OK
        write(render_candidates(receipt, rows, get_render_options()) if rows else "no findings\n")
        return EXIT_OK
    if changed := list_changed_files(receipt):
        what = "has changed since the latest run" if os.path.exists(changed[0]) else "is gone"
        raise UsageError(
            f"{changed[0]} {what}, so the findings of the latest run may not be those of the "
            "program: name it, `compilediag fix train.py`"
        )
    words = receipt.header.run.argv_redacted
    if word is None and edits_first:
        digests = receipt.header.provenance.source_sha256
        proved = read_together(path, listed)
        if edits := [edit for change in proved for edit in change.edits]:
            _write_edits(run_options, make_changes(edits, digests), words)
            write(f"  next: compilediag {choose_next(receipt, proved, applied=options.apply)}\n")
            return EXIT_OK
    if options.apply and not options.force:
        require_committed(list_editable_files(listed))
    if any(changes.possible for changes in listed.values()):
        _confirm(run_options, words)
        if find_recorded_run(words) is None:  # which the certificate needs, as does one of an edit
            run_options = replace(run_options, target=words)
            outcome, trial = _run_first(run_options)
            return fix_run(run_options, outcome, trial, findings[0].key if word else None)
    return _fix(run_options, receipt, path, findings, words)


def require_possible(options: RunOptions) -> None:
    """Require that what is proved can be written, before anything runs.

    Raises:
        UsageError: what is proved could not be written.
    """
    for name, path in (("--env", options.env), ("--patch", options.patch)):
        if path is None:
            continue
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path) or not os.path.isdir(folder):
            raise UsageError(f"{name} {path} names no file in an existing folder")


def _get_finding_word(words: Sequence[str]) -> str | None:
    """Get the number or key of a finding, where the only word is one and no file."""
    named = len(words) == 1 and names_finding(words[0]) and not os.path.exists(words[0])
    return words[0] if named else None


def _run_first(options: RunOptions) -> tuple[Outcome, Trial]:
    first = "run 0: the program as it is"
    make_announcer(quiet=options.quiet)(f"{first}; its output goes to a file")
    with WorkProgress(stage=first, silent=options.quiet):
        return run_first_trial(
            lambda own, caches: record_run(options.target, own, caches), options, FOLDER
        )


def fix_run(options: RunOptions, outcome: Outcome, trial: Trial, key: str | None = None) -> int:
    """Try changes for the findings of a run that was made as a trial; return the exit code.

    Args:
        options: how long to try, and what becomes of what is proved.
        outcome: how the run ended.
        trial: the same run, as the certificates need it.
        key: that of one finding; None: all of them.
    """
    if outcome.receipt is None or outcome.receipt_path is None:
        return outcome.exit_code or 1
    if trial.interrupted:
        write_message("interrupted in the first run: nothing was tried")
        return EXIT_INTERRUPTED
    if outcome.exit_code:
        write_message(f"the program does not run: {describe_failure(trial)}")
        return outcome.exit_code
    receipt, path = outcome.receipt, outcome.receipt_path
    findings = receipt.findings if key is None else (find_finding(key, receipt, path),)
    return _fix(options, receipt, path, findings, options.target)


def _confirm(options: RunOptions, words: tuple[str, ...]) -> None:
    how_often = "at least twice, and for a short time once for each change"
    confirm_reruns("fix", words, how_often, options)


def _fix(
    options: RunOptions,
    receipt: Receipt,
    path: str,
    findings: tuple[FindingRecord, ...],
    words: Sequence[str],
) -> int:
    folder = choose_campaign_folder(os.path.dirname(os.path.abspath(path)))
    limits = RunOptions(
        name=receipt.header.configuration.name,
        steps=options.steps,
        timeout_s=options.timeout_s,
        grace_s=options.grace_s,
    )
    campaign = make_campaign(
        receipt,
        [finding for finding in findings if finding.severity != "info"],
        Program(tuple(words), limits, dict(os.environ), folder),
        make_announcer(quiet=options.quiet),
        quiet=options.quiet,
        budget_s=options.budget_s,
        edits_first=options.apply or options.patch is not None,
    )
    if options.apply and not options.force:
        require_committed(list_editable_files(campaign.listed))
    results = run_campaign(campaign)
    try:
        where = os.path.relpath(save_results(campaign, results, path))
        campaign.notes.append(f"everything that was tried: {where}")
    except OutputUnwritable as error:
        write_message(str(error))
    lines = format_env(campaign)
    if options.env is not None:
        _write_file("--env", options.env, "".join(f"{line}\n" for line in lines))
    if options.as_json:
        write(format_json(build_fix_json(campaign, results)))
    else:
        together, screen = campaign.together, get_render_options()
        applied = options.apply and bool(together)
        following = (format_certify(receipt), choose_next(receipt, together, applied=applied))
        write(render_fixes(receipt, results, lines, together, campaign.notes, following, screen))
    _write_edits(options, campaign.make_edited_files(campaign.together), words)
    if campaign.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_OK if all(result.proof is not None for result in results) else EXIT_GATE


def _write_edits(
    options: RunOptions, changes: tuple[SourceChange, ...], words: Sequence[str]
) -> None:
    """Write the edits that are proved together for a command line."""
    if not options.apply and options.patch is None:
        return
    if not changes:
        write_message("no edit is proved; nothing was written")
        return
    if options.patch is not None:
        _write_file("--patch", options.patch, format_patch(changes))
    if options.apply:
        write_message(f"edited: {', '.join(apply(changes, force=options.force))}")
        recorded = find_recorded_run(words)
        if recorded is not None:
            texts = {change.file: change.text.encode() for change in changes}
            keep_proved(recorded, {n: hashlib.sha256(t).hexdigest() for n, t in texts.items()})


def _write_file(name: str, path: str, content: str) -> None:
    try:
        atomic_write.write(path, [content.encode()])
    except OSError as error:
        write_message(f"{name} {path} cannot be written: {error.strerror or error}")
