"""A campaign: the findings that changes are tried for, the executions of the program that are made
for it, and what becomes of each change.

The search runs the program with the backend "eager", which compiles nothing and recompiles for the
same guards, for as many steps as the findings need. What does not appear there is searched with the
program's own backend. Each change is tried on top of those that were found before it: one that is
wrong is seen at once, and what another cause hides comes to light. What was found is certified as
one. What is known stays known when the campaign is stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from compilediag.certify.points import Certificate, ExecutedState, JudgedPoint
from compilediag.certify.totals import find_growth
from compilediag.errors import CompilediagError
from compilediag.fixes.certificate import check_finding, check_padding
from compilediag.fixes.proof_types import (
    FindingIdentity,
    FindingResult,
    ListedChanges,
    TriedChange,
    count_finding,
    identify_finding,
)
from compilediag.receipt.schema.compiles import FindingRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.rules.candidates import list_changes
from compilediag.rules.changes import (
    EditImpossible,
    ProgramChange,
    group_by_file,
    is_said_in,
    locate_functions,
)
from compilediag.rules.make_finding import format_count, shorten
from compilediag.runs.certify.execute import Pair, get_wall_s, protect_files
from compilediag.runs.certify.options import CertifyOptions
from compilediag.runs.certify.recorded import find_recorded_run, load_state
from compilediag.runs.certify.states import read_recorded_sources, read_tree
from compilediag.runs.fix.executions import Attempt, Executions, make_unchanged_states
from compilediag.runs.fix.sources import list_possible, make_changes
from compilediag.runs.supervised.run import Program
from compilediag.runs.trials.trial import Stop, Trials
from compilediag_harness.wire import SourceChange

STEPS_AFTER = 2
"""Steps that a short run makes after the last that a finding needs: it has to stay away."""

MOST_OF_RUN = 0.7
"""A short run is not cut where it would be longer than this share of the whole."""

MAX_WHOLE, MIN_S = 1.7, 45.0
"""What follows the first run takes at most so many times its seconds, its calls with other inputs
among them, or so many seconds beside one certificate, unless a budget is given."""

MAX_PARTS = 3.0
"""The same, where changes that are not proved together are certified in halves."""

COUNTED = ("finding", "better")
"""Points of what torch counts, where another change may help."""

MAX_RETRIED = 2
"""Changes of a finding that are tried once more when others were found."""


@dataclass(slots=True, kw_only=True)
class Campaign:
    """A campaign in progress."""

    receipt: Receipt
    """Whose findings they are."""
    wanted: tuple[FindingRecord, ...]
    whole: Executions
    """The program as it is run, of which certificates are made."""
    short: Executions | None
    """The program with the backend "eager", no longer than needed; None where it shows nothing."""
    listed: dict[str, ListedChanges]
    """What there is to try, by the id of the finding, as the next two."""
    tried: dict[str, dict[ProgramChange, TriedChange]] = field(
        default_factory=dict[str, "dict[ProgramChange, TriedChange]"]
    )
    chosen: dict[str, ProgramChange] = field(default_factory=dict[str, ProgramChange])
    """The change that removed a finding in the search."""
    together: tuple[ProgramChange, ...] = ()
    """The changes that are certified as one."""
    budget_s: float | None = None
    started: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list[str])
    """What was not done, and why."""
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    """Changes of a finding for which there was no time, as `has_time` has it."""
    stopped: bool = False
    interrupted: bool = False

    @property
    def trials(self) -> Trials:
        """The executions that were made."""
        return self.whole.pair.trials

    @property
    def go_on(self) -> str:
        """The option that lets it go on, for the end of a sentence."""
        return f"; {'--budget 1h' if self.budget_s is None else 'a longer --budget'} goes on"

    def get_identity(self, finding: str) -> FindingIdentity:
        """Get what a finding is known by in other runs."""
        of_id = {item.id: item for item in self.wanted}
        return identify_finding(of_id[finding], self.receipt)

    def list_chosen(self) -> tuple[ProgramChange, ...]:
        """List the changes that were found, each once."""
        return tuple(dict.fromkeys(self.chosen.values()))

    def list_first(self, *, advised: bool = False) -> dict[str, ProgramChange]:
        """List the first change of each finding that has none yet, by its id; `advised`: where a
        recipe says it."""
        recipes = {item.id: item.fix.recipe and item.fix.summary for item in self.wanted}
        return {
            key: changes.possible[0]
            for key, changes in self.listed.items()
            if changes.possible and not {key} & (self.chosen.keys() | self.tried.keys())
            if not advised or is_said_in(changes.possible[0], recipes[key] or "")
        }

    def list_untried(self, finding: str) -> list[ProgramChange]:
        """List the changes that were not tried for a finding; none where one was found."""
        known = self.tried.get(finding, {})
        possible = () if finding in self.chosen else self.listed[finding].possible
        return [change for change in possible if change not in known]

    def list_worth_retrying(self, finding: str) -> list[ProgramChange]:
        """List a finding's changes that failed only in counts: what hides it may be gone now."""
        return [
            change
            for change, tried in self.tried.get(finding, {}).items()
            if all(x.outcome != "fails" or x.name in COUNTED for x in tried.certificate.points)
        ]

    def find_least(self, finding: str) -> ProgramChange | None:
        """Find the change that left the least of a finding, at most half of it, where nothing else
        is against the change; None where one removed it."""
        found: dict[float, ProgramChange] = {}
        for tried in self.tried.get(finding, {}).values() if finding not in self.chosen else ():
            own, *others = tried.certificate.points
            if own.name != "finding" or any(point.outcome == "fails" for point in others):
                continue
            before, left = own.figures[0].before or 0.0, own.figures[0].after or 0.0
            if 0.0 < left <= before / 2:
                found.setdefault(left, replace(tried.change, left=int(before / 2)))
        return found[min(found)] if found else None

    def is_refused(self, change: ProgramChange) -> bool:
        """True where the whole program with a change, alone, is refused."""
        attempt = self.whole.attempts.get(frozenset((change,)))
        return attempt is not None and attempt.certificate.verdict == "refused"

    def make_edited_files(self, changes: Iterable[ProgramChange]) -> tuple[SourceChange, ...]:
        """Make the files of the program as the changes edit them; nothing is written.

        Raises:
            EditImpossible: a file is not what ran any more, or two edits are of one place.
        """
        digests = self.receipt.header.provenance.source_sha256
        return make_changes((edit for change in changes for edit in change.edits), digests)

    def attempt(self, of: Executions, changes: Sequence[ProgramChange], what: str) -> Attempt:
        """Execute the program with these changes, or return what came of it before.

        Raises:
            Stop: there is no budget for it.
            EditImpossible: they cannot be made together.
        """
        known = of.attempts.get(frozenset(changes))
        if known is not None:
            return known
        edits = self.make_edited_files(changes)
        self.require_budget(of)
        return of.attempt(changes, edits, shorten(what, 100), self._is_promising)

    def _is_promising(self, before: Receipt, after: Receipt) -> bool:
        """True where a finding that is wanted has become less."""
        identities = (self.get_identity(item.id) for item in self.wanted)
        return any(count_finding(its, after) < count_finding(its, before) for its in identities)

    def require_budget(self, of: Executions) -> None:
        """Require time for another execution.

        Raises:
            Stop: there is none.
        """
        spent = time.monotonic() - self.started
        if self.budget_s is not None and spent + of.run_s > self.budget_s:
            raise Stop(
                f"the budget of {self.budget_s:g} s has no room for another run, which takes about "
                f"{of.run_s:.0f} s: not every change was tried"
            )

    def has_time(self, of: Executions) -> bool:
        """True where the search may go on by another execution. A certificate comes behind it
        where something was found, by now or before what was found then was refused."""
        certifies = self.chosen or self.whole.attempts or any(map(self.find_least, self.tried))
        return self.has_room(of.run_s + bool(certifies) * self.whole.run_s, MAX_WHOLE)

    def has_room(self, more_s: float, most: float) -> bool:
        """True where so many seconds more keep it within the budget; within `most` times the first
        run where none is given."""
        most_s = max(most * self.whole.run_s, self.whole.run_s + MIN_S)
        needed_s = time.monotonic() - self.started + more_s
        return needed_s <= (most_s if self.budget_s is None else self.budget_s)

    def record(
        self, finding: str, change: ProgramChange, attempt: Attempt, base: Attempt | None = None
    ) -> Certificate:
        """Record what a change did for a finding in an execution, and return its certificate.
        `base`: the same execution without the change."""
        certificate = self._judge_finding(finding, change, attempt, base)
        former = self.tried.setdefault(finding, {}).get(change)
        if former is not None and former.is_final and former.certificate.verdict == "proved":
            failed = {point.name for point in certificate.points if point.outcome == "fails"}
            if failed and failed <= set(COUNTED):  # it needs what it was proved beside
                self.tried[finding][change] = replace(former, runs=1 + former.runs)
                return certificate
        self.tried[finding][change] = TriedChange(
            change,
            certificate,
            is_final=attempt.is_whole,
            runs=1 + (former.runs if former is not None else 0),
            beside=tuple(
                key
                for key, its in self.chosen.items()
                if its in attempt.changes and its != change and key != finding
            ),
        )
        return certificate

    def _judge_finding(
        self, finding: str, change: ProgramChange, attempt: Attempt, base: Attempt | None
    ) -> Certificate:
        before, after = attempt.before, attempt.after
        if before is None or after is None or after.problem != before.problem:
            return attempt.certificate
        identity, points = self.get_identity(finding), list(attempt.certificate.points)
        own = check_finding(identity, before.receipt, after.receipt, change.left)
        if base is not None and base.after is not None:
            grown = find_growth(base.after.receipt, after.receipt)
            if grown is not None:
                points.append(JudgedPoint("beside", "fails", f"something got worse: {grown}"))
        if identity.unit == "findings" and find_growth(before.receipt, after.receipt) is None:
            # Padding, synchronisations: none of torch's totals, of which none need fall then.
            points = [point for point in points if point.name != "better"]
        padding = tuple(check_padding(change.pads, before.timeline, after.timeline))
        if padding and all(point.outcome == "holds" for point in padding):
            # The compiled call gets other sizes with each change: its padding was varied instead.
            points = [
                structs.replace(point, outcome="stated")
                if (point.name, point.outcome) == ("other inputs", "undecided")
                else point
                for point in points
            ]
        return Certificate((own, *padding, *points))


def list_candidates(
    receipt: Receipt, wanted: Sequence[FindingRecord], *, edits_first: bool = False
) -> dict[str, ListedChanges]:
    """List what would be tried for each finding, by its id, and what cannot be. `edits_first`: but
    for other sizes, which come when nothing makes those of the program do."""
    hashes, listed = receipt.header.provenance.source_sha256, dict[str, ListedChanges]()
    for finding in wanted:
        changes = list_changes(finding, receipt)
        if edits_first:
            changes = sorted(changes, key=lambda change: (bool(change.pads), not change.edits))
        listed[finding.id] = list_possible(changes, hashes)
    return listed


def list_editable_files(listed: Mapping[str, ListedChanges]) -> list[str]:
    """List the files that candidates edit, by path."""
    possible = [change for changes in listed.values() for change in changes.possible]
    edits = [edit for change in possible for edit in change.edits]
    return list(group_by_file(edits))


def make_campaign(
    receipt: Receipt,
    wanted: Sequence[FindingRecord],
    program: Program,
    announce: Callable[[str], None],
    *,
    quiet: bool = False,
    budget_s: float | None = None,
    edits_first: bool = False,
) -> Campaign:
    """Make a campaign for findings of a receipt; nothing is executed. `program`: as the run of the
    receipt had it; `edits_first`: edits are tried before what needs none."""
    listed = list_candidates(receipt, wanted, edits_first=edits_first)
    recorded = find_recorded_run(program.words)
    tree = read_tree(recorded)
    if recorded is not None and read_recorded_sources(recorded, tree) != tree:
        recorded = None
    states = make_unchanged_states(tree)
    options = CertifyOptions(quiet=quiet, timeout_s=program.options.timeout_s)
    trials = Trials(program, announce, quiet=quiet)
    pair = Pair(states, options, trials, program, states.change)
    steps = choose_steps(receipt, wanted) or program.options.steps
    cut = replace(program, options=replace(program.options, steps=steps))
    short = replace(pair, program=cut, backend="eager", options=replace(options, no_vary=True))
    return Campaign(
        receipt=receipt,
        wanted=tuple(wanted),
        whole=Executions(pair=pair, recorded=recorded, run_s=get_wall_s(receipt)),
        short=Executions(pair=short),
        listed=listed,
        budget_s=budget_s,
    )


def choose_steps(receipt: Receipt, wanted: Iterable[FindingRecord]) -> int | None:
    """Choose after how many steps a short run ends: a little after the last one in which a finding
    compiles something; None where the whole program is needed, or nearly."""
    ids = {finding.id for finding in wanted}
    breaks = any(site.finding in ids for site in receipt.compile.breaks)
    steps = [
        event.step
        for event in receipt.compile.events
        if (breaks and event.kind == "first") or any(its.finding in ids for its in event.causes)
    ]
    known = [step for step in steps if step is not None]
    count = receipt.steps.count if receipt.steps is not None else 0
    last = max(known, default=0) + 1 + STEPS_AFTER
    return last if known and len(known) == len(steps) and last <= MOST_OF_RUN * count else None


# --- the executions, in their order --------------------------------------------------------------


def run_campaign(campaign: Campaign) -> tuple[FindingResult, ...]:
    """Make the runs, and write what becomes of them into the campaign; an exception of ours or
    Ctrl-C ends them and loses nothing."""
    try:
        if any(changes.possible for changes in campaign.listed.values()):
            with protect_files(campaign.whole.pair.program.folder) as files:
                _search_and_prove(campaign)
                _prove_what_helps(campaign)
            if files.changed:
                _withdraw_proofs(campaign, f"the program wrote {files.changed[0]} past a trial")
    except Stop as why:
        _note_end(campaign, str(why))
    except KeyboardInterrupt:
        campaign.interrupted = True
        made = campaign.trials.runs
        _note_end(campaign, f"interrupted in run {made}: what was not tried by then is left out")
    except CompilediagError as error:
        _note_end(campaign, f"no more runs: {error}")
    left = [
        f"{count} of finding {key[1:]}"
        for key, count in campaign.left_out.items()
        if key not in campaign.chosen or campaign.chosen[key].left
    ]
    if left:
        most = "the time of about four plain runs"
        if campaign.budget_s is not None:
            most = f"{campaign.budget_s:g} s with a certificate"
        campaign.notes.append(f"changes not tried within {most}: {', '.join(left)}{campaign.go_on}")
    return tuple(
        FindingResult(item, tuple(campaign.tried.get(item.id, {}).values()), listed)
        for item, listed in zip(campaign.wanted, campaign.listed.values(), strict=True)
    )


def _note_end(campaign: Campaign, why: str) -> None:
    campaign.notes.append(why)
    campaign.stopped = True


def _withdraw_proofs(campaign: Campaign, why: str) -> None:
    """Leave nothing proved: what an execution wrote the next one may have read."""
    point, campaign.together = JudgedPoint("files", "undecided", why), ()
    for of_finding in campaign.tried.values():
        for change, tried in of_finding.items():
            points = (*tried.certificate.points, point)
            of_finding[change] = replace(tried, certificate=Certificate(points))


def _search_and_prove(campaign: Campaign) -> None:
    if recorded := campaign.whole.recorded:
        _locate_functions(campaign, load_state(recorded, campaign.whole.pair.program.words))
    first = campaign.list_first()
    every = [change for listed in campaign.listed.values() for change in listed.possible]
    # Padding seldom helps: a short run tells. Arguments are located by one, or the recorded run.
    if not any(its.padded or (its.arguments and not recorded) for its in first.values()):
        if len(every) == 1:
            campaign.short = None  # its certificate says at once what a search would
        elif first == campaign.list_first(advised=True):
            _prove_at_once(campaign, first)
    if not any(map(campaign.list_untried, campaign.listed)):
        return
    _begin_search(campaign)
    _try_first_changes(campaign, campaign.list_first(advised=True))
    _try_first_changes(campaign, campaign.list_first())
    wanted = [item.id for item in campaign.wanted]
    while wanted:
        for finding in wanted:
            if finding not in campaign.chosen:
                _try_changes(campaign, finding, campaign.list_untried(finding))
        # What another cause hid may be seen now that this is gone.
        for finding in wanted if campaign.chosen else ():
            if finding not in campaign.chosen:
                _try_changes(campaign, finding, campaign.list_worth_retrying(finding)[:MAX_RETRIED])
        if not {*campaign.list_chosen()} <= {*campaign.together}:
            _prove(campaign, campaign.list_chosen())
        # Of what the whole program refused, others may do.
        refused = [key for key, change in campaign.chosen.items() if campaign.is_refused(change)]
        for key in refused:
            del campaign.chosen[key]
        wanted = [key for key in refused if campaign.list_untried(key)]


def _locate_functions(campaign: Campaign, seen: ExecutedState) -> None:
    functions = [called.function for called in seen.timeline.invocations]
    for key, changes in campaign.listed.items():
        located = tuple(locate_functions(change, functions) for change in changes.possible)
        campaign.listed[key] = changes._replace(possible=located)


def _prove_at_once(campaign: Campaign, first: Mapping[str, ProgramChange]) -> None:
    """Certify the recipes of all findings without a search, which few of them need."""
    campaign.trials.announce(
        f"{format_count(len(first), 'finding')} with a recipe: one run of "
        f"{campaign.whole.run_s:.0f} s if they hold, else a search"
    )
    campaign.chosen |= first
    _make_certificates(campaign, campaign.list_chosen(), "the recipes of all findings")
    for finding, change in first.items():
        if not campaign.tried[finding][change].proved:
            del campaign.chosen[finding]
            if not campaign.together and len({*first.values()}) > 1:
                del campaign.tried[finding]  # another may be why


def _begin_search(campaign: Campaign) -> None:
    """Execute the program as it is in the short way, and say how long the rest may take."""
    short = campaign.short
    if short is None:
        return
    campaign.require_budget(short)
    before = short.execute_unchanged()
    old, now = (receipt.environment.torch for receipt in (campaign.receipt, before.receipt))
    if old != now:
        raise Stop(
            f"the findings are of a run with torch {old}, and the program has {now} now: name the "
            "program, `compilediag fix train.py`"
        )
    _locate_functions(campaign, before)
    if before.problem is not None:
        campaign.notes.append(f"with the backend eager it does not end well: {before.problem}")
        campaign.short = None
        return
    tried = [key for key, changes in campaign.listed.items() if changes.possible]
    own = sum(_find_executions(campaign, finding) is campaign.whole for finding in tried)
    runs, whole_s = min(len(tried) - own, 1), campaign.whole.run_s
    campaign.trials.announce(
        f"{format_count(len(tried), 'finding')} with changes to try: about {runs} more short runs "
        f"of {short.run_s:.0f} s and {1 + own} of {whole_s:.0f} s, "
        f"{runs * short.run_s + (1 + own) * whole_s:.0f} s in all if the first change of each works"
    )


def _try_first_changes(campaign: Campaign, changes: Mapping[str, ProgramChange]) -> None:
    """Try changes of several findings in one short run: of independent causes it shows which are
    removed. Where it fails as a whole, each is tried by itself."""
    of, short = _find_executions, campaign.short
    first = {key: its for key, its in changes.items() if of(campaign, key) is short}
    if short is None or len(first) < 2 or (campaign.tried and not campaign.has_time(short)):
        return
    together = tuple(dict.fromkeys((*campaign.list_chosen(), *first.values())))
    try:
        attempt = campaign.attempt(short, together, "the first changes of all findings")
    except EditImpossible:
        return  # two edits are of one place
    grown = (
        attempt.before
        and attempt.after
        and find_growth(attempt.before.receipt, attempt.after.receipt)
    )
    for finding, change in first.items():
        own, *_ = points = campaign.record(finding, change, attempt).points
        failed = {point.name for point in points if point.outcome == "fails"}
        if not failed and not attempt.is_broken:
            campaign.chosen[finding] = change
        elif attempt.is_broken or own.outcome == "holds" or grown or not failed <= set(COUNTED):
            del campaign.tried[finding][change]  # another may be why


def _find_executions(campaign: Campaign, finding: str) -> Executions:
    """Find where a finding shows: in short runs if possible."""
    short = campaign.short
    if short is None or short.before is None:
        return campaign.whole
    shows = count_finding(campaign.get_identity(finding), short.before.receipt)
    return short if shows else campaign.whole


def _try_changes(campaign: Campaign, finding: str, candidates: Sequence[ProgramChange]) -> None:
    """Try changes for a finding, on top of what was found, until one removes it and harms nothing
    else; first what was found for other findings."""
    of = _find_executions(campaign, finding)
    base = of.attempts.get(frozenset(campaign.list_chosen()))
    for change in reversed(campaign.list_chosen()):
        if base is None:
            break
        certificate = campaign.record(finding, change, base)
        if certificate.verdict != "refused":
            campaign.chosen[finding] = change
            return
        del campaign.tried[finding][change]
    for at, change in enumerate(candidates):
        changes = (*campaign.list_chosen(), change)
        if (broken := of.find_broken(changes)) is not None:
            campaign.record(finding, change, broken)
            continue
        if frozenset(changes) not in of.attempts and not campaign.has_time(of):
            campaign.left_out[finding] = len(candidates) - at
            return
        try:
            attempt = campaign.attempt(of, changes, change.line)
        except EditImpossible as error:
            campaign.notes.append(f"{change.line} was not tried beside the others: {error}")
            continue
        certificate = campaign.record(finding, change, attempt, base)
        if certificate.verdict != "refused" and not attempt.is_broken:
            campaign.chosen[finding] = change
            return


def _make_certificates(
    campaign: Campaign, changes: tuple[ProgramChange, ...], what: str
) -> list[Certificate]:
    """Certify the program with changes, by its own backend and in its whole length; return the
    certificates of the findings that are not proved, the set's own first unless that is."""
    attempt = campaign.attempt(campaign.whole, changes, f"for the certificate: {what}")
    certificates = [
        campaign.record(finding, change, attempt)
        for finding, change in campaign.chosen.items()
        if change in changes
    ]
    failed = [each for each in certificates if each.verdict != "proved"]
    # The set may be proved although a finding is not gone by it.
    is_proved = not failed or attempt.certificate.verdict == "proved"
    proofs = [campaign.tried[key][its] for key, its in campaign.chosen.items() if its in changes]
    useful = tuple(dict.fromkeys(tried.change for tried in proofs if tried.proved))
    if is_proved and useful and len(changes) > len(campaign.together):
        campaign.together = changes
        can_leave = len(useful) < len(changes) and campaign.has_room(
            campaign.whole.run_s, MAX_PARTS
        )
        what = "without the changes that did nothing"
        if can_leave and not _make_certificates(campaign, useful, what):
            campaign.together = useful
            return failed
    if failed and len(changes) > 1:
        count = format_count(len(changes), "change")
        how = "proved, but for a finding" if is_proved else failed[0].verdict
        campaign.notes.append(f"{count} together: {how}: {failed[0].reason}")
    return failed


def _prove(campaign: Campaign, changes: tuple[ProgramChange, ...]) -> None:
    """Certify changes; in halves where they are not proved together."""
    what = "all that was found"
    if len(changes) < len(campaign.list_chosen()):
        what = "of it, " + ", ".join(change.line for change in changes)
    failed = _make_certificates(campaign, changes, what)
    whole = campaign.whole.attempts[frozenset(changes)].certificate
    is_open = bool(failed) and whole.verdict != "proved"
    half = math.ceil(len(changes) / 2)
    for part in (changes[:half], changes[half:]) if is_open and len(changes) > 1 else ():
        if campaign.has_room(campaign.whole.run_s, MAX_PARTS):
            _prove(campaign, part)
        else:
            lines = ", ".join(change.line for change in part)
            campaign.notes.append(f"no time to certify by itself: {lines}{campaign.go_on}")


def _prove_what_helps(campaign: Campaign) -> None:
    """Certify, for findings that nothing removed, the change that left the least of each."""
    least = {key: its for key in campaign.tried if (its := campaign.find_least(key)) is not None}
    changes = tuple(dict.fromkeys((*campaign.list_chosen(), *least.values())))
    known = frozenset(changes) in campaign.whole.attempts
    if least and (known or campaign.has_room(campaign.whole.run_s, MAX_WHOLE)):
        campaign.chosen |= least
        _prove(campaign, changes)
    elif least:
        lines = ", ".join(change.line for change in least.values())
        campaign.notes.append(f"no time to certify what leaves less: {lines}{campaign.go_on}")
