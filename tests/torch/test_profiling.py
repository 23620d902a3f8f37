"""Profiles on demand: a window between two signals, bounded, and nothing without being asked."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compilediag.diagnosis.figures.recorded import build_profiles_section
from compilediag.timeline.timeline import fold
from compilediag_harness.base.session import Session
from compilediag_harness.collectors import signals
from compilediag_harness.collectors.signals import MAX_STEPS, Profiling
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.wire import Event, ProfileEnded

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no SIGUSR1")


class FakeProfiler:
    """Writes what it was told."""

    content = b"x" * 10

    def __init__(self, activities: list[str]) -> None:
        self.activities = activities

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_bytes(self.content)


@pytest.fixture
def torch_module(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A torch whose profiler is made by hand."""
    monkeypatch.setattr(signals, "_requested", False)
    monkeypatch.setattr(torch_api, "is_profiler_enabled", lambda: False)
    monkeypatch.setattr(torch_api, "is_cuda_in_use", lambda _: False)
    activity = types.SimpleNamespace(CPU="cpu", CUDA="cuda")
    return types.SimpleNamespace(
        profiler=types.SimpleNamespace(profile=FakeProfiler, ProfilerActivity=activity)
    )


@pytest.fixture
def window(torch_module: Any, tmp_path: Path) -> tuple[Profiling, list[Event]]:
    events: list[Event] = []
    return Profiling(Session(events.append), torch_module, str(tmp_path / "artifacts")), events


def ask(monkeypatch: pytest.MonkeyPatch, begin: bool) -> None:
    monkeypatch.setattr(signals, "_requested", begin)


@pytest.fixture
def default_signals() -> Iterator[None]:
    """The default action for both signals, and ours gone again after the test."""
    both = (signal.SIGUSR1, signal.SIGUSR2)
    before = [signal.signal(one, signal.SIG_DFL) for one in both]
    armed, signals._armed = signals._armed, False
    yield
    signals._armed = armed
    for one, handler in zip(both, before, strict=True):
        signal.signal(one, handler)


def test_signals_are_the_program_s_unless_asked_for(default_signals: None) -> None:
    """Where they were not taken over, no session watches a step."""
    session = Session(lambda _: None)
    signals.install(session)
    assert session.step_listeners == []


def test_a_program_s_own_handler_stays(default_signals: None) -> None:
    """Also where it has one for the second signal only, or ignores it."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signals.arm()
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN


def test_a_window_is_between_steps(window, monkeypatch, tmp_path) -> None:
    """It begins with the step after the signal and ends with the one in which the second came."""
    profiles, events = window
    profiles.handle_step_end(3, False)
    ask(monkeypatch, True)
    profiles.handle_step_end(4, False)
    profiles.handle_step_end(5, False)
    ask(monkeypatch, False)
    profiles.handle_step_end(6, False)
    profiles.handle_step_end(7, False)
    assert told(events) == [(5, 6, True, None)]
    assert [path.name for path in tmp_path.glob("artifacts/*")] == [
        f"profile-{os.getpid()}-1.json.gz"
    ]


def test_a_window_ends_by_itself(window: tuple[Profiling, list[Event]], monkeypatch) -> None:
    """After its steps; one signal is one window."""
    profiles, events = window
    ask(monkeypatch, True)
    for step in range(100):
        profiles.handle_step_end(step, False)
    assert told(events) == [(1, MAX_STEPS, True, None)]


def test_a_window_ends_with_the_process(window: tuple[Profiling, list[Event]], monkeypatch) -> None:
    """What was recorded is written; a second end writes nothing."""
    profiles, events = window
    ask(monkeypatch, True)
    profiles.handle_step_end(0, False)
    profiles.end_window(2)
    profiles.end_window(3)
    assert told(events) == [(1, 2, True, None)]


def test_a_large_trace_is_removed(window, monkeypatch, tmp_path) -> None:
    """And said to have been."""
    monkeypatch.setattr(signals, "MAX_BYTES", 9)
    profiles, events = window
    ask(monkeypatch, True)
    profiles.handle_step_end(0, False)
    profiles.end_window(1)
    ((first, last, kept, problem),) = told(events)
    assert (first, last, kept) == (1, 1, False)
    assert re.fullmatch(r"the trace had \d+ bytes and was removed", problem or "")
    assert list(tmp_path.glob("artifacts/*")) == []


def test_a_trace_holds_no_secret(window, monkeypatch, tmp_path) -> None:
    """Names of blocks are the program's; nothing else lies beside the trace."""
    event = '{"name": "load hf_ABCDEFGHIJ0123456789", "ph": "X"},\n'
    monkeypatch.setattr(FakeProfiler, "content", event.encode() * 50_000)
    profiles, _ = window
    ask(monkeypatch, True)
    profiles.handle_step_end(0, False)
    profiles.end_window(1)
    (path,) = tmp_path.glob("artifacts/*")
    text = gzip.decompress(path.read_bytes()).decode()
    assert text.count('{"name": "load <redacted:hugging-face#') == text.count("\n") == 50_000
    assert "ABCDEFGHIJ" not in text


def test_windows_are_counted(window: tuple[Profiling, list[Event]], monkeypatch) -> None:
    """A program that is sent signals for ever does not fill the disk."""
    monkeypatch.setattr(signals, "MAX_WINDOWS", 2)
    profiles, events = window
    for step in range(0, 10, 2):
        ask(monkeypatch, True)
        profiles.handle_step_end(step, False)
        profiles.end_window(step + 1)
    assert len(told(events)) == 2
    assert signals._requested is False


def test_the_program_s_own_profiler_is_left_alone(window, monkeypatch) -> None:
    """Two at once would fail in the program; a profiler that does not start is told, too."""
    profiles, events = window
    monkeypatch.setattr(torch_api, "is_profiler_enabled", lambda: True)
    ask(monkeypatch, True)
    profiles.handle_step_end(0, False)
    monkeypatch.setattr(torch_api, "is_profiler_enabled", lambda: False)
    monkeypatch.setattr(FakeProfiler, "start", lambda _: 1 / 0)
    ask(monkeypatch, True)
    profiles.handle_step_end(1, False)
    assert [problem for *_, problem in told(events)] == [
        "the program profiles itself",
        "torch.profiler did not start: division by zero",
    ]


def test_a_fork_has_no_window(window: tuple[Profiling, list[Event]], monkeypatch) -> None:
    """It is the parent's to end."""
    profiles, events = window
    ask(monkeypatch, True)
    profiles.handle_step_end(0, False)
    profiles.discard()
    profiles.end_window(1)
    assert events == []


def test_the_receipt_links() -> None:
    """By a name that stays in its folder; a problem is told."""
    ended = [
        ProfileEnded(1.0, 3, 5, "profile-7-1.json.gz"),
        ProfileEnded(2.0, 6, 6, None, "the program profiles itself"),
        ProfileEnded(3.0, 7, 7, "../../etc/passwd"),
    ]
    found = build_profiles_section(fold([ended]))
    assert [(item.first_step, item.last_step, item.uri) for item in found] == [
        (3, 5, "artifacts/profile-7-1.json.gz"),
        (6, 6, None),
        (7, 7, None),
    ]
    assert found[1].problem == "the program profiles itself"


def told(events: list[Event]) -> list[tuple[int, int, bool, str | None]]:
    found = [event for event in events if isinstance(event, ProfileEnded)]
    return [(one.first_step, one.last_step, one.file is not None, one.problem) for one in found]


PROGRAM = """
import os, signal
import torch
model = torch.nn.Linear(4, 4)
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    compiled(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    if step == 4:
        print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL, flush=True)
        os.kill(os.getpid(), signal.SIGUSR1)
    if step == 7:
        os.kill(os.getpid(), signal.SIGUSR2)
"""


def observed(folder: Path, *, option: bool) -> tuple[int, str, dict[str, Any], Path]:
    """Exit code, output, receipt and directory of one run."""
    program, output = folder / "program.py", folder / "run"
    program.write_text(PROGRAM, encoding="utf-8")
    flags = ["--profile-on-signal"] if option else []
    command = [sys.executable, "-m", "compilediag", "run", "--quiet", "--no-live", *flags]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COMPILEDIAG")}
    done = subprocess.run(
        [*command, "--output", str(output), "--", str(program)],
        cwd=folder,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    receipt = json.loads((output / "receipt.json").read_text(encoding="utf-8"))
    return done.returncode, done.stdout, receipt, output


def test_a_profile_of_a_running_program(tmp_path: Path) -> None:
    """torch's own profiler, between the two signals: a trace beside the receipt, nothing compiled
    again, and the run as it would have been."""
    code, said, receipt, output = observed(tmp_path, option=True)
    assert (code, said) == (0, "False\n")
    (profile,) = receipt["profiles"]
    assert profile["problem"] is None
    assert 5 <= profile["first_step"] <= profile["last_step"] <= 9
    trace = json.loads(gzip.decompress((output / profile["uri"]).read_bytes()))
    names = {event.get("name") for event in trace["traceEvents"]}
    assert "aten::linear" in names
    (artifact,) = (item for item in receipt["artifacts"] if item["role"] == "torch_profile")
    assert (artifact["uri"], artifact["bytes"]) == (
        profile["uri"],
        os.path.getsize(output / profile["uri"]),
    )
    assert artifact["sha256"]
    counts = receipt["compile"]
    assert (counts["compiles"], counts["recompiles"], counts["graph_breaks"]) == (1, 0, 0)
    assert receipt["checks"]["evidence_complete"]


def test_without_the_option_the_signals_are_the_program_s(tmp_path: Path) -> None:
    """The action is the default one, and so is what a signal does: it ends the program."""
    code, said, receipt, _ = observed(tmp_path, option=False)
    assert (code, said) == (128 + signal.SIGUSR1, "True\n")
    assert (receipt["status"], receipt["profiles"]) == ("killed", [])
