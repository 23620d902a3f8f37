"""Which lines of the program probably changed a guarded value, and which causes they make one."""

from linecache import getline
from typing import Any

import pytest
import torch
from torch import nn

import compilediag
from compilediag_harness.blame.writers import (
    CompiledCode,
    ReachableNames,
    clear_session,
    find_attribute_writers,
)


class Adapted(nn.Module):
    """One layer with an adapter for each of two names."""

    def __init__(self) -> None:
        super().__init__()
        self.adapters = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("en", "de")})
        self.scale, self.active, self.extra = 1.0, "en", False

    def set_adapter(self, name: str) -> None:
        """Stores the name, and lets only its parameters learn."""
        for other, adapter in self.adapters.items():
            adapter.requires_grad_(other == name)
        self.active = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The chosen adapter, scaled."""
        y = self.adapters[self.active](x) * self.scale
        return y + 1 if self.extra else y


class Plain(nn.Module):
    """The same without a method that chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Linear(4, 4), nn.Linear(4, 4)
        self.scale, self.active = 1.0, "low"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The chosen layer, scaled."""
        return (self.low if self.active == "low" else self.high)(x) * self.scale


class Chosen(nn.Module):
    """The name is an item of what the method assigns, to a layer that it has as a local."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.layer.active = ["en"]
        self.other = ["en"]

    def choose(self, name: str) -> None:
        """Assigns a new list."""
        for layer in (self.layer,):
            layer.active = [name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """By the chosen name, and by another."""
        y = self.layer(x) + 1 if self.layer.active[0] == "en" else self.layer(x)
        return y + 1 if self.other[0] == "en" else y


class Tuner:
    """Sets the layers of a model that a library wraps; the name is one of its own."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.chosen = model, "en"

    def use(self, name: str) -> None:
        """Goes through the layers."""
        self._each(name)

    def _each(self, name: str) -> None:
        for layer in self.model.children():
            layer.adopt(name)


class Tuned(nn.Module):
    """A layer that a tuner sets."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("en", "de")})
        self.names = ["en"]

    def adopt(self, name: str) -> None:
        """Stores the name, and lets only its weights learn."""
        self.names = [name]
        for other, layer in self.weights.items():
            layer.requires_grad_(other == name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """By the name."""
        return self.weights[self.names[0]](x)


class Wrapped(nn.Module):
    """As a library wraps a model: its setter calls another object's, which calls the layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.adapter, self.scale = Tuned(), "en", "en"
        self.tuner = Tuner(self)

    def use(self, name: str) -> None:
        """Stores the name, and passes it on."""
        self.adapter = name
        self.tuner.use(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer, where there is a name."""
        y = self.layer(x) if self.adapter else x
        return y + 1 if self.scale == "en" else y


def switch(model: Plain, name: str) -> None:
    """Chooses from outside the class."""
    model.active, model.scale = name, 2.0


def start() -> tuple[Adapted, Any]:
    """A model with its first adapter, compiled."""
    torch._dynamo.reset()
    model = Adapted()
    model.set_adapter("en")
    return model, torch.compile(model, backend="eager")


def recompiles(run: Any) -> list[Any]:
    """The findings about recompiles."""
    return [item for item in run.receipt.findings if item.rule.startswith("CD10")]


def test_a_method_that_sets_a_name_and_flags() -> None:
    """Called by the program: one finding, the name first, at the line of the call."""
    model, compiled = start()
    with compilediag.watch() as run:
        compiled(torch.ones(2, 4))
        model.set_adapter("de")
        compiled(torch.ones(2, 4))
    (finding,) = recompiles(run)
    assert (finding.rule, finding.variable, finding.count) == ("CD104", "self.active", 1)
    assert [part.rule for part in finding.parts] == ["CD106"]
    assert (finding.common_cause.evidence, finding.common_cause.text) == (
        "probable",
        "model.set_adapter('de')",
    )


def test_a_function_that_sets_them_from_outside() -> None:
    """By the names that it writes; of two calls of it the one in the loop that runs."""
    torch._dynamo.reset()
    model = Plain()
    compiled = torch.compile(model, backend="eager")
    switch(model, "low")
    model.scale = 1.0
    with compilediag.watch() as run:
        for step in range(3):
            if step == 2:
                switch(model, "high")
            compiled(torch.ones(2, 4))
    (finding,) = recompiles(run)
    assert finding.common_cause.text == "switch(model, 'high')"
    assert [part.rule for part in finding.parts] == ["CD104"]


def test_of_several_lines_none_is_named() -> None:
    """One of the calls did it, and it is not known which."""
    model, compiled = start()
    model.set_adapter("en")
    with compilediag.watch() as run:
        compiled(torch.ones(2, 4))
        model.set_adapter("de")
        compiled(torch.ones(2, 4))
    (finding,) = recompiles(run)
    assert finding.common_cause is None
    assert "one line probably changed 2" in finding.title
    assert "what sets them" in finding.fix.summary


@pytest.mark.parametrize("of_parameters", [True, False])
def test_a_line_that_freezes_parameters_between_two_calls(of_parameters: bool) -> None:
    """In a loop around the call, of the function that makes it; not what was frozen before, and not
    where an argument has another requires_grad."""
    torch._dynamo.reset()
    net, other = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Linear(2, 2)
    compiled = torch.compile(net, backend="eager")
    other.requires_grad_(False)
    with compilediag.watch() as run:
        for epoch in range(2):
            for name, parameter in (net if of_parameters else other).named_parameters():
                parameter.requires_grad_(epoch == 0 or name == "1.bias")
            for _ in range(2):
                compiled(torch.ones(2, 4, requires_grad=not of_parameters and epoch == 1))
    guards = [g for found in run.timeline.recompiles for e in found.entries for g in e.guards]
    writers = {getline(at.file, at.line).strip() for guard in guards for at in guard.writers}
    line = 'parameter.requires_grad_(epoch == 0 or name == "1.bias")'
    assert writers == ({line} if of_parameters else set())


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch asks a state for it
def test_what_clears_gradients_does_not_change_whether_a_state_has_one() -> None:
    """`zero_grad` switches those of gradients off; the state is made anew, as in snntorch."""

    class Leaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mem", torch.zeros(2, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mem = 0.5 * self.mem + x
            return self.mem

    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(4, 4), Leaky())
    compiled = torch.compile(net, backend="eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with compilediag.watch() as run:
        for _ in range(2):
            net[1].mem = torch.zeros(2, 4)
            optimizer.zero_grad()
            for _ in range(2):
                loss = compiled(torch.ones(2, 4)).sum()
            loss.backward()
            optimizer.step()
    guards = [
        guard
        for found in run.timeline.recompiles
        for entry in found.entries
        for guard in entry.guards
        if "requires_grad" in guard.text
    ]
    assert guards
    assert not [at.text for guard in guards for at in guard.changed_by if "zero_grad" in at.text]


def test_two_lines_of_the_program_are_two_acts() -> None:
    """A scale and a flag that change between the same two calls, each by its own line."""
    model, compiled = start()
    with compilediag.watch() as run:
        compiled(torch.ones(2, 4))
        model.scale = 2.0
        model.extra = True
        compiled(torch.ones(2, 4))
    assert [len(item.parts) for item in recompiles(run)] == [0, 0]


def test_a_value_of_the_compiled_function_has_no_line() -> None:
    """What `forward` counts itself no line of the program changes."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.seen = 0, 1.5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls, self.seen = self.calls + 1, self.seen + 0.5
            return x * self.calls + self.seen

    torch._dynamo.reset()
    compiled = torch.compile(Counting(), backend="eager")
    with compilediag.watch() as run:
        for _ in range(3):
            compiled(torch.ones(2))
    found = recompiles(run)
    assert found
    assert not any(item.common_cause for item in found)


def test_an_item_of_what_is_assigned() -> None:
    """The call that assigns the list is probable for its item; not for that of another list."""
    torch._dynamo.reset()
    model = Chosen()
    compiled = torch.compile(model, backend="eager")
    with compilediag.watch() as seen:
        for name in ("en", "de"):
            model.choose(name)
            model.other = [name]
            compiled(torch.ones(2, 4))
    lines = {
        guard.source: [at.text for at in guard.changed_by]
        for found in seen.timeline.recompiles
        for guard in found.entries[0].guards
    }
    chosen = next(texts for source, texts in lines.items() if ".active" in source)
    assert chosen == ["model.choose(name)"]
    other = next(texts for source, texts in lines.items() if ".other" in source)
    assert "model.choose(name)" not in other


def test_a_setter_that_goes_through_other_objects() -> None:
    """What the layer's own method writes belongs to the call at the program's line that leads to
    it; the same text that another line writes does not."""
    torch._dynamo.reset()
    model = Wrapped()
    compiled = torch.compile(model, backend="eager")
    with compilediag.watch() as run:
        compiled(torch.ones(2, 4))
        model.use("de")
        compiled(torch.ones(2, 4))
        model.scale = "de"
        compiled(torch.ones(2, 4))
    setter, other = sorted(recompiles(run), key=lambda item: item.steps)
    assert setter.variable == "self.adapter"
    assert sorted(part.rule for part in setter.parts) == ["CD104", "CD106"]
    assert (setter.common_cause.evidence, setter.common_cause.text) == (
        "probable",
        "model.use('de')",
    )
    assert (other.variable, other.parts) == ("self.scale", ())


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
    clear_session()
    compiled = CompiledCode(clear_session.__code__, {"L": {}, "G": {}}, (), ReachableNames())
    return [writer.function for writer in find_attribute_writers(holder, "weight", compiled)]


@pytest.mark.parametrize("kind", [Trainer, Subclass])
def test_an_attribute_of_an_instance_leads_there(kind: type[Trainer]) -> None:
    """Not its `__init__`, which ran before, and not what writes another object."""
    net, other, properties = Net(), Net(), Properties()
    trainer = kind(net, other)
    assert names(net) == ["Trainer.warm_up"]
    assert names(other) == ["Trainer.cool_down"]
    assert (trainer.net, type(properties)) == (net, Properties)


def test_a_global_leads_there() -> None:
    """Nothing else does: what a function is given may have been any object."""
    assert names(NET) == ["write_global"]
    assert names(Net()) == []


def test_a_call_in_progress_is_resolved_without_running_code() -> None:
    """Its left side leads through a property: that is not read, and nothing is concluded."""
    properties = Properties()

    def calling(*, writes: bool) -> list[str]:
        if writes:
            properties.net.weight = 1.0
        return names(Net())

    assert calling(writes=False) == []
