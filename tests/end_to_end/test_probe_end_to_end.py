"""The probe on real programs: a program that declares its groups, and one that nobody changed.

What each variant counts is compared with torch's own counts of the same program, moved the same
way, without us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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

UNMODIFIED = f"""
import argparse, os, torch
{PLANNED_CLOCK}
parser = argparse.ArgumentParser()
parser.add_argument("--entropy-every", type=int, default=250)
options = parser.parse_args()
norms_every = int(os.environ.get("NORMS_EVERY", "500"))
capture = False

@torch.compile(backend="eager")
def forward(x):
    return x.sin() if capture else x.cos()

weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(1, 200):
    capture = step % options.entropy_every == 0
    wait(0.002 + 0.04 * (step % norms_every == 0) + 0.05 * capture)
    forward(weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

COUNTS = ("frames", "compiles", "recompiles", "graphs", "graph_breaks", "eager_fallbacks")


def probe(folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    """The receipt of a probe, and its screen."""
    done = subprocess.run(
        [sys.executable, "-m", "compilediag", "probe", "--no-live", "--output", "out", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
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


@pytest.mark.timeout(1800)
def test_an_unmodified_program(tmp_path: Path) -> None:
    """Both forms of a template at once; what a program that counts from 1 fires in is found."""
    program = tmp_path / "model.py"
    program.write_text(UNMODIFIED)
    receipt, _ = probe(
        tmp_path,
        *("--group", "entropy=--entropy-every {n}", "--group", "norms=env:NORMS_EVERY={n}"),
        "model.py",
    )
    found = receipt["cadence"]
    entropy, norms = found["attribution"]
    assert (entropy["recompiles"], norms["recompiles"]) == (1, 0)
    for item in (entropy, norms):
        variant = next(v for v in found["variants"] if v["name"] == item["group"])
        fires = variant["fires"][item["group"]]
        assert len(fires) == item["fires"] >= 3
        # The program counts from 1, and we from 0.
        assert {(step + 1) % item["every"] for step in fires} == {0}
    assert norms["recurring"]["metric_s"] == pytest.approx(0.04, rel=0.01)


@pytest.mark.timeout(1800)
def test_the_motivating_story(tmp_path: Path) -> None:
    """Each metric's first firing compiles, with its cause by name. That the mended program compiles
    nothing twice is its scenario; that a group which compiles nothing costs nothing, the next
    tests' and those of the attribution."""
    program = Path(__file__).parents[2] / "scenarios" / "metric_cadence" / "broken.py"
    receipt, _ = probe(tmp_path, str(program), "--backend", "eager")
    found = receipt["cadence"]
    counts = [variant["counts"] for variant in found["variants"]]
    assert [item["recompiles"] for item in counts] == [4, 1, 2, 2, 2]
    assert {(item["frames"], item["graph_breaks"]) for item in counts} == {(1, 0)}
    assert {item["compiles"] - item["recompiles"] for item in counts} == {1}
    variables = [[cause["variable"] for cause in item["causes"]] for item in found["attribution"]]
    assert variables == [["capture"], ["stash"]]
    for item in found["attribution"]:
        assert (item["recompiles"], item["compile_s"] > 0, item["problem"]) == (1, True, None)


def test_a_planted_period_without_groups(tmp_path: Path) -> None:
    """The configured program alone, and its rhythm by name."""
    program = tmp_path / "model.py"
    program.write_text(UNMODIFIED)
    receipt, screen = probe(tmp_path, "model.py", "--entropy-every", "9")
    found = receipt["cadence"]
    assert [item["kind"] for item in found["variants"]] == ["configured"]
    assert 9 in [item["every"] for item in found["periods"]]
    assert "every 9th step from step" in screen
