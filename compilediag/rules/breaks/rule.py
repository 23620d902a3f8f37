"""CD201–CD214, CD290: graph breaks, one finding per place and cause."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass

from compilediag.diagnosis.causes.acts import ANOTHER_INSTANCE, COMBINATION
from compilediag.diagnosis.codes import Severity
from compilediag.diagnosis.findings import CauseId, Finding
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.rules.breaks.advice import OwnCall, break_fix
from compilediag.rules.breaks.text import CODES, BreakReport, read_break
from compilediag.rules.make_finding import make_finding, pick, plural, short_place, shorten
from compilediag.rules.recompiles import TEMPORARY
from compilediag.rules.rule import Absorption, Analysis, AnalysisRule, compile_ids
from compilediag.timeline.compiles import CompileId
from compilediag.timeline.frames import BreakLine
from compilediag.timeline.ownership import Ownership, ownership_of
from compilediag.timeline.timeline import BreakSite, Frame, Timeline
from compilediag_harness.wire import Location, resumed_function


@dataclass(frozen=True, slots=True)
class Broken:
    """A break site with its report and the frames it belongs to."""

    site: BreakSite
    report: BreakReport
    frames: tuple[Frame, ...]
    """Frames in which torch met the break."""
    resumed: tuple[Frame, ...] = ()
    """Frames that exist because of it: the rest of the function, compiled as one of its own."""

    @property
    def eager_frames(self) -> tuple[Frame, ...]:
        """Frames that ran eager because of it: never those that merely hit the limit."""
        return tuple(f for f in self.frames if f.ran_eager and f.limit_hit_step is None)

    @property
    def ran_eager(self) -> bool:
        """The break sends a whole frame to eager, by torch's word or by what the frame became."""
        return self.report.ran_eager or bool(self.eager_frames)

    @property
    def compiled_stack(self) -> Sequence[Location]:
        """The lines of the stack within the compiled frame or the function that it resumes,
        outermost first."""
        stack = self.report.stack
        names = {(each.where.file, each.where.function) for each in self.frames}
        names |= {(file, resumed_function(function) or function) for file, function in names}
        entries = (at for at, line in enumerate(stack) if (line.file, line.function) in names)
        return stack[next(entries, len(stack)) :]


@AnalysisRule
def find_breaks(analysis: Analysis) -> Iterable[Finding]:
    """One finding per site. Explicit breaks are information: the user asked for them."""
    timeline, made_by = analysis.timeline, analysis.causes.behind.breaks
    behind: dict[BreakLine, list[CompileId]] = {}
    for item in timeline.counted_recompiles:
        if item.id in made_by:
            behind.setdefault(made_by[item.id], []).append(item.id)
    # An id of one process, or before a reset, may be that of another frame elsewhere.
    others = {item.compile_id for item in timeline.recompiles if item.id not in made_by}
    for broken in read_sites(timeline):
        if broken.report.code != "CD152":
            yield _finding(broken, timeline, behind.get(broken.site.at, ()), others)


def read_sites(timeline: Timeline) -> Iterable[Broken]:
    """Every break site with its report and the frames in which torch met it."""
    compiles, frames = timeline.compiles, timeline.frames  # a run may have thousands of each
    attempts: dict[str, list[int]] = {}
    for at, item in enumerate(compiles):
        if item.forward:
            attempts.setdefault(_without_restart(item.compile_id), []).append(at)
    order = {frame.key: at for at, frame in enumerate(frames)}
    resumed: dict[tuple[str, str], list[Frame]] = {}
    for frame in frames:
        resumed.setdefault((frame.where.file, frame.where.function), []).append(frame)
    for site in timeline.breaks:
        report = read_break(site.text)
        # Ids repeat over processes and resets: the frame must also be part of the user's stack.
        files = {"", site.file, *(line.file for line in report.stack)} if report.stack else None
        ids = {_without_restart(compile_id) for compile_id in site.compile_ids}
        met = [
            compiles[at]
            for at in sorted(at for each in ids for at in attempts.get(each, ()))
            if files is None or compiles[at].frame.file in files
        ]
        reason = next((item.fail_reason for item in met if item.fail_reason), None)
        if reason is not None and (not report.title or report.title.startswith("Graph break: ")):
            # 2.7 logs the place of a skipped frame without the reason; its metrics row has it.
            raised = f"Traceback (most recent call last):\nUnsupported: {reason}"
            report = read_break(f"{site.text.rstrip()}\n{raised}")
        within = sorted({order[item.key] for item in met if item.key in order})
        rest = f"torch_dynamo_resume_in_{site.function}_at_{site.line}"
        yield Broken(
            site,
            report,
            tuple(frames[at] for at in within),
            tuple(resumed.get((site.file, rest), ())),
        )


def _without_restart(compile_id: str) -> str:
    """A restart of a compile ("0/0_1") belongs to the compile."""
    return compile_id.partition("_")[0]


def _finding(
    broken: Broken, timeline: Timeline, behind: Sequence[CompileId], others: Collection[str]
) -> Finding:
    """`behind`: the recompiles of frames that exist only because of the break; `others`: ids that
    recompiles of other frames have."""
    site, report, roots = broken.site, broken.report, timeline.user_roots
    location = _line_to_change(broken, roots)
    owner = ownership_of(location.file, roots)
    own = ownership_of(site.file, roots) == "user"
    call = _own_call(broken, roots) if owner == "third_party" else None
    code = CODES[report.category]
    fix, caveat = break_fix(code, report, own=own, in_package=owner == "third_party", call=call)
    # torch's title, with what it is about where the title does not name that.
    title = f"graph break: {shorten(report.title, 120) or 'torch gave no reason'}"
    if report.callee is not None and report.callee.name not in report.title:
        why = f" ({shorten(report.callee.why, 120)})" if report.callee.why else ""
        title += f": {report.callee.name}{why}"
    found = _evidence(broken)
    if behind:
        title += f", with {plural(len(behind), 'recompile')} behind it"
        ids = dict.fromkeys(item.compile_id for item in behind)
        found["recompiles_behind"] = [each for each in ids if each not in others]
    return make_finding(
        timeline,
        code,
        title,
        fix,
        caveat=caveat,
        location=location,
        severity=_severity(broken, owner, timeline),
        confidence="exact" if report.gb_id is not None else "text",
        count=site.count,
        steps=(site.first_step,),
        evidence=found,
        about=(site.at,),
    )


def _own_call(broken: Broken, user_roots: tuple[str, ...]) -> OwnCall | None:
    """The program's own innermost line of what was compiled, which calls what breaks."""
    entered = broken.site.entered_at
    own = [at for at in broken.compiled_stack if ownership_of(at.file, user_roots) == "user"]
    if entered is None or not own or (own[-1].file, own[-1].line) != (entered.file, entered.line):
        return None
    return OwnCall(shorten(entered.text, 80), short_place(entered.file, entered.line))


def _line_to_change(broken: Broken, user_roots: tuple[str, ...]) -> Location:
    """The site; where that is torch's own line, the innermost other line of the compiled frame,
    or that frame itself, where the stack leaves it out (2.13 and later do for modules)."""
    site = Location(broken.site.file, broken.site.line, broken.site.function)
    compiled = [frame.where for frame in broken.frames if frame.where.file]
    lines = (site, *reversed(broken.compiled_stack), *compiled)
    return next((at for at in lines if ownership_of(at.file, user_roots) != "torch"), site)


def _severity(broken: Broken, owner: Ownership, timeline: Timeline) -> Severity:
    explicit, frames = broken.report.explicit, broken.eager_frames
    if broken.ran_eager:
        owners = [ownership_of(frame.where.file, timeline.user_roots) for frame in frames]
        if any(each != "torch" for each in owners or [owner]):
            return "warning" if explicit else "error"
    return "info" if explicit or owner == "torch" else "warning"


def _evidence(broken: Broken) -> dict[str, object]:
    site, report = broken.site, broken.report
    effect = "the frame is split into two graphs, and the code at the break runs eager"
    if broken.ran_eager:
        effect = "the whole frame runs eager: no graph is left of it"
    elif any(frame.graphs == 0 for frame in broken.frames):
        effect = "the frame is split, and its first part holds no tensor operation"
    found: dict[str, object] = {
        **pick(report, "category", "gb_id", "gb_ids"),
        "reason": report.title,
        **pick(report, "explanation", "context"),
        "compile_ids": list(site.compile_ids),
        "reports": site.count,
        "ran_eager": broken.ran_eager,
        "eager_frames": [[f.where.file, f.where.line] for f in broken.eager_frames],
        "consequence_only": report.code == "CD904",
        "effect": effect,
        "frames": [f.where.function for f in broken.frames],
    }
    if broken.resumed:
        found["resumed_frames"] = len(broken.resumed)
        found["resumed_compiles"] = sum(frame.compiles for frame in broken.resumed)
    if report.c_extension is not None:
        found["c_extension"] = report.c_extension
        found["callee_ownership"] = "third_party"
    if report.options:
        found["options"] = dict(report.options)
    if report.callee is not None:
        found["callee"] = report.callee._asdict()
    if report.site is not None and report.stack:
        found["stack"] = [asdict(line) for line in report.stack[-6:]]
    return found


def sends_to_eager(broken: Finding, eager: Finding) -> bool:
    """Whether a break is in a frame that ran eager for it."""
    frames = BreakEvidence.of(broken.evidence).eager_frames or ()
    at = eager.location
    return at is not None and (at.file, at.line) in frames


def eager_places(finding: Finding) -> Sequence[Hashable]:
    """The frames that a break sends to eager; of a finding about such a frame, its place."""
    frames, at = BreakEvidence.of(finding.evidence).eager_frames, finding.location
    if frames is not None or at is None:
        return frames or ()
    return [(at.file, at.line)]


def _is_of_broken_code(finding: Finding) -> bool:
    """What one graph would not have guarded: the instances and calls within one step, their
    combinations, and what Dynamo itself carries over the break."""
    causes = [part for part in finding.about if isinstance(part, CauseId)]
    if not causes:
        return False
    made = causes[0].rule in ("CD117", COMBINATION) or causes[0].kind == ANOTHER_INSTANCE
    return made or all(part.variable.startswith(TEMPORARY) for part in causes)


def _makes(broken: Finding, again: Finding) -> bool:
    """Whether all recompiles of a finding are of frames that a break made. What is carried over it
    is the break's own where it reads a value or size out of a tensor; else the size of an input."""
    root = next(part for part in again.about if isinstance(part, CauseId))
    carried = root.variable.startswith(TEMPORARY) and root.kind != ANOTHER_INSTANCE
    if broken.severity == "info" or (carried and broken.rule != "CD202"):
        return False
    ids = compile_ids(again)
    return bool(ids) and {*ids} <= {*BreakEvidence.of(broken.evidence).recompiles_behind}


ABSORBS = (
    # Frames that exist only because of a break guard what one graph would not.
    Absorption("CD1", "CD2", _makes, is_symptom=_is_of_broken_code, adds_cost=True),
    # A break knows what became of its frame, and whether the user asked for it; where torch names
    # only the consequence (a break in a loop), it names no cause of its own.
    Absorption(
        "CD904",
        "CD2",
        lambda broken, eager: (
            not BreakEvidence.of(broken.evidence).consequence_only and sends_to_eager(broken, eager)
        ),
        keeps_severity=True,
        common=eager_places,
    ),
)
