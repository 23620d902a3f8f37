"""Steps found in real programs, and our hooks unseen by Dynamo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from step_sources import counting_steps

from compilediag_harness.base.session import Session
from compilediag_harness.wire import Event

torch = pytest.importorskip("torch")


@pytest.fixture
def session() -> Iterator[tuple[Session, list[Event]]]:
    with counting_steps() as session:
        yield session


PROGRAM = """
import json, sys
import torch
if sys.argv[1] == "on":
    from compilediag_harness.base.session import Session
    from compilediag_harness.steps import steps
    from compilediag_harness.torch_internals import torch_calls
    events = []
    session = Session(events.append)
    steps.install(session, torch)
assert "torch._dynamo" not in sys.modules
from torch._dynamo import utils
if sys.argv[1] == "on":
    torch_calls.watch_compiled_calls()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
update = torch.compile(lambda: optimizer.step(), backend="eager")
def train(x):
    model(x).sum().backward()
    update()
for _ in range(6):
    train(torch.ones(2, 4))
rows = [(r.compile_id, r.co_name, r.has_guarded_code) for r in utils.get_compilation_metrics()]
seen = []
if sys.argv[1] == "on":
    steps.finish(session)
    seen = [(e.source, len(e.ends)) for e in events if type(e).__name__ == "StepsEnded"]
print(json.dumps([rows, sum(utils.counters["graph_break"].values()), seen]))
"""


def test_a_compiled_optimizer_compiles_as_without_us(tmp_path: Path) -> None:
    """Same compile ids, frames and graph breaks with and without our hooks; and the steps, which
    the hooks cannot see there, are those of the compiled calls."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    path = os.pathsep.join(sys.path)
    plain, watched = (
        json.loads(
            subprocess.run(
                [sys.executable, "-W", "ignore", "program.py", mode],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for mode in ("off", "on")
    )
    assert len(plain[0]) >= 2
    assert watched[:2] == plain[:2]
    assert {source for source, _ in watched[2]} == {"call"}
    assert sum(count for _, count in watched[2]) == 6
