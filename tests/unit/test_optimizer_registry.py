"""Optimizers that exist but have not stepped in our sight."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from compilediag_harness.steps.optimizer_registry import OptimizerRegistry
from compilediag_harness.torch_internals import torch_api


class Optimizer:
    """Stands for torch.optim.Optimizer."""

    def __init__(self) -> None:
        self.weight = Parameter()
        self.param_groups = [{"params": [self.weight]}]


class Adam(Optimizer):
    """A subclass, as every optimizer is."""


class Unfinished(Optimizer):
    """One whose __init__ has not come to its parameters."""

    def __init__(self) -> None:
        """Leaves them out."""


class Proxy:
    """A lazy object: asking for its class would load something."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise AssertionError("a proxy was asked for its class")


class Parameter:
    """Stands for a tensor, which counts how often it was written."""

    _version = 1


TORCH = SimpleNamespace(optim=SimpleNamespace(Optimizer=Optimizer))


def a_call(live: OptimizerRegistry, writes: Parameter | None = None) -> None:
    """A compiled call, which may write a parameter."""
    live.call_begins()
    if writes is not None:
        writes._version += 1
    live.call_ends()


def test_none_is_expected_where_none_lives() -> None:
    """Also among objects that must not be touched."""
    proxy = Proxy()
    live = OptimizerRegistry(TORCH)
    assert not live.expected()
    a_call(live)
    assert not live.stepped_unseen()
    del proxy


def test_one_that_lives_is_expected_until_a_compiled_call_steps_it() -> None:
    """A compiled step writes the parameters, and runs no hook: with state or without. What the
    program writes between two calls (weights that are loaded) is no step."""
    adam, unfinished = Adam(), Unfinished()
    live = OptimizerRegistry(TORCH)
    assert live.expected()
    a_call(live)
    adam.weight._version += 1
    a_call(live)
    assert not live.stepped_unseen()
    a_call(live, writes=adam.weight)
    assert live.stepped_unseen()
    a_call(live)
    assert live.stepped_unseen()
    del adam, unfinished


def test_what_a_call_did_is_asked_once() -> None:
    """A call that was not reported to begin says nothing when it ends."""
    adam = Adam()
    live = OptimizerRegistry(TORCH)
    assert live.expected()
    a_call(live)
    adam.weight._version += 1
    live.call_ends()
    assert not live.stepped_unseen()


def test_it_keeps_no_optimizer_alive() -> None:
    """A dropped optimizer is forgotten, with its memory."""
    adam = Adam()
    weight = adam.weight
    live = OptimizerRegistry(TORCH)
    assert live.expected()
    del adam
    a_call(live, writes=weight)
    assert not live.stepped_unseen()


def test_micro_batches_are_runs_of_the_autograd_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several compiled calls between two of them are parts of one."""
    runs = 3
    monkeypatch.setattr(torch_api, "engine_runs", lambda: runs)
    live = OptimizerRegistry(TORCH)
    assert not live.training()
    runs = 5
    assert live.training()
    assert not live.training()
