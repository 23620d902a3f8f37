"""What a program prints and saves, as it is recorded; its streams and files are as without."""

import hashlib
import io
import os
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

from compilediag_harness import wire
from compilediag_harness.base.post_import import PostImport
from compilediag_harness.base.session import Session
from compilediag_harness.trials import program_output
from compilediag_harness.trials.program_output import PrintedLines, ProgramOutput


class Stream(io.TextIOWrapper):
    """A stream such as Python starts with, in memory."""

    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n")

    @property
    def text(self):
        self.flush()
        return self.buffer.getvalue().decode()


class Recorded:
    """A stream whose lines are recorded."""

    def __init__(self, *, attached=True):
        self.stream, self.events = Stream(), []
        self.lines = PrintedLines("stdout", self.stream)
        self.lines.install()
        if attached:
            self.attach()

    def attach(self):
        self.lines.attach(Session(self.events.append), torch)

    def finish(self):
        self.lines.finish()
        self.lines.uninstall()
        return [line for event in self.events for line in event.lines]


@pytest.fixture
def recorded():
    return Recorded()


def test_lines_are_whole_and_the_stream_gets_what_it_got(recorded):
    stream = recorded.stream
    print("a", 1, file=stream)
    print("b", end="", file=stream)
    assert stream.write("c\nd") == 3
    stream.writelines(["e\n", "f\n"])
    print(file=stream)
    print("last", end="", file=stream)
    assert stream.text == "a 1\nbc\nde\nf\n\nlast"
    assert recorded.finish() == ["a 1", "bc", "de", "f", "", "last"]
    assert not vars(stream).get("write")
    assert {event.stream for event in recorded.events} == {"stdout"}


def test_errors_are_the_stream_s_own(recorded):
    stream = recorded.stream
    with pytest.raises(TypeError, match="must be str"):
        stream.write(1)
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.write("x")
    assert recorded.finish() == []


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (["\r 1%", "\r 2%", "\r100%\n"], ["100%"]),
        (["1%\r", "2%\r", "\n", "next\n"], ["2%", "next"]),
        (["windows\r\n"], ["windows"]),
        (["1%\r", "", "2%"], ["2%"]),
    ],
)
def test_a_line_that_is_written_over_is_what_stands_in_the_end(recorded, written, lines):
    for text in written:
        recorded.stream.write(text)
    assert recorded.finish() == lines


def test_a_progress_bar_without_end_takes_no_room(recorded):
    for _ in range(1000):
        recorded.stream.write("\r" + "#" * 100)
    assert len(recorded.lines._begun) < 300


def test_lines_before_torch_are_recorded_too():
    recorded = Recorded(attached=False)
    print("early", file=recorded.stream)
    recorded.attach()
    print("late", file=recorded.stream)
    assert recorded.finish() == ["early", "late"]


def test_records_are_written_in_batches(recorded, monkeypatch):
    for index in range(1200):
        print(index, file=recorded.stream)
    assert [len(event.lines) for event in recorded.events] == [500, 500]
    assert recorded.finish() == [str(index) for index in range(1200)]


def test_secrets_are_replaced_and_their_lines_have_a_digest(recorded):
    secret = "token=ghp_" + "x9Y8z7W6v5U4t3S2r1Q0p9O8n7M6l5K4j3I2"
    print("loss 1.5", file=recorded.stream)
    print(secret, file=recorded.stream)
    lines = recorded.finish()
    (event,) = recorded.events
    assert lines[0] == "loss 1.5"
    assert "ghp_x9" not in lines[1]
    assert event.digests == ("", hashlib.blake2b(secret.encode(), digest_size=16).hexdigest())


def test_a_long_line_is_clipped_and_has_a_digest(recorded):
    print("x" * 20_000, file=recorded.stream)
    (line,) = recorded.finish()
    assert len(line) <= program_output.MAX_LINE
    assert recorded.events[0].digests[0]


@pytest.mark.parametrize("limit", ["MAX_LINES", "MAX_CHARS"])
def test_of_too_many_lines_there_is_one_digest(monkeypatch, limit):
    monkeypatch.setattr(program_output, limit, 10)

    def run(last):
        recorded = Recorded()
        for index in range(20):
            print(index % 10, file=recorded.stream)
        print(last, file=recorded.stream)
        return recorded.finish()

    assert run("a")[:10] == [str(index) for index in range(10)]
    assert run("a")[10].startswith("11 more lines, with digest ")
    assert run("a") == run("a") != run("b")


def test_many_threads_lose_nothing(recorded):
    def work():
        for index in range(300):
            recorded.stream.write(f"{index}\n")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(recorded.finish()) == sorted([str(index) for index in range(300)] * 4)


def test_a_fork_leaves_its_parent_s_lines(recorded):
    print("parent", end="", file=recorded.stream)
    pid = os.fork()
    if pid == 0:
        print("child", file=recorded.stream)
        # What is written is a record at once, without what the parent began.
        os._exit(0 if [event.lines for event in recorded.events] == [("child",)] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    print(file=recorded.stream)
    assert recorded.finish() == ["parent"]


def test_streams_of_the_program_s_own_are_not_read(monkeypatch):
    stream, events = Stream(), []
    monkeypatch.setattr(sys, "stdout", stream)
    output = ProgramOutput()
    output.install(PostImport())
    output.attach(Session(events.append), torch)
    with redirect_stdout(io.StringIO()):
        print("captured")
    print("shown")
    output.finish()
    output.uninstall()
    assert [event.lines for event in events if event.stream == "stdout"] == [("shown",)]


# --- saved values ---------------------------------------------------------------------------------


@pytest.fixture
def saving():
    """The events of what is saved."""
    events = []
    output, imports = ProgramOutput(), PostImport()
    save = torch.save
    output.install(imports)
    output.attach(Session(events.append), torch)
    yield [events, output]
    output.uninstall()
    imports.withdraw()
    assert torch.save is save is torch.serialization.save


def test_what_torch_saves_is_recorded(saving, tmp_path: Path):
    events, _ = saving
    model = torch.nn.Linear(2, 2)
    state = {"model": model.state_dict(), "step": 5}
    assert torch.save(state, tmp_path / "last.pt") is None
    buffer = io.BytesIO()
    torch.save(obj=state, f=buffer)
    (saved, in_memory) = events
    assert (saved.writer, saved.file, in_memory.file) == ("torch.save", "last.pt", "")
    assert [value.path for value in saved.values] == [
        "['model'].weight",
        "['model'].bias",
        "['step']",
    ]
    assert saved.values == in_memory.values
    assert saved.complete
    loaded = torch.load(tmp_path / "last.pt")
    assert torch.equal(loaded["model"]["weight"], model.weight)
    with torch.no_grad():
        model.weight[0, 0] += 1
    torch.save(state, buffer)
    assert events[-1].values != saved.values
    # Of an object of another class it is not known what is inside.
    torch.save(tmp_path, buffer)
    assert not events[-1].complete


def test_a_whole_module_is_read(saving):
    events, _ = saving
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    torch.save({"net": model, "step": 1}, io.BytesIO())
    values = {value.path: value for value in events[0].values}
    assert values["['net'].0.weight"].values == tuple(model[0].weight.double().flatten().tolist())
    assert {"['net'].1.running_mean", "['net'].1.eps", "['step']"} < values.keys()
    assert events[0].complete


def test_a_save_that_fails_raises_as_ever(saving, tmp_path: Path):
    events, _ = saving
    with pytest.raises(RuntimeError, match="does not exist") as raised:
        torch.save(1, tmp_path / "missing" / "x.pt")
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        torch.save(1)
    assert all("compilediag_harness" not in str(entry.path) for entry in raised.traceback)
    assert not events


def test_what_safetensors_saves_is_recorded(saving, tmp_path: Path, monkeypatch):
    safetensors = pytest.importorskip("safetensors.torch")
    events, _ = saving
    from safetensors.torch import save_file

    tensors = {"b": torch.ones(2), "a": torch.zeros(1)}
    save_file(tensors, tmp_path / "x.safetensors")
    assert safetensors.load(safetensors.save(tensors)).keys() == {"a", "b"}
    model = torch.nn.Linear(1, 1)
    safetensors.save_model(model, str(tmp_path / "m.safetensors"))
    assert [(event.writer, event.file, len(event.values)) for event in events] == [
        ("safetensors", "x.safetensors", 2),
        ("safetensors", "", 2),
        ("safetensors", "m.safetensors", 2),
    ]


def test_many_values_are_more_than_one_record(saving, monkeypatch):
    events, _ = saving
    monkeypatch.setattr(program_output, "MAX_IN_RECORD", 2)
    monkeypatch.setattr(program_output, "MAX_SAVED", 5)
    torch.save(list(range(5)), io.BytesIO())
    torch.save(list(range(6)), io.BytesIO())
    assert [len(event.values) for event in events] == [2, 2, 1] * 2
    assert [event.complete for event in events] == [True] * 3 + [False] * 3
    assert isinstance(events[0], wire.ValuesSaved)


def test_modules_that_the_program_imports_later_get_the_function(tmp_path: Path, monkeypatch):
    """`from safetensors.torch import save_file` comes after ours is in place."""
    package = tmp_path / "safetensors"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "torch.py").write_text("def save_file(tensors, filename): return filename\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "safetensors"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    events, imports, output = [], PostImport(), ProgramOutput()
    output.install(imports)
    output.attach(Session(events.append), torch)
    from safetensors.torch import save_file

    assert save_file({"a": torch.ones(1)}, "x") == "x"
    output.uninstall()
    imports.withdraw()
    assert [event.file for event in events] == ["x"]
    for name in ("safetensors", "safetensors.torch"):
        sys.modules.pop(name, None)
