"""Optimizers that exist but have not stepped in our sight."""

import torch

from compilediag_harness.steps.step_detection import OptimizerRegistry


class Optimizer:
    """Stands for torch.optim.Optimizer."""

    def __init__(self) -> None:
        self.state: dict[str, int] = {}


def test_torch_tells_whether_an_optimizer_was_ever_made() -> None:
    """The short cut for programs that only infer: torch marks the class of every optimizer made."""

    class Mine(torch.optim.SGD):
        """A class of our own: no other test makes one."""

    assert not hasattr(torch.optim.Optimizer.step, "hooked")
    mine = Mine([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    assert Mine.step.hooked
    assert OptimizerRegistry(torch).has_live_optimizer()
    del mine
