"""Advice of findings about a whole run, followed as the sentence says and counted by torch.

`test_advice_of_rules.py` has the others.
"""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._dynamo import compiled_autograd, utils  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_two_whole_steps_warm_up_compiled_autograd() -> None:
    """CD153: the gradients exist from the second step on, and nothing is captured any more."""
    model = nn.Linear(4, 1)
    step, backward_compiler = torch.compile(model, backend="eager"), torch.compile(backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run() -> int:
        before = utils.counters["compiled_autograd"]["captures"]
        loss = step(torch.ones(2, 4)).sum()
        with compiled_autograd._enable(backward_compiler):  # pyright: ignore[reportPrivateUsage]
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return utils.counters["compiled_autograd"]["captures"] - before

    captures = [run() for _ in range(5)]
    assert captures[0] == 1
    assert captures[2:] == [0, 0, 0]
