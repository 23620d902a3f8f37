"""Who assigns an attribute from outside its class: only what leads to the very object."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from compilediag_harness.blame.writers import new_session, writers_of_attribute  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self, weight: float = 0.0) -> None:
        super().__init__()
        self.weight = weight


class Trainer:
    def __init__(self, net: Net, other: Net) -> None:
        self.inner = torch.nn.ModuleDict({"net": net})
        self.net, self.other = net, other
        self.net.weight = 0.5

    def warm_up(self, epoch: int) -> None:
        self.net.weight = 0.01 * epoch

    def cool_down(self) -> None:
        self.other.weight = 0.0


class Subclass(Trainer):
    pass


class Properties:
    """Must not be asked for anything: reading it would run its code."""

    @property
    def net(self) -> Any:
        raise AssertionError

    def write(self) -> None:
        self.net.weight = 1.0


NET = Net()


def write_global() -> None:
    NET.weight = 2.0


def write_argument(net: Net) -> None:
    net.weight = 3.0


def names(holder: object) -> list[str]:
    new_session()
    return [writer.function for writer in writers_of_attribute(holder, "weight")]


@pytest.mark.parametrize("kind", [Trainer, Subclass])
def test_an_attribute_of_an_instance_leads_there(kind: type[Trainer]) -> None:
    """Not its `__init__`, which ran before, and not what writes another object."""
    net, other, properties = Net(), Net(), Properties()
    trainer = kind(net, other)
    assert names(net) == ["Trainer.warm_up"]
    assert names(other) == ["Trainer.cool_down"]
    assert (trainer.net, type(properties)) == (net, Properties)


def test_a_global_leads_there() -> None:
    assert names(NET) == ["write_global"]


def test_nothing_leads_there() -> None:
    """What a function is given may have been any object."""
    assert names(Net()) == []


def test_a_call_in_progress_is_resolved_without_running_code() -> None:
    """Its left side leads through a property: that is not read, and nothing is concluded."""
    properties = Properties()

    def calling(*, writes: bool) -> list[str]:
        if writes:
            properties.net.weight = 1.0
        return names(Net())

    assert calling(writes=False) == []
