"""`fix` proves what works, in real runs; what lies: `make liars`, of the same certificate."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import captured

from compilediag.cli import main
from compilediag.receipt.file import read_receipt
from compilediag.receipt.locate import find_receipt

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked")

NUMBERS = """
import torch

def power(x, n):
    return x.sum() * n

torch.manual_seed(0)
call = torch.compile(power, backend="eager")
for n in (2, 3, 5):
    call(torch.ones(4), n)
"""


def test_a_change_is_proved_by_a_second_run(tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "powers.py").write_text(NUMBERS, encoding="utf-8")
    assert main(["fix", "--yes", "--env", "fix.sh", "powers.py"]) == 0
    out, err = capfd.readouterr()
    assert "what it writes or sends, it writes or sends each time" in err  # also with --yes
    findings = read_receipt(tmp_path).findings
    proofs = {each.rule: each.fix.proof for each in findings if each.severity != "info"}
    assert {rule: proof and (proof.kind, proof.runs) for rule, proof in proofs.items()} == {
        "CD107": ("environment", 2)
    }
    line = "export TORCH_COMPILE_DYNAMIC_SOURCES=\"L['n']\"\n"
    assert (tmp_path / "fix.sh").read_text() == line
    assert line in out
    # Trials are no runs of the user's: there is one run, and it is the latest.
    runs = [path.name for path in (tmp_path / ".compilediag").iterdir() if path.name[0].isdigit()]
    assert [Path(find_receipt()).parent.name] == runs
    assert main(["gate", "--require-proved-fix"]) == 0
    program = tmp_path / "powers.py"
    program.write_text(NUMBERS + "\n", encoding="utf-8")
    assert main(["gate", "--require-proved-fix"]) == 2  # proofs of other code are none


EDITED = """\
\"\"\"Sizes that change.\"\"\"
from torch import compile, ones

def scaled(x):
    return x.sin().sum()


call = compile(scaled, backend="eager")
for size in (4, 6, 8):
    batch = ones(size)
    # the step
    call(batch)
"""


COUNTED = """
import runpy
runpy.run_path("edited.py")
from torch._dynamo import utils
rows = utils.get_compilation_metrics()
print(sum(bool(row.recompile_reason) for row in rows), sum(utils.counters["graph_break"].values()))
"""
"""The recompiles and breaks of a plain run, as torch counts them."""


def test_edits_are_made_when_they_are_proved(tmp_path: Path, monkeypatch, capfd) -> None:
    """In the file and as a patch, which are the same; a plain run has no finding then."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "edited.py"
    program.write_text(EDITED, encoding="utf-8")
    program.chmod(0o755)
    for words in (["init", "-q"], ["add", "edited.py"], ["commit", "-q", "-m", "."]):
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *names, *words], check=True)
    assert main(["fix", "--yes", "--patch", "fix.patch", "edited.py"]) == 0
    assert "  next: compilediag fix --apply\n" in capfd.readouterr().out
    # Of what is proved the edits are made without another run.
    assert main(["fix", "--apply"]) == 0
    out, err = capfd.readouterr()
    assert (out, "run 1" in err) == ("  next: compilediag run -- edited.py\n", False)
    edited = program.read_text(encoding="utf-8")
    assert edited == EDITED.replace(
        "from torch import compile, ones\n", "import torch\nfrom torch import compile, ones\n"
    ).replace(
        "    call(batch)\n", "    torch._dynamo.maybe_mark_dynamic(batch, 0)\n    call(batch)\n"
    )
    assert program.stat().st_mode & 0o777 == 0o755
    program.write_text(EDITED, encoding="utf-8")
    subprocess.run(["git", "apply", "fix.patch"], check=True)
    assert program.read_text(encoding="utf-8") == edited
    done = captured(sys.executable, "-c", COUNTED, check=True)
    assert done.stdout.split()[-2:] == ["0", "0"]


CERTIFIED = """
import torch

state = {"seen": 0.5}

@torch.compile(backend="eager", dynamic=False)
def scaled(x):
    return x * state["seen"]

for number in range(4):
    state["seen"] = number / 4
    print(scaled(torch.ones(4)).sum().item())
"""


def test_the_line_below_a_finding_checks_an_edit_by_one_execution(
    tmp_path: Path, monkeypatch, capfd
) -> None:
    """As it is printed, of the run that `fix` began with."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "train.py"
    program.write_text(CERTIFIED, encoding="utf-8")
    main(["fix", "--yes", "train.py"])
    out = capfd.readouterr().out
    line = next(text for text in out.splitlines() if "then check the edit: compilediag " in text)
    edited = CERTIFIED.replace('"seen": 0.5', '"seen": torch.tensor(0.5)')
    edited = edited.replace('state["seen"] = number / 4', 'state["seen"].fill_(number / 4)')
    program.write_text(edited, encoding="utf-8")
    words = line.partition("compilediag ")[2].split()
    assert main([words[0], "--json", *words[1:]]) == 0, out
    assert json.loads(capfd.readouterr().out)["executions"] == 1


STOPPED = """
import os
import sys
import time
import torch

@torch.compile(backend="eager")
def power(x):
    return x.sum()

for n in (2, 3, 5):
    power(torch.ones(n))
# Refuses the setting, which is tried first.
print(os.environ.get("TORCH_COMPILE_DYNAMIC_SOURCES"))
# Not below the folder of the program, whose files are put back.
runs = os.path.join(sys.argv[1], "runs")
with open(runs, "a") as file:
    file.write("x")
if os.path.getsize(runs) == 3:
    time.sleep(600)
"""


@pytest.mark.usefixtures("own_interpreter")
@pytest.mark.parametrize(
    "stop",
    [lambda pid: os.killpg(pid, signal.SIGINT), lambda pid: os.kill(pid, signal.SIGTERM)],
    ids=["ctrl-c", "terminated"],
)
def test_being_stopped_in_the_middle_leaves_everything_whole(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, stop
) -> None:
    """The receipt and the program are as they were, and what was known is written."""
    runs = tmp_path_factory.mktemp("runs") / "runs"
    (tmp_path / "stopped.py").write_text(STOPPED, encoding="utf-8")
    command = [sys.executable, "-m", "compilediag", "fix", "--yes", "--apply", "--force"]
    child = subprocess.Popen(
        [*command, "stopped.py", str(runs.parent)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    while child.poll() is None and not (runs.exists() and runs.stat().st_size == 3):
        time.sleep(0.05)
    stop(child.pid)
    out, _ = child.communicate(timeout=120)
    assert child.returncode == 130, out
    assert "interrupted in run 2: what was not tried by then is left out" in " ".join(out.split())
    assert "nothing was written" in out
    assert (tmp_path / "stopped.py").read_text(encoding="utf-8") == STOPPED
    (run,) = (tmp_path / ".compilediag").glob("*-stopped-*")
    assert read_receipt(run).findings[0].fix.proof is None
    known = json.loads((run / "fix.json").read_text(encoding="utf-8"))
    assert (known["complete"], known["runs"]) == (False, 2)
    assert [path.name for path in run.iterdir() if "tmp" in path.name] == []
