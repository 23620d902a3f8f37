"""The probe on a real program, which declares its groups.

What each variant counts is compared with torch's own counts of the same program, moved the same
way, without us.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import compilediag

pytestmark = pytest.mark.usefixtures("forked")

PLANNED_CLOCK = """
import sys, time

now = time.monotonic()

def clock():
    global now
    now += 1e-7  # two readings are never the same moment
    return now

def wait(seconds):
    global now
    now += seconds

# The steps of this program take the seconds that it waits for, on any machine.
for name, module in list(sys.modules.items()):
    for known, value in list(vars(module).items()) if name.startswith("compilediag_") else ():
        if value is time.monotonic:
            setattr(module, known, clock)
time.monotonic = clock
"""

DECLARES = f"""
import torch
import compilediag as cd
{PLANNED_CLOCK}
entropy, norms = cd.cadence("entropy", every=4), cd.cadence("norms", every=6)
capture = False
rows = torch.rand(16, 10)

@torch.compile(backend="eager")
def forward(x):
    return x.sin() if capture else x.cos()

weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)

def train(step):
    global capture
    capture = entropy.due(step)
    forward(weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    fires = norms.due(step)
    wait(0.4 if fires else 0.002)
    for row in rows if fires else ():
        row.tolist()

cd.drive(train, steps=24)
"""

COUNTS = ("frames", "compiles", "recompiles", "graphs", "graph_breaks", "eager_fallbacks")


def probe(folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    """The receipt of a probe, and its screen."""
    words = ("probe", "--no-live", "--output", "out", *words)
    done = compilediag(*words, cwd=folder, timeout=1200)
    assert done.returncode == 0, done.stderr
    receipt = json.loads((folder / "out/receipt.json").read_text(encoding="utf-8"))
    return receipt, done.stderr


def counted_by_torch(program: Path, variables: dict[str, str], *words: str) -> dict[str, int]:
    """torch's own counts of a plain run."""
    report = program.with_suffix(".json")
    oracle = str(Path(__file__).parents[1] / "support" / "oracle.py")
    subprocess.run(
        [sys.executable, oracle, str(report), str(program), *words],
        env={**os.environ, **variables},
        capture_output=True,
        check=True,
        timeout=600,
    )
    return json.loads(report.read_text(encoding="utf-8"))["counts"]


@pytest.mark.timeout(1800)
def test_groups_of_the_code(tmp_path: Path) -> None:
    """Every variant's counts are torch's own; the flag's group compiles, the other does not, but
    it works and reads tensors, and each of the two has its seconds."""
    program = tmp_path / "model.py"
    program.write_text(DECLARES)
    receipt, screen = probe(tmp_path, "model.py")
    found = receipt["cadence"]
    for variant in found["variants"]:
        settings = variant["settings"] | {"COMPILEDIAG_OPTIONS": f'{{"steps": {found["steps"]}}}'}
        expected = counted_by_torch(program, settings)
        assert {name: variant["counts"][name] for name in COUNTS} == {
            name: expected[name] for name in COUNTS
        }, variant["name"]
    entropy, norms = found["attribution"]
    assert (entropy["recompiles"], norms["recompiles"]) == (1, 0)
    assert entropy["causes"][0]["variable"] == "capture"
    assert entropy["compile_s"] > 0
    assert norms["compile_s"] == 0
    assert norms["fires"] >= 3
    recurring = norms["recurring"]
    assert recurring["total_s"] == pytest.approx(0.4 - 0.002, rel=0.01)
    assert recurring["total_s"] == pytest.approx(recurring["metric_s"] + recurring["sync_s"])
    assert entropy["recurring"]["sync_s"] == 0.0
    alone = next(item for item in found["variants"] if item["name"] == "norms")
    variant = json.loads((tmp_path / "out" / alone["receipt"]).read_text(encoding="utf-8"))
    (line,) = variant["syncs"]["lines"]
    assert (line["kind"], line["count"]) == ("tolist", 16 * norms["fires"])
    assert "entropy" in screen
