"""tlparse as a child: a fresh folder, limits, a report that the receipt links.

Most tests use a stand-in for the program, so that crashes, hangs and garbage can be had; those with
the real one skip where it is not installed.
"""

import contextlib
import hashlib
import io
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

import pytest
from tlparse_pieces import GOOD, ids, one, record, stand_in, trace

from compilediag import cli
from compilediag.receipt.file import read_receipt
from compilediag.runs.run_directory import infer_role, list_reports
from compilediag.runs.tools.tlparse import (
    NO_TRACE,
    Limits,
    Report,
    find_tlparse,
    link_reports,
    list_traces,
    make_reports,
    run_with_limits,
)

needs_tlparse = pytest.mark.skipif(find_tlparse() is None, reason="tlparse is not installed")


# --- the child -------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "dedicated_log_torch_trace_ab.log"
    path.write_bytes(trace())
    return str(path)


def test_report_is_made_in_a_fresh_folder(log: str, tmp_path: Path) -> None:
    """The exact copy and no option that deletes are passed; the report is moved into its place."""
    body = f'{GOOD}\necho "$@" > "$3/arguments"; test "$4" = --no-browser && test $# = 4'
    report = one(log, tmp_path, stand_in(tmp_path, body))
    assert report == Report(log, str(tmp_path / "out" / "1"))
    said = (tmp_path / "out" / "1" / "arguments").read_text(encoding="utf-8").split()
    assert said[0].endswith("/torch_trace.log")
    assert "--overwrite" not in said


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'thread main panicked' >&2; exit 101", "exit code 101: thread main panicked"),
        ("kill -SEGV $$", "signal 11"),
        ("sleep 60", "longer than"),
        ("exit 0", "no index.html"),
        ('mkdir "$3"; ln -s /etc/passwd "$3/index.html"', "no index.html"),
        ('mkdir "$3"; head -c 100000 /dev/zero > "$3/index.html" || exit 1', "ended with"),
    ],
)
def test_a_bad_end_costs_the_report_alone(body: str, said: str, log: str, tmp_path: Path) -> None:
    """Crash, signal, hang, nothing written, a link, too much written: one sentence, no remains."""
    hang_s = 0.3 if "sleep" in body else 30.0
    limits = Limits(time_s=hang_s, file_bytes=50_000)
    report = one(log, tmp_path, stand_in(tmp_path, body), limits)
    assert report.folder is None
    assert said in (report.problem or "")


def test_what_exists_is_never_replaced(log: str, tmp_path: Path) -> None:
    """A folder that is in use stays as it is."""
    used = tmp_path / "out" / "1"
    used.mkdir(parents=True)
    (used / "mine").write_text("x", encoding="utf-8")
    (report,) = make_reports([log], str(tmp_path / "out"), program=stand_in(tmp_path, GOOD))
    assert "could be written" in (report.problem or "")
    assert os.listdir(used) == ["mine"]


def test_a_program_that_is_not_there(log: str, tmp_path: Path) -> None:
    """The reason is told, not raised."""
    assert "cannot be started" in (one(log, tmp_path, "/no/such/program").problem or "")


def test_a_log_without_records_is_not_given_away(tmp_path: Path) -> None:
    """An empty or foreign log never reaches the program; one that cannot be started is said."""
    empty = tmp_path / "empty.log"
    empty.write_bytes(b"not torch\n")
    assert "no record of torch" in (one(str(empty), tmp_path, "/no/such/program").problem or "")


def test_children_see_few_variables_and_leave_nothing_running(tmp_path: Path, monkeypatch) -> None:
    """Variables of ours are not passed on, and what a child leaves behind is ended with it."""
    monkeypatch.setenv("MY_TOKEN", "secret")
    body = 'echo "${MY_TOKEN:-none}"; sleep 600 > /dev/null 2>&1 & echo $! > left'
    ended = run_with_limits(["sh", "-c", body], str(tmp_path), Limits(time_s=30), {})
    assert (ended.problem, ended.output_tail) == (None, "none")
    left = int((tmp_path / "left").read_text(encoding="utf-8"))
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(left)
        assert select.select([handle], [], [], 60)[0] == [handle]  # readable when it has ended
        os.close(handle)


@needs_tlparse
def test_the_real_program_survives_a_hostile_log(tmp_path: Path) -> None:
    """Bytes and names that end or mislead tlparse itself do nothing through the copy: a report is
    there, and every file of it lies in its folder."""
    hostile = trace(
        b"\xff\xfe\n",
        record({"artifact": {"name": "n" * 5000, "encoding": "string"}, **ids(0, 0)}, "x"),
        record({"artifact": {"name": "../../../planted", "encoding": "string"}, **ids(0, 0)}, "x"),
        record({"artifact": {"name": "nul\0", "encoding": "string"}, **ids(0, 0)}, "\x00"),
        trace()[:-20],
    )
    path = tmp_path / "hostile.log"
    path.write_bytes(hostile)
    report = one(str(path), tmp_path, None)
    assert report.problem is None
    assert not list(tmp_path.rglob("planted*")) or all(
        str(found).startswith(str(tmp_path / "out" / "1")) for found in tmp_path.rglob("*planted*")
    )


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


def test_reports_are_linked(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the report have roles. No trace, or no tlparse: a sentence each."""
    linked = link_reports(list_traces(str(run_dir)), str(run_dir), ())
    uris = [os.path.relpath(path, run_dir) for path in list_reports(str(run_dir))]
    assert [infer_role(uri) for uri in uris] == [
        "tlparse_report",
        "tlparse_raw",
        "tlparse_directory",
    ]
    assert infer_role("index.html") == "other"
    told: Any = linked.extensions["tlparse"]
    assert told["reports"][0]["report"] == "artifacts/tlparse/1"
    assert any("tlparse's report: " in note for note in linked.notes)
    monkeypatch.setattr("compilediag.runs.tools.tlparse.find_tlparse", lambda: None)
    linked = link_reports(list_traces(str(run_dir)), str(run_dir), ())
    assert linked.notes == ("a.log: tlparse is not installed: pip install tlparse",)
    (run_dir / "artifacts" / "torch_trace" / "a.log").unlink()
    assert link_reports(list_traces(str(run_dir)), str(run_dir), ()).notes == (NO_TRACE,)


@needs_tlparse
def test_traces_from_elsewhere_are_reported_too(log: str, tmp_path, monkeypatch, capsys) -> None:
    """`analyze --tlparse`: the report lies in the new folder and is linked from the receipt."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.main(["analyze", "--tlparse", "-o", "out", log]) == 0
    assert "tlparse's report: out/artifacts/tlparse/1/index.html" in capsys.readouterr().err
    receipt = read_receipt(tmp_path / "out")
    assert {"tlparse_report", "torch_trace"} <= {item.role for item in receipt.artifacts}
    assert "analyze" in receipt.extensions


PROGRAM = """
import torch

@torch.compile(backend="eager")
def scale(x, n):
    return x * 2 if n == 2 else x

for n in (2, 3):
    scale(torch.ones(4), n)
"""


@needs_tlparse
def test_a_run_links_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run --tlparse` of a real program: the exit code is the program's, the report is linked with
    size and digest, and torch's own timeline joins ours."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert cli.main(["run", "--tlparse", "--no-live", "--output", "out", "program.py"]) == 0
    receipt = json.loads((tmp_path / "out" / "receipt.json").read_text(encoding="utf-8"))
    found = {item["role"]: item for item in receipt["artifacts"]}
    index = (tmp_path / "out" / found["tlparse_report"]["uri"]).read_bytes()
    assert found["tlparse_report"]["bytes"] == len(index)
    assert found["tlparse_report"]["sha256"] == hashlib.sha256(index).hexdigest()
    assert receipt["compile"]["recompiles"] == 1
    assert cli.main(["show", "--perfetto", "t.json", "out"]) == 0
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    compiles = [e["ts"] for e in events if e.get("cat") == "compile" and e["ph"] == "X"]
    own = [e["ts"] for e in events if e["name"] == "entire_frame_compile" and e["ph"] == "B"]
    assert len(compiles) == len(own) == 2
