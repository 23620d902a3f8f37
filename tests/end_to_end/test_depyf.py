"""`run --depyf`: what frames became, from a second run; the measured run and its verdict stay."""

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from command_line import compilediag

from compilediag import cli
from compilediag.runs.run_directory import ARTIFACTS, DEPYF
from compilediag.runs.supervised.child import PASSED_ON, ExitInfo, SupervisedRun
from compilediag.runs.supervised.depyf import decompile_frames
from compilediag.runs.supervised.run_options import RunOptions
from compilediag.runs.supervised.signals import GroupSignalMonitor, SignalInbox
from compilediag.runs.supervised.target import Target

pytestmark = pytest.mark.usefixtures("forked")

PROGRAM = """
import pathlib
import torch

@torch.compile(backend="eager")
def scale(x, n):
    y = x * n
    print("runs", n)
    return y + 1

for n in (2, 3):
    scale(torch.ones(4), n)
with open("ran", "a") as file:
    file.write("once ")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, str, str]:
    """The folder of `run --depyf` on the program; its receipt and output."""
    folder = tmp_path_factory.mktemp("depyf")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = compilediag("run", "--depyf", "--no-live", "--output", "out", "program.py", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    receipt = json.loads((folder / "out" / "receipt.json").read_text(encoding="utf-8"))
    return folder, receipt, done.stdout, done.stderr


def test_the_measured_run_is_the_only_one_that_is_seen(run: tuple[Path, Any, str, str]) -> None:
    """The program ran twice; its output, its journals and the counts are those of one run."""
    folder, receipt, stdout, _ = run
    assert (folder / "ran").read_text(encoding="utf-8") == "once once "
    assert stdout == "runs 2\nruns 3\n"
    assert receipt["status"] == "complete"
    assert len([item for item in receipt["artifacts"] if item["role"] == "journal"]) == 1
    counts = receipt["compile"]
    assert (counts["recompiles"], counts["graph_breaks"]) == (1, 1)


def test_every_compile_has_its_file(run: tuple[Path, Any, str, str]) -> None:
    """A file a compile, linked from the receipt: code that runs, code it was made of, guards; a
    resume function says that it is what runs after the break."""
    folder, receipt, _, stderr = run
    uris = [item["uri"] for item in receipt["artifacts"] if item["role"] == "depyf"]
    names = {
        f"{event['compile_id'].replace('/', '-')}-{event['frame']['function']}.py"
        for event in receipt["compile"]["events"]
    }
    assert {uri.rpartition("/")[2] for uri in uris} == names
    texts = {uri: (folder / "out" / uri).read_text(encoding="utf-8") for uri in uris}
    assert all("--- what runs" in text for text in texts.values())
    assert all("TREE_GUARD_MANAGER" in text for text in texts.values())
    resumed = [text for uri, text in texts.items() if "torch_dynamo_resume_in" in uri]
    assert resumed
    assert all("what runs after a graph break" in text for text in resumed)
    first = next(text for uri, text in texts.items() if uri.endswith("0-0-scale.py"))
    assert "__compiled_fn_" in first
    assert "what torch.compile made of each frame: out/artifacts/depyf" in stderr


def test_show_links_the_files_from_the_frames(run, capsys: pytest.CaptureFixture[str]) -> None:
    """`show --frames` names the file of each compile, and what a resume function is."""
    assert cli.main(["show", "--frames", str(run[0] / "out")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "0/0 scale, what runs: artifacts/depyf/0-0-scale.py" in shown
    assert "what runs after the break: artifacts/depyf/1-0-torch_dynamo_resume_in" in shown


# --- a second run that is no torch program ---------------------------------------------------


class Stops(SignalInbox):
    """An inbox in which a signal is found once the program is ready for it."""

    def __init__(self, after: Path | None, signals: Iterable[int]) -> None:
        super().__init__()
        self._after, self._signals = after, list(signals)

    def wait_for_signals(self, timeout_s: float | None) -> list[int]:
        received = super().wait_for_signals(0.05)
        if self._after is not None and self._after.exists() and self._signals:
            received.append(self._signals.pop())
        return received


def second(folder, code, timeout_s=60.0, stops=(), known: str = "") -> tuple[dict[str, str], str]:
    """The files and the notes of a second run of code that writes notes as the child does."""
    command = (sys.executable, "-S", "-c", f"import os\n{code}")
    options = RunOptions(timeout_s=timeout_s, grace_s=0.3)
    variables = {"PATH": os.environ["PATH"], "MY_SECRET_TOKEN": known}
    target = Target("code", command, "code")
    run = SupervisedRun((), options, variables, target, str(folder), time.time(), str(folder))
    with Stops(folder / "ready", stops) as inbox, GroupSignalMonitor(PASSED_ON) as witness:
        notes = decompile_frames(run, ExitInfo(1, 0, 1.0), inbox, witness)
    files = sorted((folder / ARTIFACTS / DEPYF).glob("*"))
    return {path.name: path.read_text(encoding="utf-8") for path in files}, " ".join(notes)


def noting(name: str, text: str = "") -> str:
    """Code of a program that leaves one file."""
    return f"open(os.path.join(os.environ['COMPILEDIAG_DEPYF_DIR'], {name!r}), 'w').write({text!r})"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os._exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "signal 9"),
        ("import signal; signal.pause()", "longer than 0.3 s"),
        ("pass", "compiled nothing"),
    ],
)
def test_a_second_run_that_fails_costs_the_files_alone(code: str, said: str, tmp_path) -> None:
    """Exit code, signal, hang, nothing compiled: one sentence, and no file."""
    files, notes = second(tmp_path, code, 0.3 if "pause" in code else 60.0)
    assert files == {}
    assert said in notes


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_ctrl_c_ends_it(stubborn: bool, tmp_path: Path) -> None:
    """It takes the time that it needs to save its work; a second one ends it by force."""
    save = "while True: time.sleep(0.01)" if stubborn else "open('done', 'w')"
    code = f"""
import signal, time
os.chdir({str(tmp_path)!r})
try:
    open("ready", "w")
    while True: time.sleep(0.01)
except KeyboardInterrupt:
    {save}
"""
    # Sent to us alone: the supervisor passes it on.
    _, notes = second(tmp_path, code, stops=[2, 2] if stubborn else [2])
    assert "it was stopped" in notes
    assert (tmp_path / "done").exists() is not stubborn


def test_notes_of_a_run_that_died_are_kept(tmp_path: Path) -> None:
    """What was noted before the end is written, and the end is told."""
    files, notes = second(tmp_path, f"{noting('0-0-f.py')}\nos._exit(1)")
    assert list(files) == ["0-0-f.py"]
    assert "exit code 1" in notes


def test_names_and_secrets_of_a_note_do_nothing(tmp_path: Path) -> None:
    """A name that is none of ours is left out, and known secrets are gone."""
    files, _ = second(tmp_path, noting("0-0-x.py", "x = 'hunter2hunter2'"), known="hunter2hunter2")
    assert list(files) == ["0-0-x.py"]
    assert "hunter2" not in files["0-0-x.py"]
    assert second(tmp_path / "other", noting("0-0-..x.py"))[0] == {}


def test_what_depyf_cannot_decompile_is_bytecode(tmp_path: Path) -> None:
    """As comments, so that the file stays Python."""
    (tmp_path / "depyf.py").write_text("raise ImportError", encoding="utf-8")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    compilediag("run", "--depyf", "--no-live", "--output", "out", "program.py", cwd=tmp_path)
    text = (tmp_path / "out" / ARTIFACTS / DEPYF / "0-0-scale.py").read_text(encoding="utf-8")
    assert "# --- what runs, as bytecode: depyf could not decompile it\n# " in text
    compile(text, "0-0-scale.py", "exec")
