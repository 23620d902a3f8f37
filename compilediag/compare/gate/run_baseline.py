"""What a receipt's run did, in the form of a baseline: the two are then compared item by item.

Everything that depends on the machine is taken out of the names on the way: folders above an
installed package, addresses of objects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from compilediag.compare import keys
from compilediag.compare.gate.attribution import finding_of_break
from compilediag.compare.gate.baseline import (
    KnownBreak,
    KnownCause,
    KnownFallback,
    KnownFrame,
    LaneBaseline,
    Scalar,
)
from compilediag.compare.keys import BreakKey, CauseKey, FrameKey, FrameTotal
from compilediag.receipt.schema.compiles import CompileEvent, EventCause, GraphBreak
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import flatten

# Patterns that most files do not need are text: they are compiled where one does.
_INSTALLED = r".*/(?:site|dist)-packages/"
_STANDARD = r".*/lib(?:64)?/python3(?:\.[0-9]{1,3}t?)?/"
_GENERATED = r"<[^<>]{1,80}>"
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,16}\b|\b[0-9]{12,20}\b")
_FOLDERS_KEPT = 2
"""Of a file that lies neither below the working directory nor in a package: its last parts."""


class RunBaseline(Struct, frozen=True):
    """What a run did: in the form of a baseline, and where the receipt tells more of each item."""

    lane: LaneBaseline
    causes: Mapping[CauseKey, Sequence[tuple[CompileEvent, EventCause]]]
    breaks: Mapping[BreakKey, Sequence[GraphBreak]]
    frames: Mapping[FrameKey, FrameTotal]
    files: Mapping[FrameKey, str]
    """The file of a frame as the receipt has it."""
    own_code_only: bool = False


def ledger_of(
    receipt: Receipt, name: str | None = None, *, own_code_only: bool = False
) -> RunBaseline:
    """The ledger of a receipt, under another lane's name if one is given.

    With `own_code_only` it holds what happened in the user's own files, or because of them; and
    of the counts those that can be told apart by file.
    """
    owners = _owners(receipt) if own_code_only else None
    causes, breaks = _causes(receipt, owners), _breaks(receipt, owners)
    frames, files = _frames(receipt, owners)
    again = _recompiles(receipt)
    lane = LaneBaseline(
        name=name or receipt.header.lane.name,
        fields=lane_fields(receipt),
        counts=keys.counts(receipt) if owners is None else _own_counts(receipt, owners),
        causes=tuple(KnownCause(key, len(seen)) for key, seen in causes.items()),
        breaks=tuple(KnownBreak(key, len(seen)) for key, seen in breaks.items()),
        frames=tuple(
            KnownFrame(key, total.compiles, again.get(key, 0)) for key, total in frames.items()
        ),
        fallbacks=tuple(KnownFallback(key) for key, total in frames.items() if total.ran_eager),
        recordings=receipt.cudagraph.recordings if receipt.cudagraph is not None else None,
        torch=torch_release(receipt),
    )
    return RunBaseline(lane, causes, breaks, frames, files, own_code_only)


def is_own(file: str | None) -> bool:
    """Whether a portable file is the user's own; what has no file belongs to nobody else."""
    if file is None:
        return True
    return not file.startswith(("site-packages/", "python/")) and _is_users(file)


def lane_fields(receipt: Receipt) -> dict[str, Scalar]:
    """What must be equal between a receipt and its baseline, beside the name; None: not known."""
    found: dict[str, Scalar] = dict(flatten(receipt.header.lane))
    found.pop("name", None)
    return found


def torch_release(receipt: Receipt) -> str | None:
    """torch's version without the build: "2.13.0" of "2.13.0+cpu"."""
    told = receipt.environment.torch
    return told.partition("+")[0] if told else None


def portable_file(file: str) -> str:
    """The same file on every machine: below the working directory as it is; packages by name."""
    file = file.replace("\\", "/")
    if file.startswith("<"):
        generated = re.match(_GENERATED, file)
        if generated is not None:
            return generated[0]
    for part, pattern, root in (
        ("-packages/", _INSTALLED, "site-packages/"),
        ("/python3", _STANDARD, "python/"),
    ):
        found = re.match(pattern, file, re.DOTALL) if part in file else None
        if found is not None:
            return root + file[found.end() :]
    if not file.startswith(("/", "~")) and file[1:3] != ":/":
        return file
    return "/".join(["...", *file.split("/")[-_FOLDERS_KEPT:]])


def portable_text(text: str) -> str:
    """The text without addresses and ids of objects, which differ in every run."""
    return _ADDRESS.sub("...", text)


def _causes(
    receipt: Receipt, owners: Mapping[str, bool] | None
) -> dict[CauseKey, list[tuple[CompileEvent, EventCause]]]:
    found: dict[CauseKey, list[tuple[CompileEvent, EventCause]]] = {}
    for event in receipt.compile.events:
        seen: set[CauseKey] = set()
        for cause in event.causes:
            key = _portable_cause(keys.cause_key(cause))
            if key not in seen and _counts(cause.file, owners):
                seen.add(key)
                found.setdefault(key, []).append((event, cause))
    return found


def _portable_cause(key: CauseKey) -> CauseKey:
    file = portable_file(key.file) if key.file is not None else None
    return CauseKey(key.rule, portable_text(key.variable), file, key.function)


def _breaks(
    receipt: Receipt, owners: Mapping[str, bool] | None
) -> dict[BreakKey, list[GraphBreak]]:
    found: dict[BreakKey, list[GraphBreak]] = {}
    for item in receipt.compile.breaks:
        if _break_counts(receipt, item, owners):
            function = keys.function_key(item.function)
            title = portable_text(item.reason)
            key = BreakKey(portable_file(item.file), function, item.category, title)
            found.setdefault(key, []).append(item)
    return found


def _frames(
    receipt: Receipt, owners: Mapping[str, bool] | None
) -> tuple[dict[FrameKey, FrameTotal], dict[FrameKey, str]]:
    totals: dict[FrameKey, FrameTotal] = {}
    files: dict[FrameKey, str] = {}
    for told, total in keys.frames(receipt).items():
        if not _counts(told.file, owners):
            continue
        key = FrameKey(portable_file(told.file), told.function)
        known = totals.get(key)
        files.setdefault(key, told.file)
        totals[key] = total if known is None else _added(known, total)
    return totals, files


def _added(one: FrameTotal, other: FrameTotal) -> FrameTotal:
    """Two files that have one portable name."""
    return FrameTotal(
        compiles=one.compiles + other.compiles,
        ran_eager=one.ran_eager or other.ran_eager,
        line=one.line,
        eager_reason=one.eager_reason or other.eager_reason,
    )


def _recompiles(receipt: Receipt) -> dict[FrameKey, int]:
    found: dict[FrameKey, int] = {}
    for event in receipt.compile.events:
        if event.kind == "recompile":
            function = keys.function_key(event.frame.function)
            key = FrameKey(portable_file(event.frame.file), function)
            found[key] = found.get(key, 0) + 1
    return found


def _own_counts(receipt: Receipt, owners: Mapping[str, bool]) -> dict[str, int]:
    """The counts that can be told apart by file. A recompile is of the user's own code if the
    frame or any of its causes is."""
    part = receipt.compile
    frames = [item for item in part.frames_detail if _counts(item.frame.file, owners)]
    events = [item for item in part.events if _counts(item.frame.file, owners)]
    again = [
        item
        for item in part.events
        if item.kind == "recompile"
        and any(_counts(file, owners) for file in (item.frame.file, *_files_of(item)))
    ]
    breaks = [item for item in part.breaks if _break_counts(receipt, item, owners)]
    return {
        "frames": len(frames),
        "compiles": sum(item.compiles for item in frames),
        "recompiles": len(again),
        "graphs": sum(1 for item in events if item.graph_ops),
        "graph_breaks": len({(item.file, item.line) for item in breaks}),
        "eager_fallbacks": sum(1 for item in frames if item.ran_eager),
    }


def _files_of(event: CompileEvent) -> list[str]:
    return [cause.file for cause in event.causes if cause.file is not None]


def _owners(receipt: Receipt) -> dict[str, bool]:
    """Whether a file is the user's own, where the receipt says so."""
    found: dict[str, bool] = {}
    for site in receipt.compile.breaks:
        if site.ownership is not None:
            found[site.file] = site.ownership == "user"
    for finding in receipt.findings:
        if finding.ownership is not None and finding.location is not None:
            found[finding.location.file] = finding.ownership == "user"
    return found


def _break_counts(receipt: Receipt, site: GraphBreak, owners: Mapping[str, bool] | None) -> bool:
    """A break at a line of torch is the user's where the line to change is."""
    if _counts(site.file, owners):
        return True
    finding = finding_of_break(receipt, site)
    return finding is not None and finding.ownership == "user"


def _counts(file: str | None, owners: Mapping[str, bool] | None) -> bool:
    """Whether what is at a file counts; what has no file belongs to nobody else."""
    if owners is None or file is None:
        return True
    return owners[file] if file in owners else _is_users(file)


def _is_users(file: str) -> bool:
    # Asked only where the user's own code is told apart: other gates need not know who owns what.
    from compilediag.diagnosis.ownership import ownership_of

    return ownership_of(file) == "user"
