"""Records of a receipt made by hand; what few tests ask about is empty."""

from collections.abc import Mapping
from typing import Any

import msgspec

from compilediag.receipt.schema.compiles import (
    CompileEvent,
    EventCause,
    FindingRecord,
    FixRecord,
    FrameName,
    PassedArgument,
    UserCallRecord,
)
from compilediag.receipt.schema.receipt import Receipt

_FINDING = FindingRecord(
    id="F1",
    rule="CD107",
    slug="slug",
    severity="warning",
    confidence="exact",
    family="",
    variable=None,
    location=None,
    ownership="user",
    count=1,
    steps=(),
    cost_s=None,
    evidence={},
    fix=FixRecord(summary="", how=""),
)
_CAUSE = EventCause(
    family="",
    source="",
    variable="",
    guard="",
    expected=None,
    actual=None,
    file=None,
    line=None,
    function=None,
    primary=True,
    finding="F1",
)
_EVENT = CompileEvent(
    compile_id="0/1",
    epoch=0,
    frame=FrameName(function="forward", file="model.py", line=13),
    step=1,
    kind="recompile",
    seconds=1.0,
    graph_ops=3,
    guards=1,
)


def finding_record(**changes: Any) -> FindingRecord:
    return msgspec.structs.replace(_FINDING, **changes)


def event_cause(**changes: Any) -> EventCause:
    return msgspec.structs.replace(_CAUSE, **changes)


def compile_event(*causes: EventCause, **changes: Any) -> CompileEvent:
    return msgspec.structs.replace(_EVENT, causes=causes, **changes)


def entered(arguments: Mapping[str, str], line: int = 7, **more: Any) -> UserCallRecord:
    """A call of the program that passes an expression for each parameter."""
    passed = tuple(PassedArgument(parameter=k, expression=v) for k, v in arguments.items())
    return UserCallRecord(**{"file": "train.py", "line": line, "arguments": passed, **more})


def of_files(whole: Receipt, *files: str, **changes: Any) -> Receipt:
    """The receipt as one of a program of these files, with other parts changed."""
    digests = dict.fromkeys(files, "0")
    provenance = msgspec.structs.replace(whole.header.provenance, source_sha256=digests)
    header = msgspec.structs.replace(whole.header, provenance=provenance)
    return msgspec.structs.replace(whole, header=header, **changes)
