"""Optimizers that exist but have not stepped in our sight."""

from __future__ import annotations

from types import SimpleNamespace

from compilediag_harness.steps.optimizer_registry import OptimizerRegistry


class Optimizer:
    """Stands for torch.optim.Optimizer."""

    def __init__(self) -> None:
        self.state: dict[str, int] = {}


class Adam(Optimizer):
    """A subclass, as every optimizer is."""


class Unfinished(Optimizer):
    """One whose __init__ has not come to its state."""

    def __init__(self) -> None:
        """Leaves the state out."""


class Proxy:
    """A lazy object: asking for its class would load something."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise AssertionError("a proxy was asked for its class")


TORCH = SimpleNamespace(optim=SimpleNamespace(Optimizer=Optimizer), is_grad_enabled=lambda: True)


def test_none_is_expected_where_none_lives() -> None:
    """Also among objects that must not be touched."""
    proxy = Proxy()
    live = OptimizerRegistry(TORCH)
    assert not live.expected()
    assert not live.stepped_unseen()
    assert live.training()
    del proxy


def test_one_that_lives_is_expected_until_its_state_grows() -> None:
    """A compiled step fills the state, and runs no hook."""
    adam, unfinished = Adam(), Unfinished()
    adam.state["loaded from a checkpoint"] = 1
    live = OptimizerRegistry(TORCH)
    assert live.expected()
    assert not live.stepped_unseen()
    adam.state["weight"] = 1
    assert live.stepped_unseen()
    del adam, unfinished


def test_it_keeps_no_optimizer_alive() -> None:
    """A dropped optimizer is forgotten, with its memory."""
    adam = Adam()
    live = OptimizerRegistry(TORCH)
    assert live.expected()
    adam.state["weight"] = 1
    del adam
    assert not live.stepped_unseen()
