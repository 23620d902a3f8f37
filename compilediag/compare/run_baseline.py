"""The common form in which runs are compared, made from a receipt or from a baseline.

Everything that depends on the machine is taken out of the names on the way (see `keys`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from compilediag.compare.keys import (
    COUNTS,
    BreakKey,
    CauseKey,
    FrameKey,
    build_break_key,
    build_cause_key,
    build_frame_key,
    list_configuration_fields,
)
from compilediag.diagnosis.codes import EAGER
from compilediag.receipt.finding_keys import normalize_function
from compilediag.receipt.schema.compiles import (
    CompileEvent,
    EventCause,
    FindingRecord,
    FrameDetail,
    GraphBreak,
)
from compilediag.receipt.schema.evidence import BreakEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import EMPTY
from compilediag.timeline.ownership import classify_ownership


def find_cause_finding(receipt: Receipt, cause: EventCause) -> FindingRecord | None:
    """Find the finding that is about a cause: the one it names; in a receipt that names none, that
    of the same rule and variable, and of the same place if several are. None where none is."""
    if cause.finding is not None:
        return next((finding for finding in receipt.findings if finding.id == cause.finding), None)
    rule = cause.rule or cause.family
    same = [
        finding
        for finding in receipt.findings
        if finding.variable == cause.variable and rule in (finding.rule, finding.family)
    ]
    place = cause.file, cause.function
    exact = [
        finding
        for finding in same
        if finding.location is not None
        and (finding.location.file, finding.location.function) == place
    ]
    return exact[0] if exact else same[0] if len(same) == 1 else None


def find_break_finding(receipt: Receipt, site: GraphBreak) -> FindingRecord | None:
    """Find the finding about a graph break; torch's own lines are blamed on their callers."""
    same = [
        finding
        for finding in receipt.findings
        if (finding.rule.startswith("CD2") or finding.rule in EAGER)
        and (broken := BreakEvidence.parse(finding.evidence)).reason == site.reason
        and broken.category == site.category
    ]
    here = [
        finding
        for finding in same
        if finding.location is not None
        and (finding.location.file, finding.location.line) == (site.file, site.line)
    ]
    return here[0] if here else same[0] if len(same) == 1 else None


def find_frame_finding(receipt: Receipt, file: str, line: int, name: str) -> FindingRecord | None:
    """Find what sent a frame to eager: its own finding, or the graph break that names it."""
    for finding in receipt.findings:
        if finding.rule in EAGER and finding.location is not None:
            place = finding.location
            if place.file == file and normalize_function(place.function) == name:
                return finding
    for finding in receipt.findings:
        if (file, line) in (BreakEvidence.parse(finding.evidence).eager_frames or ()):
            return finding
    return None


_RECOMPILES = "CD1"  #: Begin of the codes of findings about recompiles.
Scalar: TypeAlias = str | int | float | bool | None
Count: TypeAlias = Annotated[int, Meta(ge=0)]


class Known(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of a baseline."""


class KnownCause(Known, frozen=True):
    """A cause of recompiles that is allowed."""

    key: CauseKey
    count: Count = field(name="recompiles")  #: In how many it had a part.
    reason: str | None = None  #: Why it is allowed; None where nobody has given a reason.


class KnownBreak(Known, frozen=True):
    """Graph-break sites that are allowed."""

    key: BreakKey
    count: Count = field(name="sites")
    reason: str | None = None  #: Why they are allowed; torch's own reason is in the key.


class KnownFrame(Known, frozen=True):
    """A frame and how often it is compiled."""

    key: FrameKey
    count: Count = field(name="compiles")
    recompiles: Count = 0  #: Of these; the others are first ones, of another epoch or process.
    #: First and last size of each range that its cache entries accept, by dimensions.
    accepts: Mapping[str, tuple[tuple[int, int], ...]] = EMPTY

    def find_narrowed(self, before: KnownFrame) -> list[str]:
        """Find dimensions of which it accepts less than before, of those known both times."""
        return [
            name
            for name, ranges in before.accepts.items()
            if name in self.accepts
            if not all(any(a <= c and d <= b for a, b in self.accepts[name]) for c, d in ranges)
        ]


class KnownFallback(Known, frozen=True):
    """A frame that torch runs eager, and that is allowed to."""

    key: FrameKey
    reason: str | None = None

    @property
    def count(self) -> int:
        """A frame is there or not."""
        return 1


Allowed: TypeAlias = KnownCause | KnownBreak | KnownFallback
"""What a baseline allows, with a reason."""


class ConfigBaseline(Struct, frozen=True):
    """A program in one configuration, as a baseline allows it, or a receipt shows it."""

    name: str
    fields: Mapping[str, Scalar]  #: What must be equal: "precision", "numerics_flags.backend"...
    counts: Mapping[str, int]
    causes: tuple[KnownCause, ...] = ()
    breaks: tuple[KnownBreak, ...] = ()
    frames: tuple[KnownFrame, ...] = ()
    fallbacks: tuple[KnownFallback, ...] = ()
    recordings: int | None = None  #: Of CUDA graphs; None: not measured, or no device.
    torch: str | None = None  #: The version it was recorded with, without build, to inform.

    @property
    def allowed(self) -> tuple[Allowed, ...]:
        """Causes, graph breaks and fallbacks."""
        return (*self.causes, *self.breaks, *self.fallbacks)


FileFilter: TypeAlias = Callable[[str | None], bool]
"""Whether what is at a file counts; what has no file always does."""


class RunBaseline(Struct, frozen=True):
    """A receipt in the form of a baseline, with the records behind each item."""

    baseline: ConfigBaseline
    causes: Mapping[CauseKey, Sequence[tuple[CompileEvent, EventCause]]]
    breaks: Mapping[BreakKey, Sequence[GraphBreak]]
    frames: Mapping[FrameKey, FrameDetail]  #: Each over all its compiles.
    is_file_counted: FileFilter
    own_code_only: bool = False

    def is_finding_counted(self, finding: FindingRecord) -> bool:
        """True if a finding counts: as what it is about does."""
        files = [finding.location.file if finding.location is not None else None]
        files += [part.location.file for part in finding.parts]
        is_called = finding.rule.startswith(_RECOMPILES) and finding.entered_at is not None
        return any(map(self.is_file_counted, files)) or is_called

    def count_needed(self, receipt: Receipt, need: str) -> int:
        """Count the recompiles that were judged so, of those that count."""
        judged = (event for event in receipt.compile.events if event.need == need)
        return sum(is_recompile_counted(event, self.is_file_counted) for event in judged)


def build_run_baseline(
    receipt: Receipt, name: str | None = None, *, own_code_only: bool = False
) -> RunBaseline:
    """Build the baseline of a receipt, under another configuration's name if one is given.

    With `own_code_only` it holds what happened in the user's own files, or because of them: a
    recompile in a library that a call in them asked for, but no graph break there, which no call
    could avoid. Of the counts it holds those that can be split so.
    """
    counted = _make_file_filter(receipt, own_code_only=own_code_only)
    causes, breaks = _group_causes(receipt, counted), _group_breaks(receipt, counted)
    frames = _sum_frames(receipt, counted)
    events = receipt.compile.events
    accepted = _collect_accepted(receipt)
    again = Counter(build_frame_key(event.frame) for event in events if event.kind == "recompile")
    baseline = ConfigBaseline(
        name=name or receipt.header.configuration.name,
        fields=list_baseline_fields(receipt),
        counts=_count_own(receipt, counted, breaks)
        if own_code_only
        else {count: getattr(receipt.compile, count) for count in COUNTS},
        causes=tuple(KnownCause(key, len(recompiles)) for key, recompiles in causes.items()),
        breaks=tuple(KnownBreak(key, len(sites)) for key, sites in breaks.items()),
        frames=tuple(
            KnownFrame(key, total.compiles, again[key], accepted.get(key, {}))
            for key, total in frames.items()
        ),
        fallbacks=tuple(KnownFallback(key) for key, total in frames.items() if total.ran_eager),
        recordings=receipt.cudagraph.recordings if receipt.cudagraph is not None else None,
        torch=get_torch_release(receipt),
    )
    return RunBaseline(baseline, causes, breaks, frames, counted, own_code_only)


def list_baseline_fields(receipt: Receipt) -> dict[str, Scalar]:
    """List what must be equal between receipt and baseline, beside the name; None: not known."""
    fields = list_configuration_fields(receipt)
    del fields["name"]
    return fields


def get_torch_release(receipt: Receipt) -> str | None:
    """Get torch's version without the build: "2.13.0" of "2.13.0+cpu"."""
    version = receipt.environment.torch
    return version.partition("+")[0] if version else None


def is_own(file: str | None) -> bool:
    """True if a file as a baseline has it is the user's own; what has no file is too."""
    if file is None:
        return True
    return not file.startswith(("site-packages/", "python/")) and classify_ownership(file) == "user"


def _collect_accepted(receipt: Receipt) -> dict[FrameKey, dict[str, tuple[tuple[int, int], ...]]]:
    """Collect the ranges of sizes that each frame accepts; a single size is that of the data."""
    accepted: dict[FrameKey, dict[str, tuple[tuple[int, int], ...]]] = {}
    for its in receipt.compile.accepted_sizes:
        ranges = tuple(span for span in its.spans if span[0] < span[1])
        accepted.setdefault(build_frame_key(its.frame), {})[" and ".join(its.dimensions)] = ranges
    return accepted


def _make_file_filter(receipt: Receipt, *, own_code_only: bool) -> FileFilter:
    """Make a filter for all files, or the user's own: as the receipt says, else by their paths."""
    if not own_code_only:
        return lambda _: True
    owners = {site.file: site.ownership for site in receipt.compile.breaks if site.ownership}
    for finding in receipt.findings:
        if finding.ownership is not None and finding.location is not None:
            owners[finding.location.file] = finding.ownership

    def is_own_file(file: str | None) -> bool:
        return file is None or (owners.get(file) or classify_ownership(file)) == "user"

    return is_own_file


def _group_causes(
    receipt: Receipt, counted: FileFilter
) -> dict[CauseKey, list[tuple[CompileEvent, EventCause]]]:
    """Group causes with the recompiles they had a part in, each recompile once."""
    groups: dict[CauseKey, list[tuple[CompileEvent, EventCause]]] = {}
    for event in receipt.compile.events:
        causes: dict[CauseKey, EventCause] = {}
        for cause in event.causes:
            if counted(cause.file) or event.entered_at is not None:
                causes.setdefault(build_cause_key(cause), cause)
        for key, cause in causes.items():
            groups.setdefault(key, []).append((event, cause))
    return groups


def _group_breaks(receipt: Receipt, counted: FileFilter) -> dict[BreakKey, list[GraphBreak]]:
    groups: dict[BreakKey, list[GraphBreak]] = {}
    for site in receipt.compile.breaks:
        finding = None if counted(site.file) else find_break_finding(receipt, site)
        # A break at a line of torch is the user's where the line to change is.
        if counted(site.file) or (finding is not None and finding.ownership == "user"):
            groups.setdefault(build_break_key(site), []).append(site)
    return groups


def _sum_frames(receipt: Receipt, counted: FileFilter) -> dict[FrameKey, FrameDetail]:
    totals: dict[FrameKey, FrameDetail] = {}
    for detail in receipt.compile.frames_detail:
        if not counted(detail.frame.file):
            continue
        known = totals.get(key := build_frame_key(detail.frame))
        totals[key] = detail
        if known is not None:
            totals[key] = replace(
                detail,
                compiles=detail.compiles + known.compiles,
                ran_eager=detail.ran_eager or known.ran_eager,
                eager_reason=detail.eager_reason or known.eager_reason,
                entered_at=detail.entered_at or known.entered_at,
            )
    return totals


def is_recompile_counted(event: CompileEvent, counted: FileFilter) -> bool:
    """True for the user's own: by the frame, any of its causes, or the call that led there."""
    causes = any(cause.file and counted(cause.file) for cause in event.causes)
    return counted(event.frame.file) or causes or event.entered_at is not None


def _count_own(
    receipt: Receipt, counted: FileFilter, breaks: Mapping[BreakKey, Sequence[GraphBreak]]
) -> dict[str, int]:
    """Count what can be split by whose code it is."""
    frames = [detail for detail in receipt.compile.frames_detail if counted(detail.frame.file)]
    sites = {(site.file, site.line) for group in breaks.values() for site in group}
    return {
        "frames": len(frames),
        "compiles": sum(detail.compiles for detail in frames),
        "recompiles": sum(
            event.kind == "recompile" and is_recompile_counted(event, counted)
            for event in receipt.compile.events
        ),
        "graphs": sum(
            bool(event.graph_ops) and counted(event.frame.file) for event in receipt.compile.events
        ),
        "graph_breaks": len(sites),
        "eager_fallbacks": sum(detail.ran_eager for detail in frames),
    }
