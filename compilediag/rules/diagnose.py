"""Diagnosis of a run: runs all rules, merges cause and symptom, orders by cost, gives a verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec.structs import replace

from compilediag import extension_points
from compilediag.diagnosis.causes.cause_group import find_changed_sizes
from compilediag.diagnosis.causes.run_causes import COMBINATION, RunCauses
from compilediag.diagnosis.codes import (
    BLIND,
    LIMIT,
    OUTLOOK,
    RECOMPILES,
    REGISTER,
    SEVERITIES,
    SIZES,
    WRONG,
)
from compilediag.diagnosis.findings import CauseId, Finding, HasCaller, Rule, add_caller, make_place
from compilediag.diagnosis.reconcile import Agreement
from compilediag.receipt.schema.compiles import Need, Place
from compilediag.receipt.schema.evidence import BreakEvidence, GuardEvidence
from compilediag.rules import (
    caches,
    costs,
    cudagraphs,
    evidence,
    fixed_shapes,
    limits,
    objects,
    recompiles,
    steps,
    values,
)
from compilediag.rules.breaks import rule as breaks
from compilediag.rules.candidates import add_candidates
from compilediag.rules.make_finding import format_place, replace_advice
from compilediag.rules.rule import (
    Absorption,
    Analysis,
    AnalysisRule,
    analyze_timeline,
    list_compile_ids,
    merge_symptoms,
)
from compilediag.rules.sizes import advice as sizes
from compilediag.rules.sizes import lines as size_lines
from compilediag.timeline.compiles import CompileId, FrameId
from compilediag.timeline.frames import BreakLine
from compilediag.timeline.timeline import Recompile, Timeline
from compilediag_harness.wire import UserCall

Verdict = Literal["clean", "findings", "blind"]

_SMALL_STAYS = "size 0 or 1 has a graph of its own all the same"


def _load_rules(point: str) -> tuple[Rule, ...]:
    """Load the rules of an extension; none where it is missing."""
    if not extension_points.is_installed(point):
        return ()
    return extension_points.load(point, "diagnosis")


RECOMPILE_RULES = sorted(
    (*sizes.RULES, *values.RULES, *objects.RULES),
    key=lambda rule: RECOMPILES.index(rule.code),
)

ALL_RULES: tuple[Rule, ...] = (
    *RECOMPILE_RULES,
    limits.find_combinations,
    objects.find_unguarded_changes,
    objects.find_lost_effects,
    limits.find_armed_guards,
    limits.find_variant_forecasts,
    limits.find_limit_hits,
    values.find_autograd_recaptures,
    size_lines.find_violated_constraints,
    breaks.find_breaks,
    steps.find_sync_loops,
    steps.find_compiles_in_steady_state,
    steps.find_compiles_in_timed_spans,
    costs.find_expensive_guards,
    costs.find_waits_for_compiles,
    fixed_shapes.find_contamination,
    fixed_shapes.find_padding_waste,
    fixed_shapes.find_early_exit_waste,
    fixed_shapes.find_late_compiles,
    *_load_rules(extension_points.KNEE_RULES),
    steps.find_reads_in_model_time,
    *_load_rules(extension_points.PACKING_RULES),
    *_load_rules(extension_points.CADENCE_RULES),
    steps.find_data_bound_steps,
    *_load_rules(extension_points.PIPELINE_RULES),
    cudagraphs.find_skipped_cudagraphs,
    cudagraphs.find_overwritten_outputs,
    cudagraphs.find_rerecordings,
    cudagraphs.find_many_sizes,
    costs.find_repeated_blocks,
    costs.find_restarts,
    costs.find_autotuning,
    costs.find_builds_without_cache,
    caches.find_bypasses,
    caches.find_unwritten,
    caches.find_half_hits,
    evidence.find_nothing_compiled,
    evidence.find_torn_evidence,
    evidence.find_disagreement,
    evidence.find_eager_frames,
    evidence.find_eager_stances,
    evidence.find_stored_profiles,
)
"""In the order of the codes' families."""

_ABSORPTIONS: tuple[Absorption, ...] = (
    *recompiles.ABSORBS,
    *breaks.ABSORBS,
    *evidence.ABSORBS,
    *size_lines.ABSORBS,
)
"""In the order in which they apply: a frame that ran eager absorbs only if no break explains it."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of a run, the most expensive first, and its verdict."""

    findings: tuple[Finding, ...]
    """With ids F1, F2..."""
    verdict: Verdict
    agreement: Agreement
    causes: RunCauses = field(default_factory=RunCauses)
    """Of every recompile."""
    needs: Mapping[CompileId, Need] = field(default_factory=dict[CompileId, Need])
    """Of every recompile that counts."""

    @property
    def finding_ids(self) -> Mapping[CauseId | BreakLine, str]:
        """The id of the finding that explains each cause of a recompile and each graph break."""
        return {what: finding.id for finding in reversed(self.findings) for what in finding.about}


def diagnose(timeline: Timeline, rules: Sequence[Rule] = ALL_RULES) -> Diagnosis:
    """Find what is wrong with a run by all rules, and conclude whether it is clean; "blind" where
    part of what happened was not seen."""
    analysis = analyze_timeline(timeline)
    unmerged = [
        finding
        for rule in rules
        for finding in (rule.find(analysis) if isinstance(rule, AnalysisRule) else rule(timeline))
    ]
    for absorption in _ABSORPTIONS:
        unmerged = merge_symptoms(unmerged, absorption)
    advised = _withdraw_recipes([*add_candidates(unmerged, timeline, analysis.causes)])
    advised = _name_small_sizes(advised)
    # Of steps and seconds that the record of the run does not have, zero would be a claim.
    stepped, measured = timeline.can_observe("steps"), timeline.can_observe("metrics_rows")
    known = [
        replace(
            finding,
            steps=finding.steps if stepped else (),
            cost_s=finding.cost_s if measured else None,
        )
        for finding in _leave_to_breaks(_note_wanted(advised, analysis), analysis)
    ]
    known = list(_add_callers(known, analysis))
    roots = _find_roots(known, analysis)
    known = [*_note_followers(known, roots)]
    costs = [finding.cost_s or 0.0 for finding in known]
    for n, root in roots.items():
        costs[root] += costs[n]
    # What a screen shows one by one has the first numbers, then what follows from it, doubt about
    # the evidence, which the verdict names, what has not happened yet, and notes; else what is
    # wrong, what stays broken, then by seconds, those of what follows included, and severity.
    order = sorted(
        range(len(known)),
        key=lambda n: (
            *(known[n].severity == "info", known[n].rule in OUTLOOK, known[n].rule in BLIND),
            known[n].rule not in WRONG,
            known[n].severity != "error" or known[n].rule in LIMIT,  # after what fills it
            n in roots,
            # What makes its values change comes first, and what has a known cause.
            known[n].rule in (COMBINATION, "CD190"),
            -costs[n],
            SEVERITIES.index(known[n].severity),
        ),
    )
    ids = {n: f"F{number}" for number, n in enumerate(order, start=1)}
    ordered = [replace(known[n], follows=ids.get(roots.get(n, -1))) for n in order]
    caused, cured = _map_causes(ordered), _list_cured(ordered)
    findings = tuple(
        replace(_name_other_causes(number, finding, caused, cured), id=f"F{number}")
        for number, finding in enumerate(ordered, start=1)
    )
    # Blind overrules findings: part of what happened was not seen. Information alone is clean.
    verdict: Verdict = "clean"
    if any(finding.rule in BLIND for finding in findings):
        verdict = "blind"
    elif any(finding.severity != "info" for finding in findings):
        verdict = "findings"
    return Diagnosis(findings, verdict, analysis.agreement, analysis.causes, analysis.final_needs)


def _find_roots(findings: Sequence[Finding], analysis: Analysis) -> dict[int, int]:
    """Find the findings that follow from a graph break, and that of the break, by their indices:
    all they are about is what frames are called with that only the break made, or the limit that
    such a frame hits for no other cause; or what is passed on, where the frame that broke has a
    finding of it too. A break follows from none: its line breaks by itself."""
    causes = analysis.causes
    known = {it: n for n, f in enumerate(findings) if f.severity != "info" for it in f.about}
    recompiled = _RecompilesByCause(analysis)
    passed: dict[Hashable, set[FrameId]] = defaultdict(set)
    for finding in findings:
        if REGISTER[finding.rule].owner == "argument":
            frames = {event.id.frame for event in recompiled.list_of(finding)}
            passed[_identify_passed(finding)] |= frames
    by_cause: dict[CauseId, set[int | None]] = defaultdict(set)
    by_frame: dict[Place | None, set[int | None]] = defaultdict(set)
    for event in analysis.timeline.recompiles:
        own, line = causes.get_causes(event), causes.behind.breaks.get(event.id)
        broken = None if line is None else known.get(line)
        made = {c.id: broken if causes.behind.is_made_inside(c, event) else None for c in own}
        for key, root in made.items():
            by_cause[key].add(root)
        by_frame[make_place(event.frame)].update(made.values() if None not in made.values() else ())
    roots: dict[int, int] = {}
    for n, finding in enumerate(findings):
        about = [by_cause[part] if isinstance(part, CauseId) else {None} for part in finding.about]
        if not about and finding.rule in LIMIT:
            about = [by_frame[finding.location]]
        of_all = set[int | None]().union(*about)
        again, above = recompiled.list_of(finding), passed.get(_identify_passed(finding), set())
        is_left = finding.fix.recipe is None and analysis.find_break(again) is not None
        if is_left and all(
            not above.isdisjoint(broken.frame for broken in causes.behind.list_above(event.id))
            for event in again
        ):
            of_all = {known.get(causes.behind.breaks[event.id]) for event in again}
        if None not in of_all and of_all:
            roots[n] = min(root for root in of_all if root is not None)
    return roots


def _identify_passed(finding: Finding) -> Hashable:
    """Make equal for findings of what may be one argument, passed on: sizes of tensors go on as
    those of others that are computed from them, anything else by its name."""
    return SIZES if finding.rule in SIZES else (finding.rule, finding.variable)


class _RecompilesByCause:
    """The recompiles of each cause of a run, with those of what follows from it."""

    def __init__(self, analysis: Analysis) -> None:
        groups = (group for of_code in analysis.causes.groups.values() for group in of_code)
        self._recompiles = {group.id: group.all_recompiles for group in groups}

    def list_of(self, finding: Finding) -> list[Recompile]:
        """List those of the causes that a finding is about."""
        about = (part for part in finding.about if isinstance(part, CauseId))
        return [event for part in about for event in self._recompiles.get(part, ())]


def _leave_to_breaks(findings: Iterable[Finding], analysis: Analysis) -> Iterator[Finding]:
    """Say of findings about frames that only a break made that torch compiles no such frame without
    it: what it needs then is another question, as where the break causes their recompiles too."""
    recompiled, findings = _RecompilesByCause(analysis), [*findings]
    by_breaks = set[str]().union(*(_list_caused(f) for f in findings if _is_break(f)))
    for finding in findings:
        again = recompiled.list_of(finding)
        broken = analysis.find_break(again)
        has_change = finding.fix.recipe or finding.fix.candidates
        if broken is None or _is_break(finding) or not has_change:
            yield finding
            continue
        place = format_place(broken.file, broken.line)
        if finding.fix.recipe is None or {*list_compile_ids(finding)} <= by_breaks:
            alone = replace(finding, fix=replace(finding.fix, candidates=()))
            yield replace_advice(alone, recompiles.AFTER_BREAK.fill(place=place))
        else:
            said = f"only the graph break at {place} makes this frame one of its own"
            caveat = "; ".join(filter(None, (finding.fix.caveat, said)))
            yield replace(finding, fix=replace(finding.fix, caveat=caveat))


def _note_wanted(findings: Iterable[Finding], analysis: Analysis) -> Iterator[Finding]:
    """Make notes of the findings about variants that the program wants, each compiled once and
    over, where no recipe makes one graph of them."""
    groups = (group for of_code in analysis.causes.groups.values() for group in of_code)
    wanted = {group.id for group in groups if analysis.is_wanted(group)}
    for finding in findings:
        is_note = finding.fix.recipe is None and wanted.intersection(finding.about[:1])
        yield replace(finding, severity="info") if is_note else finding


def _note_followers(findings: Sequence[Finding], roots: Mapping[int, int]) -> Iterator[Finding]:
    """Make notes of the findings that follow from another one, but for what can be mended by itself
    and what is lost for good."""
    for n, finding in enumerate(findings):
        if n not in roots or finding.fix.recipe is not None:
            yield finding
        elif finding.rule in LIMIT and (at := findings[roots[n]].location) is not None:
            place = format_place(at.file, at.line)
            yield replace_advice(finding, recompiles.AFTER_BREAK.fill(place=place))
        else:
            yield replace(finding, severity="info")


def _is_break(finding: Finding) -> bool:
    return finding.rule.startswith(breaks.BREAKS)


def _map_causes(findings: Iterable[Finding]) -> dict[str, set[int]]:
    """Map compiles to the numbers, from 1, of the findings that are their causes."""
    caused: dict[str, set[int]] = defaultdict(set)
    for number, finding in enumerate(findings, start=1):
        for compile_id in _list_caused(finding):
            caused[compile_id].add(number)
    return caused


def _list_caused(finding: Finding) -> set[str]:
    """List the recompiles that a finding is a cause of: of a break those behind it alone, since the
    compiles that broke have causes of their own."""
    if not any(isinstance(part, CauseId) for part in finding.about):
        return set()
    if _is_break(finding):
        return {*BreakEvidence.parse(finding.evidence).recompiles_behind}
    return {*list_compile_ids(finding)}


def _list_cured(findings: Sequence[Finding]) -> set[int]:
    """List the numbers, from 1, of the findings that have a recipe."""
    return {number for number, finding in enumerate(findings, start=1) if finding.fix.recipe}


def _withdraw_recipes(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Make choices of the recipes that prevent no recompile, because each has another cause which
    nothing prevents."""
    caused = _map_causes(findings)
    cured = _list_cured(findings)
    for finding in findings:
        # Without its break no frame is behind it, whatever else compiles that again.
        ids = () if _is_break(finding) else _list_caused(finding)
        if finding.fix.recipe is None or not ids or any(caused[i] <= cured for i in ids):
            yield finding
        else:
            yield replace(finding, fix=replace(finding.fix, recipe=None))


def _name_small_sizes(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Say beside a recipe for sizes that a graph for 0 or 1 stays, where one was among them."""
    for finding in findings:
        known, fix = GuardEvidence.parse(finding.evidence), finding.fix
        small = find_changed_sizes([*known.values, (known.expected, known.actual)])[1]
        stays = _SMALL_STAYS if small and fix.recipe and finding.rule in SIZES else None
        caveat = "; ".join(filter(None, (fix.caveat, stays)))
        yield replace(finding, fix=replace(fix, caveat=caveat or None))


def _name_other_causes(
    number: int, finding: Finding, caused: Mapping[str, Collection[int]], cured: Set[int]
) -> Finding:
    """Name beside a change the findings that are causes of the same recompiles too: it does not
    prevent those alone. `caused`: the numbers of findings by the compiles that they caused;
    `cured`: of those with a recipe."""
    ids, fix = set[str]() if _is_break(finding) else _list_caused(finding), finding.fix
    shared = [others for i in ids if (others := {*caused[i]} - {number})]
    # Padding, which is advised for any size, needs no other cause in some recompile at least.
    is_size = finding.rule in SIZES and finding.severity != "info" and len(shared) == len(ids)
    if not shared or not (fix.recipe or fix.candidates or is_size):
        return finding
    how_many = "the recompile" if len(ids) == 1 else f"{len(shared)} of its {len(ids)} recompiles"
    also = set[int]().union(*shared)
    *most, last = map(str, sorted(also))
    named = f"{', '.join(most)} and {last}" if most else last
    how = f"with {named} it does"
    if not fix.recipe or not also <= cured:
        others = f"findings {named} cause" if most else f"finding {named} causes"
        how = f"{others} {'it' if len(ids) == 1 else 'them'} too"
    said = f"this alone does not prevent {how_many}: {how}"
    caveat = "; ".join(filter(None, (fix.caveat, said)))
    return replace(finding, fix=replace(fix, caveat=caveat))


class _Inside(NamedTuple):
    """A line of the program inside what was compiled: nearer than the call of it."""

    entered_at: UserCall
    entered_from: str = ""


def _add_callers(findings: Iterable[Finding], analysis: Analysis) -> Iterator[Finding]:
    """Add to each finding the call of the program that led to it first. Those of which a rule has
    determined it, or nothing is recorded, stay as they are."""
    timeline = analysis.timeline
    known: dict[CauseId | BreakLine | Place | None, HasCaller] = {}
    # Invariant: the first call counts, so nothing below replaces an entry.
    for recompile in timeline.recompiles:
        for cause in analysis.causes.get_causes(recompile):
            known.setdefault(cause.id, recompile if cause.own is None else _Inside(cause.own))
    for site in timeline.breaks:
        known.setdefault(site.at, site)
    for frame in timeline.frames:
        known.setdefault(make_place(frame.where), frame)
    for skipped in timeline.skipped:
        known.setdefault(make_place(skipped.frame), skipped)
    for finding in findings:
        ways = [known.get(key) for key in (*finding.about, finding.location)]
        recorded = [way for way in ways if way and (way.entered_at or way.entered_from)]
        is_known = finding.entered_at is not None or finding.entered_from or not recorded
        yield finding if is_known else add_caller(finding, recorded[0])
