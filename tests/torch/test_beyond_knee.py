"""Batches past the knee: measured by `FixedShape.knee`, told, and found where they were used."""

from typing import Any

import pytest
import torch
from knee_pieces import MS

from compilediag.runs.watch import watch
from compilediag_harness.extensions import knee as module
from compilediag_harness.shapes.dims import ShapeUnusable
from compilediag_harness.shapes.fixed_shape import FixedShape

# --- measuring ---


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only moves when a call says how long it took."""
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


COST_MS = {64: 4.0, 256: 6.0, 512: 10.0, 1024: 32.0}


def test_a_fixed_shape_measures_itself(clock: list[float]) -> None:
    """Every size is measured warm and in turn; the module, random states and counts are as before;
    what is found is told to the session, and a call at 1024 is the finding."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)

        def forward(self, x: Any) -> Any:
            clock[0] += COST_MS.get(len(x), 0.0) * MS
            return self.norm(x + torch.rand(()))

    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with watch() as seen, torch.no_grad():
        fixed = FixedShape(model, {"x": 0}, [64, 256, 512, 1024], out_dims={"": 0})
        random_state = torch.get_rng_state()
        knee = fixed.knee(torch.ones(3, 2))
        assert torch.equal(torch.get_rng_state(), random_state)
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name])
        fixed(torch.ones(900, 2))
    assert (knee.size, [item.size for item in knee.measured]) == (512, [64, 256, 512, 1024])
    assert knee.measured[-1].problem == "past a cliff"
    assert [item.call_s for item in knee.measured] == pytest.approx(
        [cost * MS for cost in COST_MS.values()]
    )
    (record,) = seen.receipt.shapes.fixed
    assert [(item.run, item.calls) for item in record.sizes] == [((1024,), 1)]
    (finding,) = (item for item in seen.findings if item.rule == "CD409")
    assert finding.count == 1


def test_sizes_above_the_cap_are_not_tried(clock: list[float]) -> None:
    """With `cap=512` nothing runs at 1024; several axes and an empty example are refused."""
    met: list[int] = []

    def score(x: Any) -> Any:
        met.append(len(x))
        clock[0] += COST_MS.get(len(x), 0.0) * MS
        return x * 2.0

    fixed = FixedShape(score, {"x": 0}, [64, 256, 512, 1024], out_dims={"": 0})
    assert fixed.knee(torch.ones(3, 2), cap=512).size == 512
    assert 1024 not in met
    with pytest.raises(ShapeUnusable, match="at least one row"):
        fixed.knee(torch.ones(0, 2))
    axes = FixedShape(score, {"x": {"B": 0, "T": 1}}, {"B": [4], "T": [8]}, out_dims={"": 0})
    with pytest.raises(ShapeUnusable, match="one axis"):
        axes.knee(torch.ones(3, 2))
