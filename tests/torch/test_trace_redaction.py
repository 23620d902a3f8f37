"""torch's own trace without secrets, where the run switched it on; elsewhere as torch writes it."""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch._logging._internal as internal

from compilediag_harness.base.session import Session
from compilediag_harness.collectors import logs
from compilediag_harness.collectors.logs import RedactedTrace, redact_record
from compilediag_harness.wire import Event, FaultOccurred

TOKEN = "hf_ABCDEFGHIJ0123456789"


def record(metadata: Any, payload: str | None = None) -> logging.LogRecord:
    """One record as torch hands it to its handlers."""
    made = logging.LogRecord("torch.__trace", logging.DEBUG, "a.py", 1, "", None, None)
    if payload is not None:
        metadata = {**metadata, "has_payload": digest(payload)}
    vars(made).update(metadata=metadata, payload=payload)
    return made


def digest(payload: str) -> str:
    return hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()


def test_metadata_and_payload_lose_their_secrets() -> None:
    """The digest is that of what is written, and the record itself stays for other handlers."""
    metadata = {
        "artifact": {"name": "x", "where": [TOKEN, ("a", 3)]},
        "str": (f"password = 'swordfish' {TOKEN}", 1),
        "credentials": {"deep": ["swordfish"]},
        "frame_id": 0,
        "key": "fz7q3l5xk4vn2b6m9c8w0s1d",
    }
    before = record(metadata, f"if label == '{TOKEN}':\n\treturn 1")
    after: Any = redact_record(before)
    text = json.dumps(after.metadata) + after.payload
    assert TOKEN not in text
    assert "swordfish" not in text
    assert after.metadata["has_payload"] == digest(after.payload)
    assert (after.metadata["frame_id"], after.metadata["key"]) == (0, metadata["key"])
    assert vars(before)["metadata"]["artifact"]["where"][0] == TOKEN
    assert TOKEN in vars(before)["payload"]


@pytest.mark.parametrize("payload", [None, "", "def call(args):\n    return args[0] + 1"])
def test_a_record_without_secrets_is_written_as_torch_writes_it(payload: str | None) -> None:
    """Byte by byte, its digest too."""
    plain = internal.TorchLogsFormatter(trace=True)
    made = record({"artifact": {"name": "x", "n": 1.5, "none": None}, "frame_id": 0}, payload)
    session = Session(lambda event: None)
    assert RedactedTrace(plain, session).format(made) == plain.format(made)


def test_a_fault_of_ours_costs_the_record_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written unredacted, and nothing reaches the program."""

    def fail(_: object) -> None:
        raise RuntimeError("no")

    events: list[Event] = []
    monkeypatch.setattr(logs, "redact_record", fail)
    formatter = RedactedTrace(internal.TorchLogsFormatter(trace=True), Session(events.append))
    assert formatter.format(record({"artifact": TOKEN})) == ""
    assert [type(event) for event in events] == [FaultOccurred]


@pytest.fixture
def handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> internal.LazyTraceHandler:
    """The handler of a trace that goes to "traces"."""
    made = internal.LazyTraceHandler(str(tmp_path / "traces"))
    made.setFormatter(internal.TorchLogsFormatter(trace=True))
    monkeypatch.setattr(internal, "LOG_TRACE_HANDLER", made)
    return made


def test_a_handler_that_is_not_found_is_a_fault(monkeypatch, tmp_path: Path) -> None:
    """Where the run switched the trace on and this torch writes it in another way."""
    events: list[Event] = []
    session = Session(events.append)
    session.trace_folder = str(tmp_path)
    monkeypatch.delattr(internal, "LOG_TRACE_HANDLER")
    monkeypatch.delenv("TORCH_TRACE", raising=False)
    logs.redact_trace(session)
    assert events == []
    monkeypatch.setenv("TORCH_TRACE", str(tmp_path))
    logs.redact_trace(session)
    (fault,) = events
    assert isinstance(fault, FaultOccurred)
    assert fault.where == logs.FAULT


def test_only_the_trace_of_the_run_is_wrapped(handler: internal.LazyTraceHandler, tmp_path) -> None:
    """One that the user switched on goes elsewhere; wrapped once, and put back."""
    formatter = handler.formatter
    session = Session(lambda event: None)
    for folder in (None, str(tmp_path / "elsewhere")):
        session.trace_folder = folder
        logs.redact_trace(session)
        assert handler.formatter is formatter
    session.trace_folder = str(tmp_path / "traces")
    for _ in range(2):
        logs.redact_trace(session)
        assert isinstance(handler.formatter, RedactedTrace)
        assert handler.formatter.formatter is formatter
    logs.restore_trace(session)
    assert handler.formatter is formatter
