"""`show --perfetto`: valid Chrome trace JSON, every process and thread apart, slices nested."""

import binascii
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import built_receipt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from screens import VIEWS, stored

from compilediag import cli
from compilediag.receipt.file import write_receipt
from compilediag.receipt.schema.receipt import Receipt
from compilediag.runs.offline.perfetto_file import (
    convert_foreign_events,
    list_events,
    make_event,
    pack_into_rows,
)
from compilediag_harness import wire

WHERE = wire.Location("/home/you/model.py", 13, "forward")
NS_AS_US = 0.001
"""Slack of a comparison of sums of microseconds in floating point."""


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with a Chrome trace, by its published format; slices must nest by thread."""
    wrong: list[str] = []
    events: list[dict[str, Any]] = document["traceEvents"]
    named = {(e["name"], e["pid"], e.get("tid")) for e in events if e["ph"] == "M"}
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == "M":
            continue
        if event["ph"] not in "XiCBE":
            wrong.append(f"unknown phase: {event}")
        if not (isinstance(event["name"], str) and isinstance(event["ts"], float)):
            wrong.append(f"no name or time: {event}")
        if not any(name == "process_name" and pid == event["pid"] for name, pid, _ in named):
            wrong.append(f"a process without a name: {event}")
        if event["ph"] in "Xi" and ("thread_name", event["pid"], event["tid"]) not in named:
            wrong.append(f"a thread without a name: {event}")
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
        if event["ph"] == "C" and not all(
            isinstance(value, int | float) for value in event["args"].values()
        ):
            wrong.append(f"a counter without a number: {event}")
    return [*wrong, *(text for items in threads.values() for text in crossings(items))]


def crossings(slices: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Pairs of slices of one thread that overlap without one holding the other."""
    for place, one in enumerate(slices):
        for other in slices[place + 1 :]:
            first, second = sorted((one, other), key=lambda item: (item["ts"], -item["dur"]))
            end, other_end = first["ts"] + first["dur"], second["ts"] + second["dur"]
            if second["ts"] < end - NS_AS_US and other_end > end + NS_AS_US:
                yield f"{one['name']} and {other['name']} cross"


def started(pid: int, utc: str, *, rank: int | None = None, t: float = 0.0) -> wire.ProcessStarted:
    argv = ("python", "/home/you/model.py")
    return replace(built_receipt.started(rank, pid=pid), t=t, argv=argv, started_utc=utc)


def compiled(compile_id: str, t: float, seconds: float, **more: Any) -> wire.Compiled:
    return built_receipt.compiled(compile_id, t, 0, seconds, frame=WHERE, **more)


def journal() -> list[wire.Event]:
    """A process in which everything happened that has a place on a timeline."""
    report = (
        'Graph break in user code at /home/you/model.py:21\n  File "/home/you/model.py", line 21'
    )
    return [
        started(11, "2026-11-21T10:00:00.000000Z"),
        wire.CompileStarted(1.0, 0, "DYNAMO", "0/0", 0),
        wire.GraphBroke(1.2, 0, "0/0", 0, report),
        compiled("0/0", 1.5, 0.5),
        wire.CompileStarted(1.6, 0, "CUDAGRAPH_RECORDING", "0/0", 0),
        compiled("0/1", 2.25, 0.2, recompile_reason="0/0: n == 2"),
        wire.StepsEnded(
            2.5, 0, "optimizer", (2.0, 2.5), (1.25, 0.5), (0.25, 0.0), (0.1, 0.1), (), (0.5, 0.2)
        ),
        wire.SpansEnded(
            2.6,
            ("metrics", "inner", "metrics"),
            (0, 1, 0),
            (0, 0, 3),
            ("rest", "rest", "rest"),
            (1, 0, 2),
            (0, 0, 0),
            (1_800_000_000, 1_700_000_000, 1_750_000_000),
            (100_000_000, 250_000_000, 500_000_000),
        ),
        wire.SyncsSampled(
            *(2.4, 1, True, True, (wire.Location("m.py", 4, "f"),), ("item",), (0,), ((),), (7,))
        ),
        wire.CadenceFired(2.6, ("entropy",), (0,), (2.1,), (1,)),
        wire.DeviceMemoryRead(2.6, 1, 0, {"allocated_bytes": 10, "reserved_bytes": 20}, {}, {}),
        wire.PipelineWorked(
            2.7, "rl", 2, ("train", "infer"), (1.0, 1.2), (0.5, 0.6), (8, 8), (0, 1), (-1, 0),
            (1.5,), (64,),
        ),
    ]  # fmt: skip


def receipt() -> Receipt:
    """A run whose compile 0/1 was caused by a buffer."""
    return stored("findings")


def drawn(journals: list[list[wire.Event]], origins_ns: list[int]) -> dict[str, Any]:
    return json.loads(json.dumps({"traceEvents": list_events(receipt(), journals, origins_ns)}))


def events_of(document: dict[str, Any], kind: str, category: str) -> list[dict[str, Any]]:
    return [e for e in document["traceEvents"] if e["ph"] == kind and e.get("cat") == category]


def threads_of(document: dict[str, Any]) -> set[tuple[int, str]]:
    return {
        (e["pid"], e["args"]["name"]) for e in document["traceEvents"] if e["name"] == "thread_name"
    }


def test_everything_has_its_track() -> None:
    """Steps, phases, compiles, breaks, recordings, waits, spans, firings, loops and counters."""
    document = drawn([journal()], [0])
    assert problems(document) == []
    assert {name for _, name in threads_of(document)} == {
        "steps", "phases (lengths, not places)", "compiles", "recordings of CUDA graphs",
        "synchronisations (sampled steps)", "spans", "spans of thread 3", "periodic work",
        "pipeline rl: train", "pipeline rl: infer", "pool of rl", "memory of device 0",
    }  # fmt: skip
    steps = events_of(document, "X", "step")
    assert [(e["name"], e["ts"], e["dur"]) for e in steps] == [
        ("step 0", 750_000.0, 1_250_000.0),
        ("step 1", 2_000_000.0, 500_000.0),
    ]
    assert [e["ts"] for e in events_of(document, "i", "graph_break")] == [1_200_000.0]
    assert [e["ts"] for e in events_of(document, "i", "cudagraph")] == [1_600_000.0]
    assert [e["name"] for e in events_of(document, "i", "cadence")] == ["entropy"]
    assert [e["name"] for e in events_of(document, "X", "sync")] == ["7 synchronisations"]
    assert [e["args"] for e in document["traceEvents"] if e["ph"] == "C"] == [
        {"samples": 64},
        {"allocated_bytes": 10, "reserved_bytes": 20},
    ]


def test_phases_lie_inside_their_step() -> None:
    """Phases stand end to end from the start of the step, as long as they were measured."""
    phases = events_of(drawn([journal()], [0]), "X", "phase")
    assert [(e["name"], e["ts"], e["dur"]) for e in phases[:3]] == [
        ("data wait", 750_000.0, 250_000.0),
        ("forward", 1_000_000.0, 500_000.0),
        ("optimizer", 1_500_000.0, 100_000.0),
    ]


def test_compile_bears_the_cause_of_the_receipt() -> None:
    """The recompile is drawn where it happened, with variable and change; the first has no
    cause, and a backward under the same id takes none from its forward."""
    backward = compiled("0/1", 2.4, 0.1, forward=False)
    first, again, lazy = events_of(drawn([[*journal(), backward]], [0]), "X", "compile")
    assert (first["name"], "causes" in first["args"]) == ("first 0/0 forward", False)
    assert again["name"].startswith("recompile 0/1 forward: pos.pe [1, 16] → [8, 16]")
    assert (again["ts"], again["dur"]) == (2_050_000.0, 200_000.0)
    assert again["args"]["causes"][0]["variable"] == "pos.pe"
    assert (lazy["name"], "causes" in lazy["args"]) == ("backward 0/1 forward", False)


def test_compile_bears_the_seconds_of_its_phases() -> None:
    """By the names of the receipt; a compile whose phases were not seen has none."""
    events = [started(11, ""), compiled("0/0", 1.0, 0.5, phases=(("build_guards", 0.2),))]
    timed, other = events_of(drawn([[*events, compiled("0/1", 2.0, 0.5)]], [0]), "X", "compile")
    assert timed["args"]["seconds"] == {"guards": 0.2, "other": 0.3}
    assert "seconds" not in other["args"]


def test_processes_stand_apart_on_one_clock() -> None:
    """Two ranks: two processes in the picture, the second moved by when it attached."""
    second = [started(12, "", rank=1), *journal()[1:]]
    document = drawn([journal(), second], [0, 2_000_000_000])
    assert problems(document) == []
    begins = {e["pid"]: e["ts"] for e in events_of(document, "X", "step") if e["name"] == "step 0"}
    assert begins == {1: 750_000.0, 2: 2_750_000.0}
    names = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"]
    assert names == ["pid 11", "pid 12, rank 1"]


def test_texts_of_the_target_are_redacted(run: Path, tmp_path: Path) -> None:
    """A token in the name of a span is not written."""
    token = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    names = wire.SpansEnded(2.0, (f"call {token}",), (0,), (0,), ("rest",), (0,), (0,), (1,), (5,))
    write_journal(run, [*journal(), names])
    assert show(run, tmp_path / "t.json") == 0
    text = (tmp_path / "t.json").read_text(encoding="utf-8")
    assert ("call " in text, token in text) == (True, False)


# --- rows ------------------------------------------------------------------------------------


def ended(name: str, start: float, end: float) -> dict[str, Any]:
    return {"name": name, "ts": start, "dur": end - start}


def test_slices_that_cross_get_a_row_of_their_own() -> None:
    """One inside the other shares a row, one that cuts through does not; noise is no overlap."""
    outer, inner, cut = ended("a", 0.0, 4.0), ended("b", 1.0, 2.0), ended("c", 3.0, 7.0)
    assert [[e["name"] for e in row] for row in pack_into_rows([cut, inner, outer])] == [
        ["a", "b"],
        ["c"],
    ]
    (row,) = pack_into_rows([outer, ended("d", 3.999, 6.0)])
    assert [(e["name"], e["ts"], e["dur"]) for e in row] == [("a", 0.0, 4.0), ("d", 4.0, 2.0)]
    assert make_event("", "e", 2.0, -1.0)["dur"] == 0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=25))
def test_rows_never_cross(pairs: list[tuple[int, int]]) -> None:
    """Whatever overlaps: no row holds two slices that cut each other, and none is lost."""
    slices = [ended(str(n), float(a), float(a + w)) for n, (a, w) in enumerate(pairs)]
    rows = pack_into_rows(slices)
    assert sorted(e["name"] for row in rows for e in row) == sorted(e["name"] for e in slices)
    assert [text for row in rows for text in crossings(row)] == []


def test_the_check_of_the_form_can_fail() -> None:
    """Crossing slices, a thread without a name and a counter without a number are found."""
    name = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}}
    cross = [
        {"ph": "X", "name": n, "ts": at, "dur": 2.0, "pid": 1, "tid": 1}
        for n, at in (("a", 0.0), ("b", 1.0))
    ]
    counter = {"ph": "C", "name": "c", "ts": 0.0, "pid": 1, "tid": 0, "args": {"x": "many"}}
    assert len(problems({"traceEvents": [name, *cross, counter]})) == 4


# --- torch's own timeline --------------------------------------------------------------------


def test_foreign_events_are_put_on_our_clock() -> None:
    """Times are counted from the start of the run, numbers of processes are new, junk is left."""
    raw: list[object] = [
        {
            "ph": "B",
            "name": "dynamo",
            "ts": 1000.5,
            "pid": 0,
            "tid": 0,
            "args": {"x": float("nan")},
        },
        {"ph": "E", "name": "dynamo", "ts": 2000.0, "pid": 0, "tid": "no"},
        {"ph": "Q", "ts": 1.0},
        {"ph": "B", "ts": True},
        {"ph": "X", "ts": 1.0, "dur": "long"},
        "text",
    ]
    _, *made = convert_foreign_events(raw, 7, 500_000)
    assert [(event["ts"], event["pid"], event["ph"]) for event in made] == [
        (500.5, 7, "B"),
        (1500.0, 7, "E"),
    ]
    assert problems({"traceEvents": convert_foreign_events(raw, 7, 0)}) == []
    assert convert_foreign_events({"no": "list"}, 1, 0) == []


# --- the command -----------------------------------------------------------------------------


def write_journal(folder: Path, events: Sequence[wire.Event]) -> None:
    """As `compilediag_harness.base.journal` writes it."""
    bodies = [b"%d %s" % (number, wire.encode(event)) for number, event in enumerate(events)]
    lines = [b"%08x %s\n" % (binascii.crc32(body), body) for body in bodies]
    (folder / "journal-11-0a.jsonl").write_bytes(b"".join(lines))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run with one journal and a timeline of torch's own."""
    folder = tmp_path / "run"
    report = folder / "artifacts" / "tlparse" / "1"
    report.mkdir(parents=True)
    write_journal(folder, journal())
    at = 1_795_255_201_000_000.0  # 2026-11-21T10:00:01Z
    own = [{"ph": "X", "name": "dynamo", "ts": at, "dur": 5.0, "pid": 0, "tid": 0}]
    (report / "chromium_events.json").write_text(json.dumps(own), encoding="utf-8")
    write_receipt(receipt(), folder / "receipt.json")
    return folder


def show(folder: Path, file: Path) -> int:
    return cli.main(["show", "--perfetto", str(file), str(folder)])


def test_command_writes_one_timeline(run: Path, tmp_path: Path) -> None:
    """Ours and torch's own, on one clock; writing it again replaces it."""
    file = tmp_path / "timeline.json"
    assert [show(run, file), show(run, file)] == [0, 0]
    document = json.loads(file.read_text(encoding="utf-8"))
    own = [e for e in document["traceEvents"] if e["ph"] == "X" and e["name"] == "dynamo"]
    assert [(e["pid"], e["ts"]) for e in own] == [(2, 1_000_000.0)]
    assert document["otherData"]["begins_at_unix_ns"] == 1_795_255_200_000_000_000
    ours = [e for e in document["traceEvents"] if e["pid"] == 1]
    assert problems({"traceEvents": ours}) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "timeline.json"]


def test_a_link_leads_nowhere_else(run: Path, tmp_path: Path, capsys) -> None:
    """A link out of the run, or no JSON, costs only that part, and is reported."""
    own = run / "artifacts" / "tlparse" / "1" / "chromium_events.json"
    (tmp_path / "outside.json").write_bytes(own.read_bytes())
    own.unlink()
    own.symlink_to(tmp_path / "outside.json")
    assert show(run, tmp_path / "t.json") == 0
    assert "is left out" in capsys.readouterr().out
    own.unlink()
    own.write_text("[" * 5000)
    assert show(run, tmp_path / "t.json") == 0
    assert "is left out" in capsys.readouterr().out


def test_foreign_files_stay(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other refusals are those of `--html`: test_html_report.py."""
    theirs = tmp_path / "notes.txt"
    theirs.write_text("mine", encoding="utf-8")
    assert show(run, theirs) == 2
    assert "stays as it is" in capsys.readouterr().err
    assert theirs.read_text(encoding="utf-8") == "mine"


def test_a_receipt_alone_holds_no_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without journals nothing is drawn, and nothing is written."""
    shutil.copy(VIEWS / "findings.json", tmp_path / "receipt.json")
    assert show(tmp_path / "receipt.json", tmp_path / "t.json") == 2
    assert "no journals" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


def test_lost_records_are_said(run: Path, tmp_path: Path, capsys) -> None:
    """A damaged journal gives what is left of it, with the number of records that are gone."""
    path = run / "journal-11-0a.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], *lines[4:]]))
    assert show(run, tmp_path / "t.json") == 0
    assert "1 records of the journals are lost" in capsys.readouterr().out


def test_views_do_not_mix(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file and a document on the screen are two."""
    assert cli.main(["show", "--md", "--perfetto", "x.json", str(run)]) == 2
    assert "documents of their own" in capsys.readouterr().err
