"""`run --record`, an edit, `certify`: honest changes are proved, liars are not, and nothing of the
user's is touched."""

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

import pytest

from compilediag.cli import main
from compilediag.receipt.file import read_receipt
from compilediag.receipt.locate import find_latest_run

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked")

PROGRAM = """
import os, pathlib, sys, torch
import helper

def forward(x, w, late):
    y = (x @ w).relu()
    if late:
        y = y * 2.0
    return y.sum()

compiled = torch.compile(forward, backend="eager")

def train():
    w = torch.ones(4, 2, requires_grad=True)
    data = pathlib.Path("data.txt").read_text().split()
    print("goes on:", os.path.exists("weights.pt") and bool(torch.load("weights.pt")))
    for step in range(14):
        x = torch.randn(3 + step % 3, 4) * float(data[0])
        pass
        out = compiled(x, w, step >= 11)
        out.backward()
        print(f"step {step} loss {out.item():.6f} {helper.NAME}")
    torch.save({"w": w.detach()}, "weights.pt")
    with open("log.txt", "a") as log:
        log.write("trained\\n")

train()
"""

MARKED = PROGRAM.replace("        pass\n", "        torch._dynamo.maybe_mark_dynamic(x, 0)\n")


def git(*arguments: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def read_all(folder: Path) -> dict[str, bytes]:
    """Read the user's files."""
    apart = {".git", ".compilediag", "__pycache__"}
    files = (path for path in folder.rglob("*") if apart.isdisjoint(path.parts) and path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A repository with a program that was run with --record once."""
    here = tmp_path_factory.mktemp("program")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        (here / "train.py").write_text(PROGRAM)
        (here / "helper.py").write_text("NAME = 'a'\n")
        (here / ".gitignore").write_text("data.txt\n*.pt\nlog.txt\n__pycache__\n")
        (here / "data.txt").write_text("1.0")
        git("init", "-q", ".")
        git("add", "-A")
        git("commit", "-qm", "one")
        assert main(["run", "--record", "--quiet", "train.py"]) == 0
        yield here


@pytest.fixture(autouse=True)
def _clean(folder: Path) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Every test leaves the user's files as they were, whatever it executed."""
    git("checkout", "-q", ".")
    before = read_all(folder)
    yield
    git("checkout", "-q", ".")
    assert read_all(folder) == before


def certify(*words: str) -> tuple[int, dict[str, object]]:
    """Certify and return the exit code and the document."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["certify", "--json", "--quiet", *words])
    return code, json.loads(out.getvalue()) if out.getvalue() else {"message": err.getvalue()}


def name_points(document: dict[str, object]) -> dict[str, str]:
    return {p["name"]: p["outcome"] for p in document["points"]}  # type: ignore[index,attr-defined]


def test_an_honest_change_is_proved_in_one_execution(folder: Path) -> None:
    latest = find_latest_run(".compilediag")
    (folder / "train.py").write_text(MARKED)
    code, document = certify("--", "train.py")
    assert (code, document["verdict"]) == (0, "proved"), document
    assert document["executions"] == 1
    assert "recorded run" in str(document["base"])
    assert len(json.dumps(document, separators=(",", ":"))) <= 2_000
    assert find_latest_run(".compilediag") == latest
    # The findings that are gone have the proof, for the gate.
    proofs = [finding.fix.proof for finding in read_receipt(latest).findings if finding.fix.proof]
    assert proofs
    assert proofs[0].kind == "certified"


def test_a_flag_that_only_late_calls_pass_differently_is_seen(folder: Path) -> None:
    (folder / "train.py").write_text(MARKED.replace("step >= 11", "False"))
    code, document = certify("--", "train.py")
    assert (code, name_points(document)["results"]) == (3, "fails"), document


def test_a_branch_that_is_gone_has_to_have_run(folder: Path) -> None:
    """The recorded run is executed once more, with its lines watched; both sides of `late` ran."""
    both = MARKED.replace("    if late:\n        y = y * 2.0\n", "    y = y * (1.0 + late)\n")
    (folder / "train.py").write_text(both)
    code, document = certify("--", "train.py")
    assert (code, document["executions"]) == (0, 2), document


def test_nothing_changed_is_no_proof(folder: Path) -> None:
    code, document = certify("--", "train.py")
    assert code in (3, 4), document
    assert name_points(document)["better"] != "holds"


def test_another_module_is_a_part_of_the_state(folder: Path) -> None:
    (folder / "helper.py").write_text("NAME = 'b'\n")
    (folder / "train.py").write_text(MARKED)
    code, document = certify("--", "train.py")
    assert (code, name_points(document)["results"]) == (3, "fails"), document


def test_a_program_that_lies_elsewhere_is_a_state_too(folder: Path, tmp_path, monkeypatch) -> None:
    """Started from a folder of results; its model is in the folder beside its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("lib", "train", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "train" / "train.py").write_text(
        "import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))\n"
        "import torch, model\nfor _ in range(4): model.forward(torch.ones(3))\n"
    )
    old = (
        "import torch\nk = 0\n@torch.compile(backend='eager')\ndef forward(x):\n"
        "    global k\n    k += 1\n    return x * k\n"
    )
    (tmp_path / "lib" / "model.py").write_text(old)
    monkeypatch.chdir("results")
    assert main(["run", "--record", "--quiet", "../train/train.py"]) == 0
    (tmp_path / "lib" / "model.py").write_text(
        old.replace("k = 0", "k = torch.tensor(0)").replace("k += 1", "k = k + 1")
    )
    code, document = certify("--", "../train/train.py")
    assert (code, document["verdict"]) == (0, "proved"), document


def test_a_length_to_which_all_is_padded_is_a_limit_where_it_is_said(
    folder: Path, tmp_path, monkeypatch
) -> None:
    """What is cut off in silence may be wrong."""
    monkeypatch.chdir(tmp_path)
    old = (
        "import torch\nw = torch.ones(2, 2)\n"
        "@torch.compile(backend='eager', dynamic=False)\n"
        "def score(x, mask):\n    return ((x @ w).sigmoid() * mask[:, None]).sum(0)\n\n"
        "def summarise(x):\n    mask = torch.ones(len(x))\n    return score(x, mask)\n\n"
        "for n in (3, 5, 6):\n    print(float(summarise(torch.randn(n, 2)).sum()))\n"
    )
    (tmp_path / "pad.py").write_text(old)
    assert main(["run", "--record", "--quiet", "pad.py"]) == 0
    pad = (
        "    mask = torch.zeros(N)\n    mask[:len(x)] = 1\n"
        "    x = torch.nn.functional.pad(x, (0, 0, 0, N - len(x)))\n"
    )
    bound = "    if len(x) > N:\n        raise ValueError(\n            'too long'\n        )\n"
    for length, begin, verdict in ((32, "", "not decided"), (8, bound, "proved")):
        text = old.replace("    mask = torch.ones(len(x))\n", f"    N = {length}\n{begin}{pad}")
        (tmp_path / "pad.py").write_text(text)
        _, document = certify("--", "pad.py")
        assert (length, document["verdict"]) == (length, verdict), document
    (said,) = [p["sentence"] for p in document["points"] if p["name"] == "other inputs"]
    assert "with size 6 → 16, which no call had, it raises only after, and" in said


def test_a_patch_and_a_commit(folder: Path) -> None:
    (folder / "train.py").write_text(MARKED)
    patch = folder / ".compilediag" / "change.diff"
    patch.write_bytes(subprocess.run(["git", "diff"], capture_output=True, check=True).stdout)
    # What was recorded is that commit.
    code, document = certify("--base", "HEAD", "--", "train.py")
    assert (code, document["executions"]) == (0, 1), document
    git("checkout", "-q", ".")
    code, document = certify("--patch", str(patch), "--", "train.py")
    assert (code, document["executions"]) == (0, 1), document


def test_bad_input(folder: Path) -> None:
    for words, sentence in (
        (["--base", "nowhere", "--", "train.py"], "git has no 'nowhere'"),
        (["--env", "NAME", "--", "train.py"], "NAME=VALUE"),
        (["--config", "torch._dynamo.config.nothing=1", "--", "train.py"], "no such option"),
        ([], "name the program"),
    ):
        code, document = certify(*words)
        assert (code, sentence in str(document)) == (2, True), document


def test_a_program_that_does_not_end_is_not_decided(folder: Path) -> None:
    endless = MARKED.replace("train()\n", "train()\nimport time\ntime.sleep(600)\n")
    (folder / "train.py").write_text(endless)
    code, document = certify("--timeout", "30", "--", "train.py")
    assert code == 4, document
    assert "--timeout S" in str(document["reason"])


def test_interrupted_leaves_nothing(folder: Path) -> None:
    (folder / "train.py").write_text(MARKED.replace("train()\n", "train()\ntrain()\n" * 2000))
    before = {*Path(".compilediag").iterdir()}
    command = [sys.executable, "-m", "compilediag", "certify", "--", "train.py"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not list(Path(".compilediag").glob("*certify*/01-*/journal*")):
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(180) == 130  # on a machine that does much else
    assert {*Path(".compilediag").iterdir()} == before


def test_changed_data_is_the_same_in_both_states(folder: Path) -> None:
    # The last of these tests: the data counts as changed from now on.
    data = folder / "data.txt"
    was = data.stat()
    data.write_text("0.5")
    os.utime(data, ns=(was.st_atime_ns, was.st_mtime_ns))  # as of a copy that keeps times
    (folder / "train.py").write_text(MARKED)
    try:
        code, document = certify("--", "train.py")
    finally:
        data.write_text("1.0")
    assert code == 0, document
    assert document["executions"] == 2
