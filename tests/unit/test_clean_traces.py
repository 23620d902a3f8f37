"""Cleaned copies of torch's traces: for tlparse, and of processes that compilediag was not attached
to, when the run has ended."""

import hashlib
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tlparse_pieces import HEAD, record, trace

from compilediag.runs.run_directory import ARTIFACTS, TRACES
from compilediag.runs.tools import tlparse
from compilediag.runs.tools.tlparse import Copied, TooLarge, clean_traces, copy_log

TOKEN = "hf_ABCDEFGHIJ0123456789"


@pytest.fixture
def kept_trace(tmp_path: Path) -> Path:
    """A trace with a secret, in the directory of a run."""
    path = tmp_path / ARTIFACTS / TRACES / "dedicated_log_torch_trace_a.log"
    path.parent.mkdir(parents=True)
    payload = f"label == '{TOKEN}' and 'known to be so'"
    digest = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
    metadata = {"artifact": {"name": "recompile_reasons"}, "frame_id": 0, "has_payload": digest}
    path.write_text(f"{HEAD}{json.dumps(metadata)}\n\t{payload}\n")
    return path


def test_traces_of_attached_processes_stay(kept_trace: Path, tmp_path: Path) -> None:
    """They were written without secrets: nothing is read again."""
    before = kept_trace.read_bytes()
    assert clean_traces(str(tmp_path), 1, ("known to be so",)) == ()
    assert kept_trace.read_bytes() == before


def test_others_are_replaced(kept_trace: Path, tmp_path: Path) -> None:
    """By a copy without secrets."""
    assert clean_traces(str(tmp_path), 0, ("known to be so",)) == ()
    text = kept_trace.read_text()
    assert "recompile_reasons" in text
    assert TOKEN not in text
    assert "known to be so" not in text
    assert [item.name for item in kept_trace.parent.iterdir()] == [kept_trace.name]


def test_what_cannot_be_cleaned_goes(kept_trace: Path, tmp_path: Path, monkeypatch) -> None:
    """Rather no trace than one with secrets, and a sentence about it."""

    def refuse(*_: object) -> None:
        raise TooLarge("it is larger than 256 MiB")

    monkeypatch.setattr(tlparse, "copy_log", refuse)
    (note,) = clean_traces(str(tmp_path), 0, ())
    assert note.startswith(kept_trace.name)
    assert "larger than 256 MiB" in note
    assert list(kept_trace.parent.iterdir()) == []


def copied(raw: bytes, *, known: tuple[str, ...] = ()) -> tuple[str, Copied]:
    target = io.BytesIO()
    reported = copy_log([raw], target, known)
    return target.getvalue().decode("utf-8"), reported


def test_good_records_are_kept() -> None:
    """What torch writes arrives with its event first, its ids, its payload and a right digest."""
    text, reported = copied(trace())
    assert (reported.records, reported.left_out) == (4, {})
    lines = text.splitlines()
    assert lines[3] == "\t0/0: n == 2"
    metadata = json.loads(lines[2].partition("] ")[2])
    assert next(iter(metadata)) == "artifact"
    assert metadata["frame_compile_id"] == 1
    assert metadata["has_payload"] == hashlib.md5(b"0/0: n == 2", usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (record({"link": {"name": "x", "url": "javascript:alert(1)"}}), "unknown_event"),
        (record({"dump_file": {"name": "/etc/passwd"}}), "unknown_event"),
        (record({"artifact": {"name": "a"}, "frame_id": -1}), "bad_number"),
        (record({"artifact": {"name": "a"}, "frame_id": "../x"}), "bad_number"),
        (record({"artifact": {"name": "a"}, "attempt": True}), "bad_number"),
        (record("{no json"), "no_record"),
        (record("[1]"), "no_record"),
        (b"noise of another program\n", "no_record"),
        (record("[" * 200_000), "no_record"),
    ],
)
def test_what_is_not_understood_is_left_out_and_counted(raw: bytes, reason: str) -> None:
    """One bad record costs itself, never its neighbours."""
    _, reported = copied(
        trace(raw, record({"artifact": {"name": "last", "encoding": "string"}}, "x"))
    )
    assert (reported.records, reported.left_out) == (5, {reason: 1})


def test_names_and_texts_lose_what_could_act() -> None:
    """Names become words, markup in metadata other signs, control characters blanks, and bytes that
    are no UTF-8 are replaced."""
    evil = {
        "artifact": {"name": "../../x/<b>.html", "encoding": "string"},
        "payload_filename": "/etc",
    }
    metrics = {"compilation_metrics": {"restart_reasons": ["<img src=x onerror=alert(1)>\x1b[2J"]}}
    text, _ = copied(
        record(evil, "a\x1bb") + record(metrics) + b"\xff\xfe" + record({"str": ["x", 1]})
    )
    assert "payload_filename" not in text
    assert '"name": "b_html"' in text or '"name": "_b_html"' in text
    assert not {"<", "\x1b"} & set(text)
    assert "\ta b\n" in text


def test_secrets_are_replaced() -> None:
    """Recognised tokens and known values do not reach the report, in metadata or payload."""
    token = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    artifact = {"artifact": {"name": "recompile_reasons", "encoding": "json"}}
    text, _ = copied(
        record(artifact, f"0/0: L['t'] == '{token}' and hunter2hunter2")
        + record({"compilation_metrics": {"fail_reason": f"{token} hunter2hunter2"}}),
        known=("hunter2hunter2",),
    )
    assert token not in text
    assert "hunter2" not in text


@pytest.mark.parametrize("limit", ["MAX_LOG_BYTES", "MAX_PAYLOADS"])
def test_floods_are_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of which no report of a sensible size can be made is refused with the reason."""
    monkeypatch.setattr(tlparse, limit, 0)
    with pytest.raises(TooLarge, match="0 "):
        copied(trace())


def test_long_lines_and_payloads_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line or payload over its limit costs its record."""
    monkeypatch.setattr(tlparse, "MAX_PAYLOAD_BYTES", 20)
    monkeypatch.setattr(tlparse, "MAX_LINE_BYTES", 600)
    artifact = {"artifact": {"name": "a", "encoding": "string"}}
    long = record({"compilation_metrics": {"x": "y" * 2000}})
    _, reported = copied(trace(record(artifact, "z" * 50), long))
    assert (reported.records, reported.left_out) == (4, {"too_long": 2})


@given(st.binary(max_size=300))
def test_any_bytes_can_be_copied(raw: bytes) -> None:
    """Nothing in a log raises, and what is written is text that splits into records again."""
    text, reported = copied(raw + b"\n" + trace())
    assert (
        reported.records
        == sum(not line.startswith("\t") for line in text.splitlines() if line)
        >= 4
    )
