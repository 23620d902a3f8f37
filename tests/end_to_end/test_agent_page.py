"""docs/howto/agent.md, followed literally: from a finding to a passing gate, by MCP and a shell."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import captured

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(600)

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
print(float(out.detach().sum()))
"""


def read_blocks(language: str) -> list[str]:
    text = PAGE.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text("utf-8").split()) <= 700


def test_the_commands_followed_literally(tmp_path: Path) -> None:
    """Each field that the page names is there, and the gate passes at the end."""
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    place = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    lines = read_blocks("sh")[1].splitlines()
    assert len(lines) == 5
    for line in lines:
        done = captured("sh", "-c", line, cwd=tmp_path, env={**os.environ, **place}, timeout=240)
        assert done.returncode == 0, f"{line}\n{done.stderr}"

    def read(name: str) -> Any:
        return json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))

    before = read("run")
    (found,) = [item for item in before["findings"] if item["severity"] != "info"]
    assert (before["verdict"], found["key"]) == ("findings", "CD107-scale")
    assert (found["location"]["line"], found["entered_at"]["line"]) == (9, 13)
    assert found["fix"]["summary"]
    assert read("finding")["finding"]["key"] == "CD107-scale"
    assert read("certificate")["verdict"] == "proved"
    assert read("gate")["passed"]
    assert read("gate")["judgements"][0]["notices"] == []


def test_the_calls_followed_literally(tmp_path: Path) -> None:
    """By the SDK's own client; the certificate is a proof, and its state passes the gate."""
    served = pytest.importorskip("served_mcp")
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    replies: dict[str, served.Reply] = {}

    async def follow(client: Any) -> None:
        for line in read_blocks("text")[0].splitlines():
            tool, _, words = line.partition(" ")
            if tool == "edit":
                name, old, new = re.match(r"\s*(\S+): (.*) -> (.*)", words).groups()  # type: ignore[union-attr]
                program = (tmp_path / name).read_text("utf-8")
                assert old in program
                (tmp_path / name).write_text(program.replace(old, new), encoding="utf-8")
                continue
            folder = replies["certify"].data["folder"] if "certify" in replies else "FOLDER"
            arguments = json.loads(words.replace("FOLDER", folder))
            replies[tool] = await served.call(client, tool, **arguments)

    served.serve(tmp_path, follow)
    assert replies["run"].data["recompiles"] == 1
    assert replies["run"].data["findings"][0]["entered_at"].startswith("train.py:13 ")
    assert replies["explain"].data["finding"]["key"] == "CD107-scale"
    certificate = replies["certify"].data
    assert (certificate["verdict"], certificate["executions"]) == ("proved", 1), certificate
    assert replies["gate"].data["passed"] is True
    executed = [path.name for path in (tmp_path / ".compilediag").iterdir() if path.is_dir()]
    assert len(executed) == 3  # with `latest`: two executions in all
