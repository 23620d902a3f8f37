"""The common form in which runs are compared, made from a receipt or from a baseline.

Everything that depends on the machine is taken out of the names on the way (see `keys`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from compilediag.compare.keys import (
    COUNTS,
    BreakKey,
    CauseKey,
    FrameKey,
    break_key,
    cause_key,
    frame_key,
    function_key,
    lane_fields,
)
from compilediag.diagnosis.codes import EAGER
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
from compilediag.timeline.ownership import ownership_of


def finding_of_cause(receipt: Receipt, cause: EventCause) -> FindingRecord | None:
    """Find the finding that is about a cause: the one it names; in a receipt that names none, that
    of the same rule and variable, and of the same place if several are. None where none is."""
    if cause.finding is not None:
        return next((item for item in receipt.findings if item.id == cause.finding), None)
    rule = cause.rule or cause.family
    same = [
        item
        for item in receipt.findings
        if item.variable == cause.variable and rule in (item.rule, item.family)
    ]
    place = cause.file, cause.function
    exact = [
        item
        for item in same
        if item.location is not None and (item.location.file, item.location.function) == place
    ]
    return exact[0] if exact else same[0] if len(same) == 1 else None


def finding_of_break(receipt: Receipt, site: GraphBreak) -> FindingRecord | None:
    """Find the finding that is about a graph break; torch's own lines are blamed on their
    callers."""
    same = [
        item
        for item in receipt.findings
        if (item.rule.startswith("CD2") or item.rule in EAGER)
        and (broken := BreakEvidence.of(item.evidence)).reason == site.reason
        and broken.category == site.category
    ]
    here = [
        item
        for item in same
        if item.location is not None
        and (item.location.file, item.location.line) == (site.file, site.line)
    ]
    return here[0] if here else same[0] if len(same) == 1 else None


def finding_of_frame(receipt: Receipt, file: str, line: int, function: str) -> FindingRecord | None:
    """Find what sent a frame to eager: its own finding, or the graph break that names it."""
    for item in receipt.findings:
        if item.rule in EAGER and item.location is not None:
            place = item.location
            if place.file == file and function_key(place.function) == function:
                return item
    for item in receipt.findings:
        if (file, line) in (BreakEvidence.of(item.evidence).eager_frames or ()):
            return item
    return None


_RECOMPILES = "CD1"  #: Begin of the codes of findings about recompiles.
Scalar: TypeAlias = str | int | float | bool | None
Count: TypeAlias = Annotated[int, Meta(ge=0)]


class Known(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of a baseline."""

    unknown: dict[str, Any] = EMPTY  #: Its fields of newer versions.


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


class LaneBaseline(Struct, frozen=True):
    """What a program does in one configuration: as a baseline allows it, or a receipt shows it."""

    name: str
    fields: Mapping[str, Scalar]  #: What must be equal: "precision", "numerics_flags.backend"...
    counts: Mapping[str, int]
    causes: tuple[KnownCause, ...] = ()
    breaks: tuple[KnownBreak, ...] = ()
    frames: tuple[KnownFrame, ...] = ()
    fallbacks: tuple[KnownFallback, ...] = ()
    recordings: int | None = None  #: Of CUDA graphs; None: not measured, or no device.
    torch: str | None = None  #: The version it was recorded with, without build, to inform.
    unknown: Mapping[str, Any] = EMPTY

    @property
    def allowed(self) -> tuple[Allowed, ...]:
        """Causes, graph breaks and fallbacks."""
        return (*self.causes, *self.breaks, *self.fallbacks)


FileFilter: TypeAlias = Callable[[str | None], bool]
"""Whether what is at a file counts; what has no file always does."""


class RunBaseline(Struct, frozen=True):
    """A receipt in the form of a baseline, with the records behind each item."""

    lane: LaneBaseline
    causes: Mapping[CauseKey, Sequence[tuple[CompileEvent, EventCause]]]
    breaks: Mapping[BreakKey, Sequence[GraphBreak]]
    frames: Mapping[FrameKey, FrameDetail]  #: Each over all its compiles.
    counts_file: FileFilter
    own_code_only: bool = False

    def counts_finding(self, finding: FindingRecord) -> bool:
        """Whether a finding counts: as what it is about does."""
        files = [finding.location.file if finding.location is not None else None]
        files += [part.location.file for part in finding.parts]
        is_entered = finding.rule.startswith(_RECOMPILES) and finding.entered_at is not None
        return any(map(self.counts_file, files)) or is_entered


def run_baseline(
    receipt: Receipt, name: str | None = None, *, own_code_only: bool = False
) -> RunBaseline:
    """Build the baseline of a receipt, under another configuration's name if one is given.

    With `own_code_only` it holds what happened in the user's own files, or because of them: a
    recompile in a library that a call in them asked for, but no graph break there, which no call
    could avoid. Of the counts it holds those that can be split so.
    """
    counted = _file_filter(receipt, own_code_only=own_code_only)
    causes, breaks = _causes(receipt, counted), _breaks(receipt, counted)
    frames = _frames(receipt, counted)
    again = Counter(
        frame_key(event.frame) for event in receipt.compile.events if event.kind == "recompile"
    )
    lane = LaneBaseline(
        name=name or receipt.header.lane.name,
        fields=baseline_fields(receipt),
        counts=_own_counts(receipt, counted, breaks)
        if own_code_only
        else {count: getattr(receipt.compile, count) for count in COUNTS},
        causes=tuple(KnownCause(key, len(found)) for key, found in causes.items()),
        breaks=tuple(KnownBreak(key, len(found)) for key, found in breaks.items()),
        frames=tuple(KnownFrame(key, total.compiles, again[key]) for key, total in frames.items()),
        fallbacks=tuple(KnownFallback(key) for key, total in frames.items() if total.ran_eager),
        recordings=receipt.cudagraph.recordings if receipt.cudagraph is not None else None,
        torch=torch_release(receipt),
    )
    return RunBaseline(lane, causes, breaks, frames, counted, own_code_only)


def baseline_fields(receipt: Receipt) -> dict[str, Scalar]:
    """List what must be equal between receipt and baseline, beside the name; None: not known."""
    fields = lane_fields(receipt)
    del fields["name"]
    return fields


def torch_release(receipt: Receipt) -> str | None:
    """Get torch's version without the build: "2.13.0" of "2.13.0+cpu"."""
    version = receipt.environment.torch
    return version.partition("+")[0] if version else None


def is_own(file: str | None) -> bool:
    """Whether a file as a baseline has it is the user's own; what has no file is too."""
    if file is None:
        return True
    return not file.startswith(("site-packages/", "python/")) and ownership_of(file) == "user"


def _file_filter(receipt: Receipt, *, own_code_only: bool) -> FileFilter:
    """Make a filter for all files, or the user's own: as the receipt says, else by their paths."""
    if not own_code_only:
        return lambda _: True
    owners = {item.file: item.ownership for item in receipt.compile.breaks if item.ownership}
    for finding in receipt.findings:
        if finding.ownership is not None and finding.location is not None:
            owners[finding.location.file] = finding.ownership

    def is_own_file(file: str | None) -> bool:
        return file is None or (owners.get(file) or ownership_of(file)) == "user"

    return is_own_file


def _causes(
    receipt: Receipt, counted: FileFilter
) -> dict[CauseKey, list[tuple[CompileEvent, EventCause]]]:
    """Group causes with the recompiles they had a part in, each recompile once."""
    found: dict[CauseKey, list[tuple[CompileEvent, EventCause]]] = {}
    for event in receipt.compile.events:
        of_event: dict[CauseKey, EventCause] = {}
        for cause in event.causes:
            if counted(cause.file) or event.entered_at is not None:
                of_event.setdefault(cause_key(cause), cause)
        for key, cause in of_event.items():
            found.setdefault(key, []).append((event, cause))
    return found


def _breaks(receipt: Receipt, counted: FileFilter) -> dict[BreakKey, list[GraphBreak]]:
    found: dict[BreakKey, list[GraphBreak]] = {}
    for site in receipt.compile.breaks:
        finding = None if counted(site.file) else finding_of_break(receipt, site)
        # A break at a line of torch is the user's where the line to change is.
        if counted(site.file) or (finding is not None and finding.ownership == "user"):
            found.setdefault(break_key(site), []).append(site)
    return found


def _frames(receipt: Receipt, counted: FileFilter) -> dict[FrameKey, FrameDetail]:
    totals: dict[FrameKey, FrameDetail] = {}
    for item in receipt.compile.frames_detail:
        if not counted(item.frame.file):
            continue
        known = totals.get(key := frame_key(item.frame))
        totals[key] = item
        if known is not None:
            totals[key] = replace(
                item,
                compiles=item.compiles + known.compiles,
                ran_eager=item.ran_eager or known.ran_eager,
                eager_reason=item.eager_reason or known.eager_reason,
                entered_at=item.entered_at or known.entered_at,
            )
    return totals


def counts_recompile(event: CompileEvent, counted: FileFilter) -> bool:
    """Whether a recompile is of the user's own code: the frame, any of its causes, or the call that
    led there is."""
    causes = any(cause.file and counted(cause.file) for cause in event.causes)
    return counted(event.frame.file) or causes or event.entered_at is not None


def _own_counts(
    receipt: Receipt, counted: FileFilter, breaks: Mapping[BreakKey, Sequence[GraphBreak]]
) -> dict[str, int]:
    """Count what can be split by whose code it is."""
    frames = [item for item in receipt.compile.frames_detail if counted(item.frame.file)]
    sites = {(site.file, site.line) for found in breaks.values() for site in found}
    return {
        "frames": len(frames),
        "compiles": sum(item.compiles for item in frames),
        "recompiles": sum(
            item.kind == "recompile" and counts_recompile(item, counted)
            for item in receipt.compile.events
        ),
        "graphs": sum(
            bool(item.graph_ops) and counted(item.frame.file) for item in receipt.compile.events
        ),
        "graph_breaks": len(sites),
        "eager_fallbacks": sum(item.ran_eager for item in frames),
    }
