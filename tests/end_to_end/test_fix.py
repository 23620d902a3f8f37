"""`fix` proves what works, and its certificate refuses what lies, in real runs."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from compilediag.fixes.certificate import Certificate, Without, judge
from compilediag.fixes.changes import plan_of
from compilediag.fixes.subject import subject_of
from compilediag.runs.supervised.options import Options
from compilediag.runs.trials.one import Program, Trial, run_trial

pytest.importorskip("torch")

PROGRAM = """
import os
import torch
from torch import nn

lie = os.environ.get("LIE", "")

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        self.calls += 1
        return self.layer(x).relu().sum(-1)

def failing(graph, inputs):
    raise RuntimeError("no backend")

model = Counter()
settings = {"backend": "eager"}
if lie == "filter":
    settings["options"] = {"guard_filter_fn": lambda guards: [False for _ in guards]}
if lie == "suppressed":
    torch._dynamo.config.suppress_errors = True
    settings["backend"] = failing
if lie == "disabled":
    model.forward = torch.compiler.disable(model.forward)
compiled = torch.compile(model, **settings)
for step in range(3 if lie == "fewer" else 6):
    compiled(torch.randn(3, 4))
    if lie == "unsafe":
        torch.compiler.set_stance(skip_guard_eval_unsafe=True)
    if lie == "eager":
        torch.compiler.set_stance("eager_on_recompile")
"""

Judged = Callable[[str], Certificate]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The certificate of a lie for the finding of the program: what it does in one run."""
    folder = tmp_path_factory.mktemp("fix")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    program = Program(
        (str(folder / "program.py"),), Options(), dict(os.environ), str(folder / "trials")
    )

    def run(number: int, lie: str = "", stance: str | None = None) -> Trial:
        name = lie or stance or "plain"
        plan = plan_of((), seed=1, stance=stance)
        trial = run_trial(program, number, name, plan, {"LIE": lie}, None)
        assert trial.observed is not None, trial.problem
        return trial

    baseline, eager = run(1).observed, run(2, stance="force_eager").observed
    assert baseline is not None
    assert [item.rule for item in baseline.receipt.findings][:1] == ["CD104"]
    subject = subject_of(baseline.receipt.findings[0], baseline.receipt)
    number = iter(range(3, 100))

    def certificate(lie: str) -> Certificate:
        observed = run(next(number), lie).observed
        assert observed is not None
        return judge(subject, Without(baseline, eager), [observed])

    return certificate


@pytest.mark.parametrize(
    ("lie", "failed", "reason"),
    [
        ("unsafe", "answers", "calls: 5 → 1"),
        ("filter", "answers", "calls: 5 → 1"),
        ("eager", "compiled", "compiled calls 6 → 1"),
        ("suppressed", "compiled", "graph operations"),
        ("disabled", "compiled", "graph operations"),
        ("fewer", "compiled", "compiled calls 6 → 3"),
    ],
)
def test_a_lie_is_refused(judged: Judged, lie: str, failed: str, reason: str) -> None:
    certificate = judged(lie)
    points = {point.name: point for point in certificate.points}
    assert not certificate.holds
    assert points[failed].passed is False, certificate
    assert reason in points[failed].sentence
