"""CD201–CD214, CD290: graph breaks, one finding per place and cause."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import TypeVar

from msgspec.structs import replace

from compilediag.diagnosis.causes.acts import ANOTHER_INSTANCE, COMBINATION
from compilediag.diagnosis.codes import Severity
from compilediag.diagnosis.findings import CauseId, Finding, Rule
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.rules.absorption import Absorption, compile_ids
from compilediag.rules.analysis import Analysis, analysis_rule
from compilediag.rules.breaks.advice import OwnCall, break_fix
from compilediag.rules.breaks.text import BreakReport, categories, read_break
from compilediag.rules.make_finding import make_finding, pick, plural, shorten
from compilediag.rules.recompiles import TEMPORARY
from compilediag.timeline.breaks import BreakLine
from compilediag.timeline.compiles import CompileId, FrameId
from compilediag.timeline.ownership import Ownership, ownership_of
from compilediag.timeline.timeline import BreakSite, Compile, Frame, Timeline
from compilediag_harness.wire import Location

Item = TypeVar("Item")
_BEHIND = "recompiles_behind"
"""Of the evidence: the recompiles of frames that exist only because of the break."""

RESUME_PREFIX = "torch_dynamo_resume_in_"


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
    def code(self) -> str:
        """The category's code; a consequence without a cause falls to its own category."""
        return categories().codes.get(self.report.category, "CD290")

    @property
    def eager_frames(self) -> tuple[Frame, ...]:
        """Frames that ran eager because of it: never those that merely hit the limit."""
        return tuple(f for f in self.frames if f.ran_eager and f.limit_hit_step is None)

    @property
    def ran_eager(self) -> bool:
        """The break sends a whole frame to eager, by torch's word or by what the frame became."""
        return self.report.ran_eager or bool(self.eager_frames)


@analysis_rule
def find_breaks(analysis: Analysis) -> Iterable[Finding]:
    """One finding per site. Explicit breaks are information: the user asked for them."""
    behind = _recompiles_behind(analysis)
    # An id of one process, or before a reset, may be that of another frame elsewhere.
    made = analysis.causes.behind.breaks
    others = {i.compile_id for i in analysis.timeline.recompiles if i.id not in made}
    for broken in read_sites(analysis.timeline):
        if broken.report.code != "CD152":
            again = behind.get(broken.site.at, ())
            found = _finding(broken, analysis.timeline, len(again))
            ids = [
                each for each in dict.fromkeys(i.compile_id for i in again) if each not in others
            ]
            yield replace(found, evidence={**found.evidence, _BEHIND: ids}) if again else found


def _recompiles_behind(analysis: Analysis) -> Mapping[BreakLine, Sequence[CompileId]]:
    """The recompiles of the frames that each break made."""
    found: dict[BreakLine, list[CompileId]] = {}
    for item in analysis.timeline.counted_recompiles:
        made_by = analysis.causes.behind.breaks.get(item.id)
        if made_by is not None:
            found.setdefault(made_by, []).append(item.id)
    return found


def read_sites(timeline: Timeline) -> tuple[Broken, ...]:
    """Every break site with its report and the frames in which torch met it."""
    attempted = _Attempted.of(timeline)
    return tuple(_read(site, attempted) for site in timeline.breaks)


@dataclass(frozen=True, slots=True)
class _Attempted:
    """Compiles and frames of a run by what a break has of them: it may have thousands of each."""

    compiles: Mapping[str, Sequence[tuple[int, Compile]]]
    """Forward compiles, numbered, by their ids; restarts under those of their compiles."""
    frames: Mapping[FrameId, tuple[int, Frame]]
    """The same of frames."""
    resumed: Mapping[tuple[str, str], Sequence[Frame]]
    """By function and file."""

    @classmethod
    def of(cls, timeline: Timeline) -> _Attempted:
        compiles: dict[str, list[tuple[int, Compile]]] = {}
        resumed: dict[tuple[str, str], list[Frame]] = {}
        for at, item in enumerate(timeline.compiles):
            if item.forward:
                compiles.setdefault(_without_restart(item.compile_id), []).append((at, item))
        for frame in timeline.frames:
            where = frame.where
            if where.function.startswith(RESUME_PREFIX):
                resumed.setdefault((where.function, where.file), []).append(frame)
        frames = {frame.key: (at, frame) for at, frame in enumerate(timeline.frames)}
        return cls(compiles, frames, resumed)


def _read(site: BreakSite, attempted: _Attempted) -> Broken:
    ids = {_without_restart(compile_id) for compile_id in site.compile_ids}
    report = read_break(site.text)
    files = {site.file, *(line.file for line in report.stack)} if report.stack else set[str]()
    compiles = _in_order(
        (at, item)
        for compile_id in ids
        for at, item in attempted.compiles.get(compile_id, ())
        if _in_stack(item, files)
    )
    if report.title.startswith("Graph break: ") or not report.title:
        # 2.7 logs the place of a skipped frame without the reason; its metrics row has it.
        report = _with_reason_of(compiles, site.text) or report
    keys = {item.key for item in compiles}
    frames = _in_order(attempted.frames[key] for key in keys if key in attempted.frames)
    resumes = f"{RESUME_PREFIX}{site.function}_at_{site.line}", site.file
    return Broken(site, report, tuple(frames), tuple(attempted.resumed.get(resumes, ())))


def _in_order(items: Iterable[tuple[int, Item]]) -> list[Item]:
    """Numbered items in the order of their numbers."""
    return [item for _, item in sorted(items, key=itemgetter(0))]


def _without_restart(compile_id: str) -> str:
    """A restart of a compile ("0/0_1") belongs to the compile."""
    return compile_id.partition("_")[0]


def _in_stack(item: Compile, files: Collection[str]) -> bool:
    """Ids repeat over processes and resets: the frame must also be part of the user's stack, whose
    files are empty where there is none."""
    return not item.frame.file or not files or item.frame.file in files


def _with_reason_of(compiles: Sequence[Compile], text: str) -> BreakReport | None:
    reason = next((item.fail_reason for item in compiles if item.fail_reason), None)
    if reason is None:
        return None
    return read_break(f"{text.rstrip()}\nTraceback (most recent call last):\nUnsupported: {reason}")


def _finding(broken: Broken, timeline: Timeline, behind: int) -> Finding:
    site, report = broken.site, broken.report
    own = ownership_of(site.file, timeline.user_roots) == "user"
    location = _line_to_change(broken, timeline.user_roots)
    in_package = ownership_of(location.file, timeline.user_roots) == "third_party"
    call = _own_call(broken, timeline.user_roots) if in_package else None
    fix, caveat = break_fix(broken.code, report, own=own, in_package=in_package, call=call)
    return make_finding(
        timeline,
        broken.code,
        _title(report) + (f", with {plural(behind, 'recompile')} behind it" if behind else ""),
        fix,
        caveat=caveat,
        location=location,
        severity=_severity(broken, ownership_of(location.file, timeline.user_roots), timeline),
        confidence="exact" if report.gb_id is not None else "text",
        count=site.count,
        steps=(site.first_step,),
        evidence=_evidence(broken),
        about=(site.at,),
    )


def _own_call(broken: Broken, user_roots: tuple[str, ...]) -> OwnCall | None:
    """The program's own innermost line of what was compiled, which calls what breaks."""
    entered = broken.site.entered_at
    inside = [
        item for item in _compiled_stack(broken) if ownership_of(item.file, user_roots) == "user"
    ]
    if entered is None or not inside:
        return None
    if (inside[-1].file, inside[-1].line) != (entered.file, entered.line):
        return None
    file = entered.file.replace("\\", "/").rpartition("/")[2]
    return OwnCall(shorten(entered.text, 80), f"{file}:{entered.line}")


def _title(report: BreakReport) -> str:
    """torch's title, with what it is about where the title does not name that."""
    title = f"graph break: {shorten(report.title, 120) or 'torch gave no reason'}"
    callee = report.callee
    if callee is None or callee.name in report.title:
        return title
    return f"{title}: {callee.name}" + (f" ({shorten(callee.why, 120)})" if callee.why else "")


def _line_to_change(broken: Broken, user_roots: tuple[str, ...]) -> Location:
    """The site; where that is torch's own line, the innermost other line of the compiled frame,
    or that frame itself, where the stack leaves it out (2.13 and later do for modules)."""
    site = broken.site
    location = Location(site.file, site.line, site.function)
    compiled = [frame.where for frame in broken.frames if frame.where.file]
    candidates = (location, *reversed(_compiled_stack(broken)), *compiled)
    own = (item for item in candidates if ownership_of(item.file, user_roots) != "torch")
    return next(own, location)


def _compiled_stack(broken: Broken) -> Sequence[Location]:
    """The lines of the stack within the compiled frame, outermost first."""
    stack = broken.report.stack
    outermost = next((i for i, item in enumerate(stack) if _frame_entry(item, broken)), len(stack))
    return stack[outermost:]


def _frame_entry(item: Location, broken: Broken) -> bool:
    """A line of the stack that belongs to the compiled frame or to the function it resumes."""
    return any(
        item.file == frame.where.file
        and (
            item.function == frame.where.function
            or frame.where.function.startswith(f"{RESUME_PREFIX}{item.function}_at_")
        )
        for frame in broken.frames
    )


def _severity(broken: Broken, owner: Ownership, timeline: Timeline) -> Severity:
    explicit, frames = broken.report.explicit, broken.eager_frames
    if broken.ran_eager:
        owners = [ownership_of(frame.where.file, timeline.user_roots) for frame in frames]
        if any(each != "torch" for each in owners or [owner]):
            return "warning" if explicit else "error"
    return "info" if explicit or owner == "torch" else "warning"


def _evidence(broken: Broken) -> dict[str, object]:
    site, report = broken.site, broken.report
    found: dict[str, object] = {
        **pick(report, "category", "gb_id", "gb_ids"),
        "reason": report.title,
        **pick(report, "explanation", "context"),
        "compile_ids": list(site.compile_ids),
        "reports": site.count,
        "ran_eager": broken.ran_eager,
        "eager_frames": [[f.where.file, f.where.line] for f in broken.eager_frames],
        "consequence_only": report.code == "CD904",
        "effect": _effect(broken),
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


def _effect(broken: Broken) -> str:
    """What the break costs, beside its count."""
    if broken.ran_eager:
        return "the whole frame runs eager: no graph is left of it"
    if any(frame.graphs == 0 for frame in broken.frames):
        return "the frame is split, and its first part holds no tensor operation"
    return "the frame is split into two graphs, and the code at the break runs eager"


def _sends_to_eager(cause: Finding, symptom: Finding) -> bool:
    """The break is what sent that frame to eager; where torch names only the consequence (a break
    in a loop), it names no cause of its own."""
    consequence = BreakEvidence.of(cause.evidence).consequence_only
    return not consequence and sends_to_eager(cause, symptom)


def sends_to_eager(broken: Finding, eager: Finding) -> bool:
    """Whether a break is in a frame that ran eager for it."""
    location = eager.location
    return location is not None and (location.file, location.line) in _eager_frames(broken)


def _eager_frames(broken: Finding) -> Sequence[Hashable]:
    return BreakEvidence.of(broken.evidence).eager_frames or ()


def eager_places(finding: Finding) -> Sequence[Hashable]:
    """The frames that a break sends to eager; of a finding about such a frame, its place."""
    frames = BreakEvidence.of(finding.evidence).eager_frames
    if frames is not None or finding.location is None:
        return frames or ()
    return [(finding.location.file, finding.location.line)]


def _is_of_broken_code(finding: Finding) -> bool:
    """What one graph would not have guarded: the instances and calls within one step, their
    combinations, and what Dynamo itself carries over the break."""
    causes = [part for part in finding.about if isinstance(part, CauseId)]
    if not causes:
        return False
    root = causes[0]
    made = root.rule in ("CD117", COMBINATION) or root.kind == ANOTHER_INSTANCE
    return made or all(part.variable.startswith(TEMPORARY) for part in causes)


def _makes(broken: Finding, again: Finding) -> bool:
    """Whether all recompiles of a finding are of frames that a break made. What is carried over it
    is the break's own where it reads a value or size out of a tensor; else the size of an input."""
    behind = BreakEvidence.of(broken.evidence).recompiles_behind
    root = next(part for part in again.about if isinstance(part, CauseId))
    carried = root.variable.startswith(TEMPORARY) and root.kind != ANOTHER_INSTANCE
    if broken.severity == "info" or not behind:
        return False
    if carried and broken.rule != "CD202":
        return False
    ids = compile_ids(again)
    return bool(ids) and set(ids) <= set(behind)


RULES: tuple[Rule, ...] = (find_breaks,)

ABSORBS = (
    # Frames that exist only because of a break guard what one graph would not.
    Absorption("CD1", "CD2", _makes, is_symptom=_is_of_broken_code, adds_cost=True),
    # A break knows what became of its frame, and whether the user asked for it.
    Absorption("CD904", "CD2", _sends_to_eager, keeps_severity=True, common=eager_places),
)
