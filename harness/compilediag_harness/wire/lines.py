"""Every kind of event, and how one becomes a line of JSON at little cost."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, cast, get_args

from compilediag_harness.wire.calls import (
    CompiledCallsMade,
    DisabledCallsEnded,
    HooksFound,
    SyncsSampled,
)
from compilediag_harness.wire.compiles import (
    CollectivesPlanned,
    Compiled,
    CompileStarted,
    CudagraphRecorded,
    CudagraphsRan,
    DynamoReset,
    FrameSkipped,
    GraphBroke,
    WarningSeen,
)
from compilediag_harness.wire.fixed_shapes import (
    FixedShapeCompiled,
    FixedShapeUsed,
    FixedShapeWarmed,
    KneeMeasured,
    PaddingChecked,
    RowsRun,
)
from compilediag_harness.wire.guards import HazardsChecked, Recompiled, UnguardedChanged
from compilediag_harness.wire.process import (
    EnvironmentRead,
    EvidenceLost,
    FaultOccurred,
    ProcessEnded,
    ProcessStarted,
    TorchSeen,
)
from compilediag_harness.wire.steps import (
    DeviceMemoryRead,
    DeviceStepsTimed,
    ProfileEnded,
    SpanEnded,
    SpansEnded,
    StepsEnded,
)
from compilediag_harness.wire.user_events import (
    AblationWritten,
    CadenceAsked,
    CadenceDeclared,
    CadenceFired,
    PipelineWorked,
    RunTracked,
    TrackedRunsLeftOut,
)

Event = (
    ProcessStarted
    | TorchSeen
    | EnvironmentRead
    | ProcessEnded
    | EvidenceLost
    | FaultOccurred
    | CompileStarted
    | Compiled
    | DynamoReset
    | GraphBroke
    | CollectivesPlanned
    | FrameSkipped
    | WarningSeen
    | CudagraphRecorded
    | CudagraphsRan
    | Recompiled
    | HazardsChecked
    | UnguardedChanged
    | StepsEnded
    | SpanEnded
    | SpansEnded
    | DeviceStepsTimed
    | DeviceMemoryRead
    | ProfileEnded
    | CompiledCallsMade
    | DisabledCallsEnded
    | HooksFound
    | SyncsSampled
    | FixedShapeUsed
    | FixedShapeWarmed
    | FixedShapeCompiled
    | PaddingChecked
    | RowsRun
    | KneeMeasured
    | CadenceDeclared
    | CadenceAsked
    | CadenceFired
    | PipelineWorked
    | RunTracked
    | TrackedRunsLeftOut
    | AblationWritten
)

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
"""By the name that `k` of a line says."""


def plain(value: Any) -> Any:
    """A dataclass, recursively, as what `json` understands; faster than `dataclasses.asdict`."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return str(value)


_FIELD_NAMES: dict[type[Any], tuple[str, ...]] = {}
"""Field names per class: `dataclasses.fields` for each record would be half its cost."""


def _shallow(value: Any) -> Any:
    """A dataclass as a dict of its fields, which the JSON encoder walks on itself."""
    kind = cast("type[Any]", type(value))
    names = _FIELD_NAMES.get(kind)
    if names is None:
        if not dataclasses.is_dataclass(value):
            return str(value)
        names = _FIELD_NAMES[kind] = tuple(f.name for f in dataclasses.fields(value))
    return {name: getattr(value, name) for name in names}


def _make_encoder() -> Callable[[Any], str]:
    """`JSONEncoder.encode`, made once instead of once per record where the C encoder is as known.

    Non-finite floats have no JSON spelling; `allow_nan=False` would lose the record, so they are
    written as Python spells them and the reader turns them into null.
    """
    usual = json.JSONEncoder(separators=(",", ":"), default=_shallow).encode
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    quoted: Any = json.encoder.encode_basestring_ascii
    try:
        chunks = make(None, _shallow, quoted, None, ":", ",", False, False, True)
        sample = {"k": [1.5, None, "\u2028"]}
        if "".join(chunks(sample, 0)) == usual(sample):
            return lambda value: "".join(chunks(value, 0))
    except (TypeError, ValueError):
        pass
    return usual


_encode_json = _make_encoder()


def encode(event: Event) -> bytes:
    """One JSON object without a newline: `k` is the kind, the rest the event's fields."""
    try:
        text = _encode_json({"k": type(event).__name__, **_shallow(event)})
    except (TypeError, ValueError):  # a key that JSON does not know
        text = _encode_json({"k": type(event).__name__, **plain(event)})
    return text.encode("utf-8", "backslashreplace")
