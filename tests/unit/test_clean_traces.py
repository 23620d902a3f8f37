"""Traces of processes that compilediag was not attached to are cleaned when the run has ended."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from compilediag.runs.run_directory import ARTIFACTS, TRACES
from compilediag.runs.supervised import reports
from compilediag.runs.supervised.reports import clean_traces
from compilediag.runs.tools.tlparse_log import TooLarge

HEAD = "V1121 14:11:01.404000 100 torch/_dynamo/utils.py:2009] "
TOKEN = "hf_ABCDEFGHIJ0123456789"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace with a secret, in the directory of a run."""
    path = tmp_path / ARTIFACTS / TRACES / "dedicated_log_torch_trace_a.log"
    path.parent.mkdir(parents=True)
    payload = f"label == '{TOKEN}' and 'known to be so'"
    digest = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
    metadata = {"artifact": {"name": "recompile_reasons"}, "frame_id": 0, "has_payload": digest}
    path.write_text(f"{HEAD}{json.dumps(metadata)}\n\t{payload}\n")
    return path


def test_traces_of_attached_processes_stay(trace: Path, tmp_path: Path) -> None:
    """They were written without secrets: nothing is read again."""
    before = trace.read_bytes()
    assert clean_traces(str(tmp_path), 1, ("known to be so",)) == ()
    assert trace.read_bytes() == before


def test_others_are_replaced(trace: Path, tmp_path: Path) -> None:
    """By a copy without secrets."""
    assert clean_traces(str(tmp_path), 0, ("known to be so",)) == ()
    text = trace.read_text()
    assert "recompile_reasons" in text
    assert TOKEN not in text
    assert "known to be so" not in text
    assert [item.name for item in trace.parent.iterdir()] == [trace.name]


def test_what_cannot_be_cleaned_goes(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather no trace than one with secrets, and a sentence about it."""

    def refuse(*_: object) -> None:
        raise TooLarge("it is larger than 256 MiB")

    monkeypatch.setattr(reports, "copy_log", refuse)
    (note,) = clean_traces(str(tmp_path), 0, ())
    assert note.startswith(trace.name)
    assert "larger than 256 MiB" in note
    assert list(trace.parent.iterdir()) == []
