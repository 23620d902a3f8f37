"""The only contract between the halves: every event as a frozen dataclass, with its JSON line.

An event says what happened in one process, in torch's own words. `t` is in seconds on the
monotonic clock, counted from the moment the process attached; `step` is the step in progress
(0 for the first). Text that comes from the target is stored as it is, bounded in length, and
redacted and escaped by the outside half, never here.
"""

from __future__ import annotations

from compilediag_harness.wire.calls import (
    CompiledCallsMade,
    DisabledCallsEnded,
    HooksFound,
    PackedBuffer,
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
from compilediag_harness.wire.guards import (
    EntryDiff,
    FalseGuard,
    GuardFacts,
    HazardsChecked,
    Recompiled,
    UnguardedChanged,
)
from compilediag_harness.wire.lines import KINDS, Event, encode, plain
from compilediag_harness.wire.process import (
    EnvironmentRead,
    EvidenceLost,
    FaultOccurred,
    ProcessEnded,
    ProcessStarted,
    TorchSeen,
)
from compilediag_harness.wire.quoted import TEXT_LIMIT, Location, clip
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
    TrackedMetric,
    TrackedRunsLeftOut,
)

WIRE_VERSION = 1

__all__ = [
    "KINDS",
    "TEXT_LIMIT",
    "WIRE_VERSION",
    "AblationWritten",
    "CadenceAsked",
    "CadenceDeclared",
    "CadenceFired",
    "CollectivesPlanned",
    "CompileStarted",
    "Compiled",
    "CompiledCallsMade",
    "CudagraphRecorded",
    "CudagraphsRan",
    "DeviceMemoryRead",
    "DeviceStepsTimed",
    "DisabledCallsEnded",
    "DynamoReset",
    "EntryDiff",
    "EnvironmentRead",
    "Event",
    "EvidenceLost",
    "FalseGuard",
    "FaultOccurred",
    "FixedShapeCompiled",
    "FixedShapeUsed",
    "FixedShapeWarmed",
    "FrameSkipped",
    "GraphBroke",
    "GuardFacts",
    "HazardsChecked",
    "HooksFound",
    "KneeMeasured",
    "Location",
    "PackedBuffer",
    "PaddingChecked",
    "PipelineWorked",
    "ProcessEnded",
    "ProcessStarted",
    "ProfileEnded",
    "Recompiled",
    "RowsRun",
    "RunTracked",
    "SpanEnded",
    "SpansEnded",
    "StepsEnded",
    "SyncsSampled",
    "TorchSeen",
    "TrackedMetric",
    "TrackedRunsLeftOut",
    "UnguardedChanged",
    "WarningSeen",
    "clip",
    "encode",
    "plain",
]
