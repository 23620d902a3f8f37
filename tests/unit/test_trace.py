"""TORCH_TRACE files in, events out: recorded traces give what torch itself counted."""

import gzip
import json
from pathlib import Path

import pytest
from trace_lines import HEAD, line

from compilediag.readers.torch_trace.read import parse_rank, parse_trace, read_trace
from compilediag.rules.diagnose import diagnose
from compilediag.timeline.timeline import Timeline, fold
from compilediag_harness.wire import EvidenceLost, GraphBroke, Recompiled, TorchSeen

TRACES = Path(__file__).parents[1] / "data" / "traces"


def recorded(name: str) -> Timeline:
    journals = read_trace(str(TRACES / f"{name}.log.gz"))
    return fold([journal.events for journal in journals])


def counts(timeline: Timeline) -> tuple[int, ...]:
    guarded = [item for item in timeline.compiles if item.forward and item.guarded]
    return (
        len(timeline.frames),
        len(guarded),
        len(timeline.counted_recompiles),
        sum(1 for item in guarded if item.graph_ops),
        len(timeline.breaks),
        sum(frame.ran_eager for frame in timeline.frames),
    )


def test_every_recorded_trace_is_whole() -> None:
    """Nothing is lost in a trace as torch wrote it, so that a loss elsewhere means something."""
    for path in TRACES.rglob("*.gz"):
        assert [item.lost for item in read_trace(str(path))] == [{}], path.name


def test_both_encodings_of_reasons() -> None:
    """One reason is bare text, several are a JSON list, though torch calls both JSON."""
    asked = [
        item
        for journal in read_trace(str(TRACES / "recompile_limit.log.gz"))
        for item in journal.events
        if isinstance(item, Recompiled)
    ]
    assert [len(item.reasons) for item in asked] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(item.reasons[0].startswith(f"0/{n}: ") for n, item in enumerate(asked))


@pytest.mark.parametrize("entries", [8, 9, 40_000])
def test_a_frame_of_many_cache_entries_is_no_loss(entries: int) -> None:
    """torch writes a reason for each of them, megabytes at every recompile: the first are read."""
    reasons = [f"0/{n}: mode == '{n}],' # [\n" for n in reversed(range(entries))]
    payload = json.dumps(reasons, indent=0).encode()
    metadata = b'{"artifact": {"name": "recompile_reasons"}, "frame_id": 0, "frame_compile_id": 1}'
    (journal,) = parse_trace([line(metadata, payload), line(b'{"str": ["a.py", 0]}')], "trace.log")
    (asked,) = [item for item in journal.events if isinstance(item, Recompiled)]
    assert journal.lost == {}
    assert list(asked.reasons) == reasons[:8]


def test_the_rank_of_the_record_overrules_the_name() -> None:
    """A file called rank_6 may hold rank 1."""
    content = line(b'{"dynamo_start": {"stack": []}, "rank": 1, "frame_id": 0}')
    started = parse_trace([content], "dedicated_log_torch_trace_rank_6_x.log")[0].started
    assert started.rank == 1


def test_the_name_has_the_rank_where_no_record_does() -> None:
    """And only a rank is ever read from it."""
    assert parse_rank("dedicated_log_torch_trace_rank_12_ab3.log") == 12
    assert parse_rank("dedicated_log_torch_trace_ab3.log") is None


def test_processes_of_one_file_are_separate() -> None:
    """A forked child writes into its parent's file under torch 2.7; its ids are its own."""
    one = line(b'{"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0}')
    journals = parse_trace([one + one.replace(b" 1679 ", b" 1680 ")], "a.log")
    pids = [item.started.pid for item in journals if item.started is not None]
    assert pids == [1679, 1680]
    assert fold([item.events for item in journals]).compiles == ()


def row(**fields: object) -> bytes:
    metrics = {
        "compile_id": "0/0",
        "co_name": "f",
        "co_filename": "a.py",
        "recompile_reason": None,
        **fields,
    }
    return line(json.dumps({"compilation_metrics": metrics}).encode())


def test_a_frame_that_2_7_gave_up_is_not_compiled() -> None:
    """2.7 calls it guarded; it has neither a graph nor the count that torch fills at the end."""
    given_up = row(has_guarded_code=True, graph_op_count=None, ir_count=None, is_forward=True)
    whole = row(compile_id="1/0", has_guarded_code=True, graph_op_count=3, ir_count=None)
    timeline = fold([item.events for item in parse_trace([given_up + whole], "a.log")])
    assert [item.guarded for item in timeline.compiles] == [False, True]


def test_old_traces_list_what_they_lack() -> None:
    """Without a version it may be torch 2.7, whose traces do not hold every graph break."""
    seen = [e for e in parse_trace([row()], "a.log")[0].events if isinstance(e, TorchSeen)]
    assert "graph_breaks" in seen[0].lost
    new = read_trace(str(TRACES / "inductor.log.gz"))[0].events
    assert [e.torch for e in new if isinstance(e, TorchSeen)] == ["2.13.0+cpu"]


@pytest.mark.parametrize(
    ("content", "lost", "torn"),
    [
        (b"", {"empty": 1}, False),
        (HEAD + b'{"str": not JSON}\n', {"bad_json": 1}, False),
        (HEAD + b'{"str": ' + b"[" * 200_000 + b"\n", {"bad_json": 1}, False),
        (HEAD + b'{"compilation_metrics": []}\n', {"bad_json": 1}, False),
        (b"\xff\xfe\x00 not a trace\n", {"bad_prefix": 1}, False),
        (row() + HEAD + b'{"compilation_met', {}, True),
    ],
    ids=["empty", "no JSON", "deep", "another shape", "foreign", "torn"],
)
def test_losses_are_counted_and_reported(content: bytes, lost: dict[str, int], torn: bool) -> None:
    """Each by its reason, and the verdict is then blind."""
    journals = parse_trace([content], "a.log")
    assert (journals[0].lost, journals[0].torn_tail) == (lost, torn)
    told = [item for item in journals[0].events if isinstance(item, EvidenceLost)]
    assert len(told) == 1
    assert diagnose(fold([item.events for item in journals])).verdict == "blind"


def test_bad_bytes_cost_characters() -> None:
    """A reason of bytes that are not UTF-8 is read as far as it can be, and counted as damaged."""
    broken = b"Graph break in user code at /home/\xff\xfe.py:3\nGraph Break Reason: x"
    content = line(b'{"artifact": {"name": "dynamo_graph_break_reason"}, "frame_id": 0}', broken)
    (journal,) = parse_trace([content], "a.log")
    events = [e for e in journal.events if isinstance(e, GraphBroke)]
    assert "\ufffd" in events[0].text
    assert journal.lost == {"bad_utf8": 1}


def test_bad_bytes_anywhere_in_a_line_that_is_used_are_counted() -> None:
    """Also in a field that is not; the row counts, and what torch writes of other alphabets is
    whole."""
    whole = row().decode()
    (journal,) = parse_trace([whole.encode().replace(b"}}", b'}, "more": "\xc3"}')], "a.log")
    assert journal.lost == {"bad_utf8": 1}
    assert len(fold([journal.events]).compiles) == 1
    assert diagnose(fold([journal.events])).verdict == "blind"
    (journal,) = parse_trace([whole.replace("}}", '}, "more": "schnörkel"}').encode()], "a.log")
    assert journal.lost == {}


def test_a_compile_that_did_not_end_is_reported() -> None:
    """The process was killed in it, or the trace is cut at the end of a record."""
    content = line(b'{"dynamo_start": {"stack": []}, "frame_id": 3, "frame_compile_id": 0}')
    told = [e for e in parse_trace([content], "a.log")[0].events if isinstance(e, EvidenceLost)]
    assert "(3/0)" in told[0].reason


def test_a_cut_compressed_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """The loss is told, and what was unpacked counts."""
    whole = (TRACES / "breaks_inflated.log.gz").read_bytes()
    path = tmp_path / "cut.log.gz"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    journals = read_trace(str(path))
    assert journals[0].torn_tail
    assert fold([item.events for item in journals]).compiles
    assert gzip.decompress(whole)


@pytest.mark.parametrize(("limit", "kept"), [("MAX_ROWS", 5), ("MAX_EVENTS", 9)])
def test_the_first_records_are_kept_of_too_many(monkeypatch, limit: str, kept: int) -> None:
    """All others are counted, whatever they are of: no recompile is told whose row was left out,
    no compile as unfinished, and what is kept is bounded by more than its rows."""
    path = str(TRACES / "recompile_limit.log.gz")
    (whole,) = read_trace(path)
    monkeypatch.setattr(f"compilediag.readers.torch_trace.read.{limit}", kept)
    (cut,) = read_trace(path)
    losses = [event for event in cut.events if isinstance(event, EvidenceLost)]
    assert cut.events == (*whole.events[: len(cut.events) - 1], *losses)
    assert ["records are beyond the limit" in loss.reason for loss in losses] == [True]
    assert cut.lost["over_limit"] > 0
    timeline = fold([cut.events])
    assert 0 < len(timeline.compiles) == len(timeline.recompiles) + 1 <= kept
    assert diagnose(timeline).verdict == "blind"


def test_records_of_one_kind_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts without rows, and breaks without rows: as few are kept as of others."""
    monkeypatch.setattr("compilediag.readers.torch_trace.read.MAX_EVENTS", 10)
    start = '{"dynamo_start": {"stack": []}, "frame_id": %d, "frame_compile_id": 0}'
    breaks = '{"artifact": {"name": "dynamo_graph_break_reason"}, "frame_id": %d}'
    for text in (start, breaks):
        content = b"".join(line((text % number).encode()) for number in range(100))
        (journal,) = parse_trace([content], "a.log")
        assert journal.lost == {"over_limit": 90}
        assert len(journal.events) <= 13


OLD_ROW = {
    "compile_id": "0/0",
    "co_name": "f",
    "co_filename": "a.py",
    "start_time": 1.5,
    "entire_frame_compile_time_s": 0.5,
    "has_guarded_code": True,
    "graph_op_count": 3,
}
"""Of torch before 2.7: neither a reason to recompile nor the latency of guards is a field."""


@pytest.mark.parametrize(
    "records",
    [
        line(json.dumps({"compilation_metrics": OLD_ROW}).encode()),
        row(graph_op_count=3, has_guarded_code=True, pytorch_version="2.6.0+cu124"),
        row(graph_op_count=3, has_guarded_code=True)
        + line(b'{"artifact": {"name": "torch_version"}}', b'"2.5.1"'),
    ],
)
def test_a_trace_of_an_older_torch(records: bytes) -> None:
    """One reason, and nothing that was counted in records of another form."""
    run = fold([item.events for item in parse_trace([records], "a.log")])
    (finding,) = diagnose(run).findings
    assert (run.compiles, finding.rule) == ((), "CD901")
    assert finding.title.startswith("the trace was written by an older torch than 2.7")
    assert finding.fix.summary == "record the run with torch 2.7 or newer"


@pytest.mark.parametrize("version", ["2.7.1", "2.10.0", "2.13.0+cpu", "3.0.0a1", "10.2"])
def test_a_trace_that_is_new_enough(version: str) -> None:
    """Versions are compared by their numbers."""
    records = row(graph_op_count=3, has_guarded_code=True, pytorch_version=version)
    assert len(fold([item.events for item in parse_trace([records], "a.log")]).compiles) == 1


EXPORTER = b'{"str": ["/venv/lib/python3.11/site-packages/torch/export/_trace.py", 7]}'


def test_an_export_in_a_trace() -> None:
    """torch 2.7 gives a strict export a frame and an id; what stands below it shows what it is."""
    start = b'{"dynamo_start": {"stack": [{"filename": 7, "line": 2}, {"filename": 8, "line": 1}]}'
    exported = line(start + b', "frame_id": 0, "frame_compile_id": 0, "attempt": 0}')
    records = line(EXPORTER) + exported + row(graph_op_count=3, has_guarded_code=True)
    run = fold([item.events for item in parse_trace([records], "a.log")])
    assert (len(run.compiles), len(run.ahead_of_time)) == (0, 1)
    assert [finding.evidence["why"] for finding in diagnose(run).findings] == ["ahead_of_time"]
