"""The baseline `compilediag.lock.json`: what each lane is known to do, as types and as text.

Checked in beside the code it is about: small, sorted, one item a line so that git merges it, and
the same from every machine. It holds no line number, no time, no absolute path. Fields of newer
minor versions survive a read and a write.

History
    1.0  the first version
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from msgspec import Struct

from compilediag.compare.keys import BreakKey, CauseKey, FrameKey

SCHEMA = "compilediag.lock"
SCHEMA_VERSION = "1.0"
LOCK_NAME = "compilediag.lock.json"

Scalar: TypeAlias = str | int | float | bool | None

NOTHING: Mapping[str, Any] = MappingProxyType({})


class KnownCause(Struct, frozen=True):
    """A cause of recompiles that is allowed."""

    key: CauseKey
    recompiles: int
    """In how many it had a part."""
    reason: str | None = None
    """Why it is allowed; None where nobody said."""
    unknown: Mapping[str, Any] = NOTHING


class KnownBreak(Struct, frozen=True):
    """Graph-break sites that are allowed."""

    key: BreakKey
    sites: int
    reason: str | None = None
    """Why they are allowed; torch's own reason is in the key."""
    unknown: Mapping[str, Any] = NOTHING


class KnownFrame(Struct, frozen=True):
    """A frame and how often it is compiled."""

    key: FrameKey
    compiles: int
    recompiles: int = 0
    """Of these compiles."""
    unknown: Mapping[str, Any] = NOTHING


class KnownFallback(Struct, frozen=True):
    """A frame that torch runs eager, and that is allowed to."""

    key: FrameKey
    reason: str | None = None
    unknown: Mapping[str, Any] = NOTHING


class LaneBaseline(Struct, frozen=True):
    """What one lane is known to do."""

    name: str
    fields: Mapping[str, Scalar]
    """What must be equal to be judged by it: "precision", "numerics_flags.backend"..."""
    counts: Mapping[str, int]
    causes: tuple[KnownCause, ...] = ()
    breaks: tuple[KnownBreak, ...] = ()
    frames: tuple[KnownFrame, ...] = ()
    fallbacks: tuple[KnownFallback, ...] = ()
    recordings: int | None = None
    """Of CUDA graphs; None where they were not measured or there was no device."""
    torch: str | None = None
    """The version it was recorded with, without its build; for information."""
    unknown: Mapping[str, Any] = NOTHING


class Baseline(Struct, frozen=True):
    """All lanes of a baseline, by name."""

    lanes: tuple[LaneBaseline, ...] = ()
    schema_version: str = SCHEMA_VERSION
    unknown: Mapping[str, Any] = NOTHING

    def lane(self, name: str) -> LaneBaseline | None:
        """The lane of this name."""
        return next((lane for lane in self.lanes if lane.name == name), None)

    def with_lanes(self, changed: Iterable[LaneBaseline]) -> Baseline:
        """These lanes added, or put in the place of those of their name; all others as they are."""
        lanes = {lane.name: lane for lane in (*self.lanes, *changed)}
        return Baseline(
            tuple(lanes[name] for name in sorted(lanes)), self.schema_version, self.unknown
        )


def read(text: str, name: str = LOCK_NAME) -> Baseline:
    """The baseline that a file holds; `name` is what errors call it.

    Raises:
        BaselineUnreadable: it is no baseline, is damaged, holds unresolved merge conflicts or two
            lanes of one name, or a newer major version wrote it.
    """
    from compilediag.compare.gate.lock_reader import lock_of

    return lock_of(text, name)


def text_of(lock: Baseline) -> str:
    """The file of a baseline: the same text for the same content, whatever its order was."""
    document: dict[str, Any] = {"schema": SCHEMA, "schema_version": lock.schema_version}
    lanes = sorted(lock.lanes, key=lambda lane: lane.name)
    document["lanes"] = {lane.name: _lane(lane) for lane in lanes}
    return _lines({**document, **lock.unknown}, "") + "\n"


def _lane(lane: LaneBaseline) -> dict[str, Any]:
    causes = sorted(lane.causes, key=lambda item: _order(item.key.file, item.key.function, item))
    breaks = sorted(lane.breaks, key=lambda item: _order(item.key.file, item.key.function, item))
    frames = sorted(lane.frames, key=lambda item: _order(item.key.file, item.key.function, item))
    eager = sorted(lane.fallbacks, key=lambda item: _order(item.key.file, item.key.function, item))
    return {
        "lane": dict(sorted(lane.fields.items())),
        "torch": lane.torch,
        "counts": dict(lane.counts),
        "recordings": lane.recordings,
        "causes": [_cause(item) for item in causes],
        "breaks": [_break(item) for item in breaks],
        "frames": [_frame(item) for item in frames],
        "fallbacks": [_fallback(item) for item in eager],
        **lane.unknown,
    }


def _order(file: str | None, function: str | None, item: Any) -> tuple[str, str, str]:
    return file or "", function or "", repr(item.key)


def _cause(item: KnownCause) -> dict[str, Any]:
    key = item.key
    plain = {"rule": key.rule, "variable": key.variable, "file": key.file, "function": key.function}
    return {**plain, "recompiles": item.recompiles, **_why(item.reason), **item.unknown}


def _break(item: KnownBreak) -> dict[str, Any]:
    key = item.key
    plain = {"title": key.reason, "category": key.category, "file": key.file}
    plain["function"] = key.function
    return {**plain, "sites": item.sites, **_why(item.reason), **item.unknown}


def _frame(item: KnownFrame) -> dict[str, Any]:
    again = {"recompiles": item.recompiles} if item.recompiles else {}
    plain = {"file": item.key.file, "function": item.key.function, "compiles": item.compiles}
    return {**plain, **again, **item.unknown}


def _fallback(item: KnownFallback) -> dict[str, Any]:
    plain = {"file": item.key.file, "function": item.key.function}
    return {**plain, **_why(item.reason), **item.unknown}


def _why(reason: str | None) -> dict[str, Any]:
    return {} if reason is None else {"reason": reason}


def _lines(value: Any, indent: str) -> str:
    """JSON with one key a line, and one element of a list a line, however large the element."""
    from json import dumps

    inner = indent + " "
    if isinstance(value, Mapping) and value:
        items = cast(Mapping[str, Any], value).items()
        rows = [f"{inner}{dumps(key)}: {_lines(item, inner)}" for key, item in items]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and value:
        rows = [f"{inner}{dumps(item)}" for item in cast(Sequence[Any], value)]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    return dumps(value)
