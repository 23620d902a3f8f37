"""Every event as a frozen dataclass with its JSON line: the only contract between the halves.

An event says what happened in one process, in torch's own words. `t` is in seconds on the
monotonic clock, counted from the moment the process attached; `step` is the step in progress
(0 for the first). Text that comes from the target is stored as it is, bounded in length, and
redacted and escaped by the outside half, never here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

WIRE_VERSION = 1

TEXT_LIMIT = 16_384
"""Longest text of the target kept in one field, in characters."""


@dataclass(frozen=True, slots=True)
class Location:
    """A line of code. `function` is the code object's name, as torch prints it."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """What only the live process could know about a false guard; None where it could not tell."""

    root: str | None = None
    """Where the source starts: "argument", "global", "free_variable" (of the compiled function)."""
    instance_changed: bool | None = None
    """The guarded root object is another object than the one the cache entry was compiled with."""
    free_variable: str | None = None
    """Name of the closure cell's variable, when the source passes through a cell."""
    holder_kind: str | None = None
    """What the last hop is read from: "module", "optimizer", "namedtuple", "dict", "object"..."""
    holder_type: str | None = None
    """Class name of that holder, such as "PositionalEncoding"."""
    holder_path: str | None = None
    """The holder as the user would spell it below the compiled module, such as "pos"."""
    value_type: str | None = None
    """Type of the value now, such as "bool", "torch.Tensor", "NoneType"."""
    is_enum: bool | None = None
    member_type: str | None = None
    """For a check that an object has an attribute or a container a key: the type of that member
    now, when it is there."""


@dataclass(frozen=True, slots=True)
class FalseGuard:
    """One guard of a cache entry that was false, or about to be."""

    source: str
    """The guarded value as Python source in the scope {L, G}; "" when torch did not tell."""
    leaf: str
    """Class of the leaf guard ("TENSOR_MATCH"), "SHAPE" for a symbolic shape condition, or
    "PRINTED" for a failure that only torch's printed reason tells."""
    text: str
    """The guard as torch prints it, without the trailing comments."""
    expected: str | None = None
    actual: str | None = None
    user: Location | None = None
    """The user's line that made Dynamo install the guard."""
    hint: str | None = None
    facts: GuardFacts = field(default_factory=GuardFacts)
    writers: tuple[Location, ...] = ()
    """Functions of the running program that write the guarded variable."""


@dataclass(frozen=True, slots=True)
class EntryDiff:
    """All false guards of one cache entry, in guard order."""

    compile_id: str
    guards: tuple[FalseGuard, ...]
    checked: int = 0
    unevaluated: int = 0
    """Leaf guards that could not be evaluated from Python."""


# --- the process -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """The process attached; the first record of every journal."""

    t: float
    wire_version: int
    pid: int
    parent_pid: int
    rank: int | None
    world_size: int | None
    argv: tuple[str, ...]
    executable: str
    cwd: str
    started_utc: str
    """ISO 8601, from the wall clock: for display only."""
    python: str


@dataclass(frozen=True, slots=True)
class TorchSeen:
    """torch was imported and the collectors were installed."""

    t: float
    torch: str
    torch_git: str | None
    hooks: dict[str, bool]
    """Hook name to available, for every private name `torch_api` knows."""
    lost: dict[str, str]
    """For each missing hook, what cannot be observed without it."""


@dataclass(frozen=True, slots=True)
class EnvironmentRead:
    """Machine, versions and the flags that change numbers or speed; see `environment.py`."""

    t: float
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The process is about to end in an orderly way; absent after SIGKILL or `os._exit`."""

    t: float
    counters: dict[str, int]
    """torch's own totals, to reconcile with: metrics_rows, frames_total, frames_ok,
    unique_graphs, recompile_calls, break_records."""
    collector_s: float
    records_dropped: int
    host_peak_bytes: int | None
    failure: str | None = None
    """Text of the exception that ends the process, if one was seen."""


# --- compiles --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompileStarted:
    """Dynamo, a lazy backward or a CUDA-graph recording began to compile."""

    t: float
    step: int
    trigger: str
    compile_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """One compilation metrics row of torch: an attempt to compile one frame ended."""

    t: float
    step: int
    compile_id: str
    """As torch spells it: "0/1", "0/0_1" for a restart, "!1/1/0" under compiled autograd."""
    epoch: int
    """Advanced by `torch._dynamo.reset()`, after which ids start again at 0/0."""
    frame: Location
    forward: bool
    guarded: bool
    """The attempt ended with guarded code."""
    seconds: float
    """Wall seconds of the attempt, our own analysis inside it taken out."""
    backend_s: float | None
    graph_ops: int | None
    guards: int | None
    cache_size: int | None
    recompile_reason: str | None
    fail_type: str | None
    fail_reason: str | None
    restart_reasons: tuple[str, ...] = ()
    limit: int | None = None
    """`torch._dynamo.config.recompile_limit` in force."""
    guard_eval_us: float | None = None


@dataclass(frozen=True, slots=True)
class Recompiled:
    """torch asked why no cache entry of a frame fits: the attempt to compile it again begins."""

    t: float
    step: int
    compile_id: str
    epoch: int
    frame: Location
    reasons: tuple[str, ...]
    """torch's printed reasons, one per cache entry, most recently used entry first."""
    entries: tuple[EntryDiff, ...]
    """All false guards of every live entry, in torch's order; empty when that was impossible."""
    analysis_s: float
    problem: str | None = None
    """Why the entries could not be analysed, if so."""


@dataclass(frozen=True, slots=True)
class DynamoReset:
    """`torch._dynamo.reset()` was called: ids restart, the epoch advances to `epoch`."""

    t: float
    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class GraphBroke:
    """torch reported a graph break; `text` is torch's whole report of it."""

    t: float
    step: int
    compile_id: str
    epoch: int
    text: str
    repeated: bool = False
    """torch suppressed the stack because it had printed this break before."""


@dataclass(frozen=True, slots=True)
class FrameSkipped:
    """Dynamo decided not to compile a frame it was asked to, without a metrics row."""

    t: float
    step: int
    frame: Location
    reason: str


@dataclass(frozen=True, slots=True)
class WarningSeen:
    """A warning of torch's compile loggers (recompile limit, suppressed errors, CUDA graphs...)."""

    t: float
    step: int
    compile_id: str
    logger: str
    text: str


# --- hazards ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HazardsChecked:
    """After a step in which something compiled, guards already false were looked for."""

    t: float
    step: int
    frame: Location
    guards: tuple[FalseGuard, ...]
    """Guards of the most recently used entry that are false now: armed causes."""
    checked: int
    unevaluated: int
    seconds: float
    skipped: str | None = None
    """Why the check was not made or not finished ("over 50 ms"), if so."""


@dataclass(frozen=True, slots=True)
class UnguardedChanged:
    """Hooks or methods of a compiled module changed after its compile; no guard sees it."""

    t: float
    step: int
    frame: Location
    what: str
    """"forward_hook", "forward_pre_hook", "class_method", "instance_method"."""
    target: str
    """Module path and name, such as "encoder.layer0" or "Block.forward"."""
    where: Location | None


# --- steps and spans -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepsEnded:
    """A batch of finished steps, in order; tuples are parallel, in seconds."""

    t: float
    first: int
    source: str
    """What marked the steps: "step()", "optimizer", "call" (outermost compiled call)."""
    ends: tuple[float, ...]
    walls: tuple[float, ...]
    data_wait: tuple[float, ...] = ()
    optimizer: tuple[float, ...] = ()
    spans: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SpanEnded:
    """A named stretch of the run ended. Nested spans carry their depth; inner time is not the
    outer's when goodput is added up."""

    t: float
    step: int
    name: str
    start: float
    wall_s: float
    depth: int
    thread: int


# --- faults ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvidenceLost:
    """A source of evidence stopped telling: a silenced logger, a removed handler, a lost hook."""

    t: float
    step: int
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class FaultOccurred:
    """A fault of ours, caught before it could reach the user."""

    t: float
    where: str
    error: str


Event = (
    ProcessStarted
    | TorchSeen
    | EnvironmentRead
    | ProcessEnded
    | CompileStarted
    | Compiled
    | Recompiled
    | DynamoReset
    | GraphBroke
    | FrameSkipped
    | WarningSeen
    | HazardsChecked
    | UnguardedChanged
    | StepsEnded
    | SpanEnded
    | EvidenceLost
    | FaultOccurred
)

KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        ProcessStarted,
        TorchSeen,
        EnvironmentRead,
        ProcessEnded,
        CompileStarted,
        Compiled,
        Recompiled,
        DynamoReset,
        GraphBroke,
        FrameSkipped,
        WarningSeen,
        HazardsChecked,
        UnguardedChanged,
        StepsEnded,
        SpanEnded,
        EvidenceLost,
        FaultOccurred,
    )
}


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """`text`, cut to `limit` characters with the number of lost ones said."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [{len(text) - limit} more characters]"


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
