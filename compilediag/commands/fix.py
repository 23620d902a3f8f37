"""`compilediag fix`: tries changes for the findings of a run, and proves those that work."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass

import click

from compilediag.commands.options import TargetCommand
from compilediag.commands.subcommand import argument, flag, option, subcommand
from compilediag.commands.terminal import (
    is_terminal,
    render_options,
    write,
    write_json,
    write_message,
    write_stderr,
)
from compilediag.errors import EXIT_GATE, EXIT_OK, OutputUnwritable, UsageError
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.supervised.options import Options
from compilediag.runs.supervised.repeat import changed_files, newest
from compilediag.runs.trials.campaign import (
    ROUNDS,
    Campaign,
    Result,
    Tried,
    candidates_by_finding,
    edited_files,
    run_campaign,
)
from compilediag.runs.trials.first_run import campaign_folder, first_run
from compilediag.runs.trials.one import Program, Trial
from compilediag.runs.trials.results import as_json, environment_lines, save
from compilediag.runs.trials.sources import apply, as_patch, is_available
from compilediag.views.fix import FindingFixes, Outcome, render_candidates, render_fixes
from compilediag.views.text import clean
from compilediag_harness.base import atomic_write

EXIT_INTERRUPTED = 130

_NUMBER = re.compile(r"F?(\d{1,6})\Z", re.IGNORECASE)
_BUDGET = re.compile(r"(\d+(?:\.\d+)?)([smh]?)\Z")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def _budget(key: str, value: str) -> float:
    found = _BUDGET.match(str(value))
    if found is None or not float(found[1]):
        raise UsageError(f"--budget must be a time such as 90s, 10m or 1h, not {value!r}")
    return float(found[1]) * _SECONDS[found[2]]


@dataclass(frozen=True, slots=True)
class FixOptions:
    """What to fix, and how long to try."""

    target: tuple[str, ...] = argument(
        default=(), nargs=-1, type=click.UNPROCESSED, metavar="[N | TARGET [ARGS]...]"
    )
    steps: int | None = option(
        "--steps", "Stop each run cleanly after this many steps.", type=click.IntRange(min=1)
    )
    budget_s: float | None = option(
        "--budget TIME", "Start no run beyond it: 90s, 10m, 1h.", check=_budget
    )
    timeout_s: float | None = option(
        "--timeout S", "End each run after S seconds.", type=click.FloatRange(min=0, min_open=True)
    )
    rounds: int = option(
        "--rounds R",
        "Run all that works R times together.",
        default=ROUNDS,
        type=click.IntRange(min=1),
    )
    dry_run: bool = flag("--dry-run", "List what would be tried for the latest run; run nothing.")
    env: str | None = option("--env FILE", "Write the proved `export` lines to a file.")
    patch: str | None = option("--patch FILE", "Write the proved edits to a file, for `git apply`.")
    apply: bool = flag("--apply", "Make the proved edits in the program's files.")
    force: bool = flag("--force", "With --apply: also in files that git does not have as they are.")
    as_json: bool = flag("--json", "Print everything that was tried as JSON.")
    yes: bool = flag("--yes", "Do not ask before the program is run again and again.")


class FixCommand(TargetCommand):
    """The command whose argument is a finding's number, or TARGET with its own arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and _number((args[0],)) is not None:  # options may follow a finding's number
            args = [*args[1:], args[0]]
        rest = super().parse_args(ctx, args)
        ctx.params.pop("cadence_probe", None)
        return rest


@subcommand(
    "fix",
    FixOptions,
    examples="""\
  compilediag fix train.py --lr 3e-4    run it, try changes for each finding, prove them
  compilediag fix                       the same for the latest run
  compilediag fix 2                     finding 2 of the latest run only
  compilediag fix --dry-run             what would be tried
  compilediag fix --apply               proved edits are made in your files
  compilediag fix --yes --env fix.sh    for a script: no question; the lines in a file
""",
    cls=FixCommand,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def command(options: FixOptions) -> int:
    """Try changes for the findings of a run, and prove those that work.

    Each change is tried in a run of its own: the same command line and seed, with empty caches. It
    is proved where the finding is gone, nothing else is worse, as much is compiled, and the program
    computes the same, in two runs. No file of yours is changed without --apply. The exit code is 0
    where every finding of at least `warning` has a proved change, 3 where one has none.
    """
    number = _number(options.target)
    if (options.patch or options.apply) and not is_available():
        raise UsageError("edits need libcst: pip install 'compilediag[fix]'")
    for name, path in (("--env", options.env), ("--patch", options.patch)):
        if path is not None:
            _require_writable(name, path)
    if options.target and number is None:
        if options.dry_run:
            raise UsageError("--dry-run is about the latest run: leave the program out of it")
        return _fix_target(options)
    return _fix_latest(options, number)


def _number(words: tuple[str, ...]) -> int | None:
    found = _NUMBER.match(words[0]) if len(words) == 1 else None
    return int(found[1]) if found is not None and not os.path.exists(words[0]) else None


def _require_writable(name: str, path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder):
        raise UsageError(f"{name} {path} names no file in a folder that is there")


def _fix_target(options: FixOptions) -> int:
    _confirm(options, options.target)
    _announce("run 0: the program as it is; its output goes to a file")
    run_options = Options(steps=options.steps, timeout_s=options.timeout_s)
    outcome, trial = first_run(options.target, run_options, os.environ)
    for note in outcome.notes:
        write_message(note)
    if outcome.receipt is None or outcome.receipt_path is None:
        return outcome.exit_code or 1
    if outcome.exit_code:
        write_message(f"the program does not run: {trial.problem}; its output: {trial.output}")
        return outcome.exit_code
    return _fix(
        options, outcome.receipt, outcome.receipt_path, outcome.receipt.findings, trial, run_options
    )


def _fix_latest(options: FixOptions, number: int | None) -> int:
    path, receipt = newest("compilediag fix train.py")
    findings = receipt.findings
    if number is not None:
        if not 1 <= number <= len(findings):
            known = f"findings 1 to {len(findings)}" if findings else "no findings"
            raise UsageError(f"{path} has {known}, and no {number}")
        findings = findings[number - 1 : number]
    if options.dry_run:
        listed = candidates_by_finding(receipt, findings)
        rows = [(int(each.id[1:]), each, listed[each.id]) for each in findings]
        write(render_candidates(receipt, rows, render_options()) if rows else "no findings\n")
        return EXIT_OK
    if changed := changed_files(receipt):
        raise UsageError(
            f"{changed[0]} has changed since the latest run, so its findings may be others: "
            "name the program, `compilediag fix train.py`"
        )
    words = receipt.header.run.argv_redacted
    if any(candidates_by_finding(receipt, findings).values()):
        _confirm(options, words)
    run_options = Options(steps=options.steps, timeout_s=options.timeout_s)
    return _fix(options, receipt, path, findings, None, run_options)


def _confirm(options: FixOptions, words: tuple[str, ...]) -> None:
    """A rerun repeats side effects."""
    if options.yes:
        return
    what = (
        f"runs {clean(shlex.join(words), limit=200)} at least three times, once more for each "
        "change; what it writes or sends, it writes or sends each time"
    )
    if not is_terminal(sys.stdin) or not is_terminal(sys.stderr):
        raise UsageError(f"fix {what}: say --yes where nobody can be asked")
    write_message(f"fix {what}.")
    if not click.confirm("go on?", default=False, err=True):
        raise UsageError("nothing was run")


def _announce(text: str) -> None:
    write_stderr(f"compilediag: {clean(text, limit=300)}\n")


def _fix(
    options: FixOptions,
    receipt: Receipt,
    path: str,
    findings: tuple[FindingRecord, ...],
    baseline: Trial | None,
    run_options: Options,
) -> int:
    folder = campaign_folder(os.path.dirname(os.path.abspath(path)))
    words = options.target if baseline is not None else receipt.header.run.argv_redacted
    program = Program(tuple(words), run_options, os.environ, folder)
    wanted = tuple(each for each in findings if each.severity != "info")
    edits_first = options.apply or options.patch is not None
    campaign = Campaign(
        program, receipt, wanted, _announce, options.budget_s, edits_first, options.rounds
    )
    results = run_campaign(campaign, baseline)
    try:
        campaign.notes.append(f"everything that was tried: {save(campaign, results, path)}")
    except OutputUnwritable as error:
        write_message(str(error))
    _report(options, campaign, results)
    _edit(options, campaign)
    if any("interrupted" in note for note in campaign.notes):
        return EXIT_INTERRUPTED
    return EXIT_OK if all(item.proof is not None for item in results) else EXIT_GATE


def _edit(options: FixOptions, campaign: Campaign) -> None:
    """Writes the edits that are proved together."""
    if not options.apply and options.patch is None:
        return
    changes = edited_files(campaign, campaign.together)
    if not changes:
        alone = [int(key[1:]) for key, change in campaign.proved.items() if change.edits]
        which = f"fix {alone[0]} makes that of finding {alone[0]}" if alone else ""
        why = (
            f"the edits are proved alone and not together: {which}"
            if alone
            else "no edit is proved"
        )
        write_message(f"{why}; nothing was written")
        return
    if options.patch is not None:
        _write("--patch", options.patch, as_patch(changes))
    if options.apply:
        write_message(f"edited: {', '.join(apply(changes, force=options.force))}")


def _write(name: str, path: str, content: str) -> None:
    try:
        atomic_write.write(path, [content.encode()])
    except OSError as error:
        write_message(f"{name} {path} cannot be written: {error.strerror or error}")


def _outcome(tried: Tried) -> Outcome:
    return Outcome(tried.change, tried.certificate, tried.proved, tried.risk)


def _report(options: FixOptions, campaign: Campaign, results: tuple[Result, ...]) -> None:
    lines = environment_lines(campaign)
    if options.env is not None:
        _write("--env", options.env, "".join(f"{line}\n" for line in lines))
    if options.as_json:
        write_json(as_json(campaign, results))
        return
    fixes = [
        FindingFixes(
            int(item.finding.id[1:]),
            item.finding,
            [_outcome(each) for each in item.tried],
            item.candidates,
        )
        for item in results
    ]
    edits = [change.line for change in campaign.together if change.needs_edit]
    together = [*lines, *edits]
    write(render_fixes(campaign.receipt, fixes, together, campaign.notes, render_options()))
