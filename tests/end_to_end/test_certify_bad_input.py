"""What is bad about a program, or was refused although it is good: each is told, and nothing of the
user's is lost."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compilediag.cli import main

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked")

PROGRAM = """
factor = float(open({outside!r}).read())

import datetime, random
import torch

torch._dynamo.config.specialize_float = True

def forward(x, scale):
    if scale > 0.3:
        x = x + 1
    return (x * scale).relu().sum()

compiled = torch.compile(forward, backend="eager")

for step, scale in enumerate((0.5, 0.45, 0.4, 0.2, 0.1, 0.35)):
    x = torch.randn(4, 3)
    loss = compiled(x, scale)
    print(f"{{datetime.datetime.now()}} step {{step}} loss {{loss.item() * factor:.6f}}")
print("noise", random.SystemRandom().random())
torch.save(loss, "weights.pt")
"""


def mend(text: str) -> str:
    """The float is a constant no more: what recompiles now does so for its branch alone."""
    return text.replace("float = True", "float = False").replace('"eager"', '"eager", dynamic=True')


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A recorded program, in no repository, with a checkpoint of the user's."""
    here = tmp_path_factory.mktemp("program")
    outside = tmp_path_factory.mktemp("elsewhere") / "factor.txt"
    outside.write_text("1.0")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        (here / "train.py").write_text(PROGRAM.format(outside=str(outside)))
        assert main(["run", "--record", "--quiet", "train.py"]) == 0
        (here / "weights.pt").write_text("the user's")
        (here / "outside").symlink_to(outside)
        (here / "train.py").write_text(mend((here / "train.py").read_text()))
        yield here
        assert (here / "weights.pt").read_text() == "the user's"


def certify(*words: str) -> tuple[int, dict[str, Any]]:
    """Certify and return the exit code and the document."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["certify", "--json", "--quiet", "--no-vary", *words, "--", "train.py"])
    assert len(out.getvalue()) <= 2_001  # a newline
    return code, json.loads(out.getvalue())


def read_sentences(document: dict[str, Any]) -> dict[str, str]:
    return {point["name"]: point["sentence"] for point in document["points"]}


def test_an_old_cause_with_a_new_name_and_a_program_that_differs_from_itself(folder: Path) -> None:
    code, document = certify()
    assert (code, document["executions"]) == (0, 2), document
    assert "not compared, differs when unchanged: noise" in read_sentences(document)["results"]
    newest = max(folder.glob(".compilediag/*certify*/certificate.json"))
    details = {p["name"]: p["details"] for p in json.loads(newest.read_text())["points"]}
    assert {"CD107-scale is gone", "CD118-scale is new"} <= {*details["better"]}


def test_what_fails_by_now_in_both_states_is_not_the_changes_fault(folder: Path) -> None:
    outside = (folder / "outside").resolve()
    outside.rename(outside.with_suffix(".away"))
    try:
        code, document = certify()
    finally:
        outside.with_suffix(".away").rename(outside)
    assert (code, document["executions"]) == (4, 2), document
    assert "both states end before anything is compiled: FileNotFoundError" in document["reason"]


@pytest.mark.parametrize("to_all", [True, False])
def test_ended_from_outside_nothing_is_left(folder: Path, to_all: bool) -> None:
    program = (folder / "train.py").read_text()
    (folder / "train.py").write_text(f"{program}\nimport time\ntime.sleep(600)\n")
    before = {*folder.rglob("*")}
    command = [sys.executable, "-m", "compilediag", "certify", "-q", "--", "train.py"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 100
        while not list(folder.glob(".compilediag/*certify*/01-files/files/**/weights.pt")):
            assert time.monotonic() < until
            time.sleep(0.1)
        if to_all:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.terminate()
        assert process.wait(100) == 130
    finally:
        (folder / "train.py").write_text(program)
    assert {*folder.rglob("*")} == before
