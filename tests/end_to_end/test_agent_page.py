"""docs/howto/agent.md, followed literally: from a finding to a passing gate by JSON alone."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import captured

pytestmark = pytest.mark.usefixtures("forked")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "agent.md"
PROGRAM = """\
import torch

torch.manual_seed(0)
linear = torch.nn.Linear(4, 4)


@torch.compile(backend="eager")
def step(x, scale):
    return linear(x) * scale


for number in range(4):
    out = step(torch.ones(2, 4), number + 0.5)
print(float(out.sum()))
"""


def field(folder: Path, name: str) -> Any:
    """A document that a command has written."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_the_page_followed_literally(tmp_path: Path) -> None:
    """Each field that the page names is there, and the gate passes at the end."""
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    place = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment = {**os.environ, **place, "GIT_CONFIG_GLOBAL": os.devnull}

    def shell(line: str) -> str:
        done = captured("sh", "-c", line, cwd=tmp_path, env=environment, timeout=240)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stderr

    shell("git init -q . && git add train.py")
    shell("git -c user.name=n -c user.email=e@x commit -qm first")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    printed = [shell(line) for block in blocks for line in block.splitlines()]
    assert len(printed) == 5

    before = field(tmp_path, "run.json")
    assert before["verdict"] == "findings"
    (finding,) = [item for item in before["findings"] if item["severity"] != "info"]
    assert (finding["location"]["file"], finding["variable"]) == ("train.py", "scale")
    assert finding["entered_at"]["line"] == 13
    assert finding["next"] == "compilediag fix 1"
    assert finding["fix"]["summary"]

    tried = field(tmp_path, "fix.json")["findings"][0]["tried"]
    (proved,) = [item for item in tried if item["proved"]]
    assert proved["patch"].startswith("--- ")
    assert all(point["passed"] is not False for point in proved["points"])

    counts = field(tmp_path, "diff.json")["comparison"]["counts"]
    (recompiles,) = [item for item in counts if item["name"] == "recompiles"]
    assert (recompiles["before"], recompiles["after"]) == (before["compile"]["recompiles"], 0)
    judged = field(tmp_path, "gate.json")
    assert judged["passed"]
    assert judged["judged"]
    assert judged["judgements"][0]["failures"] == []
    # The program computes what it computed: it prints the same sum.
    assert printed[0].splitlines()[0] == printed[2].splitlines()[0]
