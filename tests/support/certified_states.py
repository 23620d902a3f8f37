"""Executed states built by hand, for the tests of certificates."""

import base64
import struct
from dataclasses import replace
from typing import Any

import msgspec

from compilediag.certify.points import ExecutedState
from compilediag.receipt.schema.compiles import CompileSection
from compilediag.timeline.invocations import Step
from compilediag_harness.wire import (
    CALL_FORMAT,
    CallDigest,
    CallsRecorded,
    CallVaried,
    LinesPrinted,
    Location,
    RandomStateRead,
    RecordingStarted,
    SampledValue,
    StateRead,
    ValuesSaved,
)
from tests.support.built_receipt import built
from tests.support.timelines import WHERE, attempt, process, timeline

FILE = WHERE.file
STRUCTURE = "(float32[4,8])"


def digest(value: float, exact: int = 7) -> CallDigest:
    return CallDigest(value, 2 * value, 1.0, exact)


def calls(
    *values: float | CallDigest,
    function: Location = WHERE,
    structure: str = STRUCTURE,
    process: int = 0,
    number: int = 0,
    eager: tuple[int, ...] = (),
) -> CallsRecorded:
    """Calls of one callable that returned these; `number`: the callables before it."""
    rows = [value if isinstance(value, CallDigest) else digest(value) for value in values]
    content = b"".join(
        struct.pack(CALL_FORMAT, number, number, row.total, row.weighted, row.magnitude, row.exact)
        for row in rows
    )
    text = base64.b64encode(content).decode()
    return replace(CallsRecorded(0.0, (function,), (structure,), text, eager), process=process)


def printed(*lines: str, stream: str = "stdout") -> LinesPrinted:
    return LinesPrinted(9.0, stream, lines)


def tensor(path: str, *values: float, dtype: str = "float32", **more: Any) -> SampledValue:
    norm = sum(value * value for value in values) ** 0.5
    facts: dict[str, Any] = {
        "shape": (len(values),),
        "norm": norm,
        "largest": max(map(abs, values)),
        "digest": repr(values),
        **more,
    }
    return SampledValue(path, "tensor", dtype, values=values, **facts)


def number(path: str, value: float, dtype: str = "float") -> SampledValue:
    return SampledValue(path, "number", dtype, (), (value,), digest=repr(value))


def held(*values: SampledValue, module: str = "Model", **more: Any) -> StateRead:
    return StateRead(9.0, module, values, **more)


def saved(*values: SampledValue, file: str = "model.pt") -> ValuesSaved:
    return ValuesSaved(9.0, "torch.save", file, values)


def varied(variation: str, value: float | None = 1.0, **more: Any) -> CallVaried:
    """A call made again; it raised where it has no value."""
    digests = () if value is None else (digest(value),)
    raised = "RuntimeError: no" if value is None else None
    facts: dict[str, Any] = {"function": WHERE, "call": "training", "number": 3, "compiles": 0}
    facts |= {"variation": variation, "structure": STRUCTURE, "digest": digests, "raised": raised}
    return CallVaried(9.0, **{**facts, **more})


def state(*events: Any, steps: int = 3, problem: str | None = None, **more: Any) -> ExecutedState:
    """An execution with these records, by their kind."""
    fields = {
        CallsRecorded: "recorded_calls",
        LinesPrinted: "printed",
        StateRead: "held_states",
        ValuesSaved: "saved",
        CallVaried: "varied_calls",
        RandomStateRead: "random_states",
    }
    facts: dict[str, Any] = {
        "recordings": (RecordingStarted(0.0, 5),),
        "processes": (process(),),
        "steps": tuple(
            Step(0, n, float(n), 0.01, None, None, None, 0.0, source="optimizer")
            for n in range(steps)
        ),
        "random_states": (RandomStateRead(9.0, (("torch", "a"),)),),
    }
    for kind, name in fields.items():
        records = tuple(event for event in events if isinstance(event, kind))
        if records:
            facts[name] = records
    facts |= more
    receipt = facts.pop("receipt", built())
    return ExecutedState(receipt, timeline([attempt("0/0")], **facts), problem)


def compiled(recompiles: int) -> Any:
    """A receipt with so many recompiles."""
    section = CompileSection(
        frames=1,
        compiles=1 + recompiles,
        recompiles=recompiles,
        graphs=1 + recompiles,
        graph_breaks=0,
        eager_fallbacks=0,
        recompile_limit_hits=0,
    )
    return msgspec.structs.replace(built(), compile=section)
