"""The executions of a campaign, in their order: the program as it is, its changes, and the
certificate of those that were found.

The search runs the program with the backend "eager", which compiles nothing and recompiles for the
same guards, for as many steps as the findings need. What does not appear there is searched with the
program's own backend. Each change is tried on top of those that were found before it: one that is
wrong is seen at once, and what another cause hides comes to light. What is known stays known when
the campaign is stopped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compilediag.errors import CompilediagError
from compilediag.fixes.proof_types import FindingResult, count_finding
from compilediag.rules.changes import EditImpossible, ProgramChange, locate_functions
from compilediag.rules.make_finding import format_count
from compilediag.runs.certify.execute import protect_files
from compilediag.runs.fix.arm import Arm
from compilediag.runs.fix.campaign import Campaign
from compilediag.runs.trials.trial import Stop


MAX_RETRIED = 2
"""Changes of a finding that are tried once more when others were found."""


def run_campaign(campaign: Campaign) -> tuple[FindingResult, ...]:
    """Make the runs, and write what becomes of them into the campaign; an exception of ours or
    Ctrl-C ends them and loses nothing."""
    try:
        if any(changes.possible for changes in campaign.listed.values()):
            with protect_files(campaign.whole.pair.program.folder) as files:
                _search_and_certify(campaign)
            if files.changed:
                names = ", ".join(files.changed[:3])
                campaign.notes.append(f"the program wrote {names} past the redirection")
    except Stop as why:
        _note_end(campaign, str(why))
    except KeyboardInterrupt:
        campaign.interrupted = True
        made = campaign.trials.runs
        _note_end(campaign, f"interrupted in run {made}: what was not tried by then is left out")
    except CompilediagError as error:
        _note_end(campaign, f"no more runs: {error}")
    return tuple(
        FindingResult(item, tuple(campaign.tried.get(item.id, {}).values()), listed)
        for item, listed in zip(campaign.wanted, campaign.listed.values(), strict=True)
    )


def _note_end(campaign: Campaign, why: str) -> None:
    campaign.notes.append(why)
    campaign.stopped = True


def _search_and_certify(campaign: Campaign) -> None:
    _begin_search(campaign)
    for item in campaign.wanted:
        _try_changes(campaign, item.id, campaign.listed[item.id].possible)
    # What another cause hid may be seen now that this is gone.
    left = [item.id for item in campaign.wanted if item.id not in campaign.chosen]
    for finding in left if campaign.chosen else ():
        _try_changes(campaign, finding, campaign.list_worth_retrying(finding)[:MAX_RETRIED])
    if campaign.chosen:
        _certify(campaign, campaign.list_chosen())


def _begin_search(campaign: Campaign) -> None:
    """Execute the program as it is in the short way, and say how long the rest may take."""
    short, count = campaign.short, sum(bool(x.possible) for x in campaign.listed.values())
    if short is None:
        return
    campaign.require_budget(short)
    before = short.execute_unchanged("the program as it is, with the backend eager")
    old, now = (receipt.environment.torch for receipt in (campaign.receipt, before.receipt))
    if old != now:
        raise Stop(
            f"the findings are of a run with torch {old}, and the program has {now} now: name the "
            "program, `compilediag fix train.py`"
        )
    functions = [called.function for called in before.timeline.invocations]
    for key, changes in campaign.listed.items():
        located = tuple(locate_functions(change, functions) for change in changes.possible)
        campaign.listed[key] = changes._replace(possible=located)
    if before.problem is not None:
        campaign.notes.append(f"with the backend eager it does not end well: {before.problem}")
        campaign.short = None
        return
    own = sum(_find_arm(campaign, item.id) is campaign.whole for item in campaign.wanted)
    whole_s = campaign.whole.run_s
    campaign.trials.announce(
        f"{format_count(count, 'finding')} with changes to try: about {count - own} short runs of "
        f"{short.run_s:.0f} s and {1 + own} of {whole_s:.0f} s, "
        f"{(count - own) * short.run_s + (1 + own) * whole_s:.0f} s in all if the first change of "
        "each works"
    )


def _find_arm(campaign: Campaign, finding: str) -> Arm:
    """Find where a finding shows: in short runs if possible."""
    short = campaign.short
    if short is None or short.before is None:
        return campaign.whole
    shows = count_finding(campaign.get_identity(finding), short.before.receipt)
    return short if shows else campaign.whole


def _try_changes(campaign: Campaign, finding: str, candidates: Sequence[ProgramChange]) -> None:
    """Try changes for a finding, on top of what was found, until one removes it and harms nothing
    else; first what was found for other findings."""
    arm, failed = _find_arm(campaign, finding), set[object]()
    base = arm.attempts.get(frozenset(campaign.list_chosen()))
    for change in reversed(campaign.list_chosen()):
        if base is None:
            break
        certificate = campaign.record(finding, change, base)
        if certificate.verdict != "refused":
            campaign.chosen[finding] = change
            return
        del campaign.tried[finding][change]
    for change in candidates:
        place = change.kind, change.padded and change.padded[0].function, change.edits[:1]
        if place in failed and (change.padded or change.edits):
            continue  # others of the kind failed there
        changes = (*campaign.list_chosen(), change)
        try:
            attempt = campaign.attempt(arm, changes, change.line)
        except EditImpossible as error:
            campaign.notes.append(f"{change.line} was not tried beside the others: {error}")
            continue
        if campaign.record(finding, change, attempt, base).verdict != "refused" and attempt.after:
            campaign.chosen[finding] = change
            return
        if attempt.after is None or attempt.after.problem is not None:
            failed.add(place)


def _certify(campaign: Campaign, changes: tuple[ProgramChange, ...]) -> None:
    """Certify the program with changes, by its own backend and in its whole length; where they are
    not proved together, in halves."""
    attempt = campaign.attempt(campaign.whole, changes, "all that was found, for the certificate")
    for finding, change in campaign.chosen.items():
        if change in changes:
            campaign.record(finding, change, attempt)
    verdict, reason = attempt.certificate.verdict, attempt.certificate.reason
    if verdict == "proved":
        if len(changes) > len(campaign.together):
            campaign.together = changes
    elif len(changes) > 1:
        count = format_count(len(changes), "change")
        campaign.notes.append(f"{count} together: {verdict}: {reason}")
        half = math.ceil(len(changes) / 2)
        _certify(campaign, changes[:half])
        _certify(campaign, changes[half:])
