"""tlparse as a child: a cleaned copy, a fresh folder, limits; and its counts against ours.

Most tests use a stand-in for the program, so that crashes, hangs and garbage can be had; those with
the real one skip where it is not installed.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timelines import attempt, process, timeline
from tlparse_pieces import GOOD, ids, one, record, run_of_two, stand_in, trace

from compilediag.runs.supervised.reports import (
    NO_TRACE,
    link_reports,
    traces_in,
)
from compilediag.runs.tools import tlparse_log
from compilediag.runs.tools.tlparse_counts import differences, read_counts
from compilediag.runs.tools.tlparse_log import Copied, TooLarge, copy_log
from compilediag.timeline.timeline import BreakSite


def copied(raw: bytes, *, known: tuple[str, ...] = ()) -> tuple[str, Copied]:
    target = io.BytesIO()
    reported = copy_log([raw], target, known)
    return target.getvalue().decode("utf-8"), reported


# --- the copy --------------------------------------------------------------------------------


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
    monkeypatch.setattr(tlparse_log, limit, 0)
    with pytest.raises(TooLarge, match="0 "):
        copied(trace())


def test_long_lines_and_payloads_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line or payload over its limit costs its record."""
    monkeypatch.setattr(tlparse_log, "MAX_PAYLOAD_BYTES", 20)
    monkeypatch.setattr(tlparse_log, "MAX_LINE_BYTES", 600)
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


# --- the child -------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "dedicated_log_torch_trace_ab.log"
    path.write_bytes(trace())
    return str(path)


def test_a_log_without_records_is_not_given_away(tmp_path: Path) -> None:
    """An empty or foreign log never reaches the program; one that cannot be started is said."""
    empty = tmp_path / "empty.log"
    empty.write_bytes(b"not torch\n")
    assert "no record of torch" in (one(str(empty), tmp_path, "/no/such/program").problem or "")


# --- counts ----------------------------------------------------------------------------------


def test_disagreement_is_named(tmp_path: Path) -> None:
    """A compile that only one of the two knows is named, with the side that knows it."""
    folder = tmp_path / "report"
    folder.mkdir()
    line = {"compilation_metrics": {}, "thread": 100, "frame_id": 0, "frame_compile_id": 0}
    backward = {**line, "compilation_metrics": {"is_forward": False}}
    raw = "\n".join(json.dumps(item) for item in (line, backward, "text", [1]))
    (folder / "raw.jsonl").write_text(raw, encoding="utf-8")
    (folder / "compile_directory.json").write_text('{"[0/0_1]": {}}', encoding="utf-8")
    counted = read_counts(str(folder))
    assert counted is not None
    assert differences([counted], run_of_two()) == [
        "tlparse counts 1 compiles, compilediag 2: 0/1 only in compilediag",
        "tlparse counts 0 reasons to compile again, compilediag 1: 0/1 only in compilediag",
        "tlparse's directory has no entry for 0/1",
    ]
    other = timeline([attempt("0/0")], processes=(process(1),))
    assert differences([counted], other) == [
        "tlparse counts 1 compiles, compilediag 1: 0/0 only in tlparse; 0/0 only in compilediag"
    ]


def test_a_break_that_only_tlparse_has_is_named(tmp_path: Path) -> None:
    """By its compile; one that only we have may come from torch's log, and is none."""
    artifact = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}}
    line = {**artifact, "thread": 100, **ids(0, 1)}
    (tmp_path / "raw.jsonl").write_text(json.dumps(line), encoding="utf-8")
    (tmp_path / "compile_directory.json").write_text('{"[0/1]": {}}', encoding="utf-8")
    counted = read_counts(str(tmp_path))
    assert counted is not None
    reported = "tlparse has graph breaks that compilediag has not, in 0/1"
    assert reported in differences([counted], run_of_two())
    site = BreakSite("train.py", 3, "step", "Graph break", 1, ("0/1_1",), 0, (0,))
    for breaks in ((site,), (site, replace(site, line=4, compile_ids=("0/0",)))):
        found = differences([counted], replace(run_of_two(), breaks=breaks))
        assert not [item for item in found if "graph breaks" in item]


def test_garbage_is_not_counted(tmp_path: Path) -> None:
    """Files that are not what tlparse writes give no counts, rather than wrong ones."""
    (tmp_path / "raw.jsonl").write_bytes(b"\xff{\n")
    assert read_counts(str(tmp_path)) is None
    (tmp_path / "compile_directory.json").write_text("[1]", encoding="utf-8")
    assert read_counts(str(tmp_path)) is None


# --- in the folder of a run ------------------------------------------------------------------


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that kept its trace."""
    folder = tmp_path / "run"
    (folder / "artifacts" / "torch_trace").mkdir(parents=True)
    (folder / "artifacts" / "torch_trace" / "a.log").write_bytes(trace())
    monkeypatch.setattr(
        "compilediag.runs.tools.tlparse.find_tlparse", lambda: stand_in(tmp_path, GOOD)
    )
    return folder


def test_no_trace_and_no_program_are_said(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No trace, or no tlparse: a sentence each, and no claim to have compared."""
    monkeypatch.setattr("compilediag.runs.tools.tlparse.find_tlparse", lambda: None)
    linked = link_reports(traces_in(str(run_dir)), str(run_dir), run_of_two(), ())
    assert linked.notes == ("a.log: tlparse is not installed: pip install tlparse",)
    assert linked.extensions["tlparse"]["compared"] is False  # type: ignore[index]
    (run_dir / "artifacts" / "torch_trace" / "a.log").unlink()
    assert link_reports(traces_in(str(run_dir)), str(run_dir), run_of_two(), ()).notes == (
        NO_TRACE,
    )
