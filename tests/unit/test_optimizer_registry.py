"""Optimizers that exist but have not stepped in our sight."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from compilediag_harness.steps.step_detection import MAX_SEARCHES, OptimizerRegistry
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
    requires_grad = True

    def is_inference(self) -> bool:
        return False


TORCH = SimpleNamespace(optim=SimpleNamespace(Optimizer=Optimizer))


KEY = 7


def a_call(live: OptimizerRegistry, *writes: Parameter, first: bool = False) -> bool:
    """A compiled call, which may write parameters; whether it is taken for an update."""
    live.begin_call(KEY, first)
    for parameter in writes:
        parameter._version += 1
    return live.find_update() == KEY


def test_none_is_expected_where_none_lives() -> None:
    """Also among objects that must not be touched."""
    proxy = Proxy()
    live = OptimizerRegistry(TORCH)
    assert not live.has_live_optimizer()
    assert not a_call(live, first=True)
    del proxy


def test_a_call_that_writes_the_parameters_is_an_update() -> None:
    """A compiled step writes them, and runs no hook: with state or without. What the program writes
    between two calls (weights that are loaded) is no step."""
    adam, unfinished = Adam(), Unfinished()
    live = OptimizerRegistry(TORCH)
    assert live.has_live_optimizer()
    assert not a_call(live)
    adam.weight._version += 1
    assert not a_call(live)
    assert a_call(live, adam.weight)
    assert not a_call(live)
    del adam, unfinished


def test_a_forward_that_writes_one_of_them_is_none() -> None:
    """`nn.Embedding(max_norm=...)`. Parameters that are frozen do not count."""
    adam = Adam()
    trained, frozen = [Parameter() for _ in range(3)], [Parameter() for _ in range(9)]
    for one in frozen:
        one.requires_grad = False
    adam.param_groups = [{"params": trained[:2]}, {"params": [trained[2], *frozen]}]
    live = OptimizerRegistry(TORCH)
    assert not a_call(live, trained[0], *frozen, first=True)
    assert a_call(live, *trained[:2])


def test_one_that_is_made_later_is_found_when_something_new_is_called() -> None:
    """Where none was, or all are gone."""
    live = OptimizerRegistry(TORCH)
    assert not live.has_live_optimizer()
    adam = Adam()
    assert not a_call(live, adam.weight)
    assert a_call(live, adam.weight, first=True)
    del adam
    again = Adam()
    assert a_call(live, again.weight, first=True)


def test_the_heap_is_walked_for_few_callables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of many compiled blocks, in a program whose optimizer is gone."""
    walks: list[int] = []
    live = OptimizerRegistry(TORCH)
    monkeypatch.setattr(live, "has_live_optimizer", lambda: walks.append(1))
    for _ in range(100):
        live.begin_call(KEY, True)
        live.begin_call(KEY, False)
    assert len(walks) == MAX_SEARCHES


@pytest.mark.parametrize("first", ["policy", "update"])
def test_calls_of_two_threads_are_told_apart(first: str) -> None:
    """A policy that acts in another thread while the update runs is no update."""
    adam = Adam()
    live = OptimizerRegistry(TORCH)
    assert live.has_live_optimizer()
    policy = KEY + 1
    with ThreadPoolExecutor(1) as pool:
        for decided in (0, KEY):
            if first == "policy":
                pool.submit(live.begin_call, policy, False).result()
            live.begin_call(KEY, False)
            if first == "update":
                pool.submit(live.begin_call, policy, False).result()
            adam.weight._version += 1
            assert live.find_update() == decided
            assert pool.submit(live.find_update).result() == 0
            assert a_call(live, adam.weight)  # from here on it is known


def test_what_a_call_did_is_asked_once() -> None:
    """A call that was not reported to begin says nothing when it ends."""
    adam = Adam()
    live = OptimizerRegistry(TORCH)
    assert live.has_live_optimizer()
    a_call(live)
    adam.weight._version += 1
    assert not live.find_update()


def test_it_keeps_no_optimizer_alive() -> None:
    """A dropped optimizer is forgotten, with its memory."""
    adam = Adam()
    weight = adam.weight
    live = OptimizerRegistry(TORCH)
    assert live.has_live_optimizer()
    del adam
    assert not a_call(live, weight)


def test_micro_batches_are_runs_of_the_autograd_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several compiled calls between two of them are parts of one."""
    runs = 3
    monkeypatch.setattr(torch_api, "count_engine_runs", lambda: runs)
    live = OptimizerRegistry(TORCH)
    assert not live.has_trained()
    runs = 5
    assert live.has_trained()
    assert not live.has_trained()
