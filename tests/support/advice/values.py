"""Numbers, flags and callables: captured, passed, global, or attributes of modules (CD101, CD104,
CD107, CD109, CD110, CD117)."""

import pathlib
import sys
import tempfile
import types
from typing import Any

import imported_file
import torch
from torch import nn

from advice.case import X, case, compiled, warmed
from compilediag.rules import objects as advice_of_containers
from compilediag.rules import values as advice_of_values


def doubled(x: Any) -> Any:
    return x * 2


def lessened(x: Any) -> Any:
    return x - 1


def each(function: Any, values: Any) -> list[Any]:
    return [function(X, value) for value in values]


def once_each(function: Any, values: Any) -> list[Any]:
    each(function, values)
    warmed()
    return each(function, values)


def chosen_outside(first: Any, *flags: Any) -> list[Any]:
    both = {True: compiled(doubled), False: compiled(lessened)}
    return [both[first(flag)](X) for flag in flags]


def scale_by(x: Any, scale: Any) -> Any:
    return x * scale


SCALES = (1.5, 2.5, 3.5)


def make_named(mode: str) -> Any:
    def act(x: Any) -> Any:
        return x * 2 if mode == "double" else x - 1

    return act


def named_warm() -> Any:
    acts = [compiled(make_named(mode)) for mode in ("double", "less")]
    for act in acts:
        act(X)
    warmed()
    return [act(X) for act in acts]


case(
    "a captured string",
    advice_of_values.EACH_VALUE,
    lambda: [compiled(make_named(mode))(X) for mode in ("double", "less")],
    named_warm,
    lambda: chosen_outside(lambda mode: mode == "double", "double", "less"),
)


def hooked(*, disabled: bool = False) -> Any:
    model, kept = nn.Linear(4, 4), {}
    with torch.no_grad():
        model.weight.fill_(0.5)
        model.bias.fill_(0.5)
    capture = False

    def record(module: Any, args: Any, output: Any) -> None:
        if capture:
            kept["mean"] = output.detach().mean()

    model.register_forward_hook(torch.compiler.disable(record) if disabled else record)
    call = compiled(model)
    for step in range(4):
        capture = step == 2
        call(X)
    return kept["mean"]


case("a hook's flag", advice_of_containers.DISABLED_HOOK, hooked, lambda: hooked(disabled=True))


case(
    "a float",
    advice_of_values.PASSED_AS_TENSOR,
    lambda: each(compiled(scale_by), SCALES),
    lambda: each(compiled(scale_by), [torch.tensor(scale) for scale in SCALES]),
    lambda: once_each(compiled(scale_by), SCALES),
)


case(
    "a float or a tensor",
    advice_of_values.ALWAYS_A_TENSOR,
    lambda: each(compiled(scale_by), (1.5, torch.tensor(2.5))),
    lambda: each(compiled(scale_by), (torch.tensor(1.5), torch.tensor(2.5))),
)


def classes(*, once: bool) -> Any:
    def make() -> Any:
        class Doubling:
            factor = 2

        return Doubling

    call, kept = compiled(lambda x, kind: x * kind.factor), make()
    return [call(X, kept if once else make()) for _ in range(3)]


case(
    "a class that is made per call",
    advice_of_containers.ONE_OBJECT,
    lambda: classes(once=False),
    lambda: classes(once=True),
)


# --- attributes -----------------------------------------------------------------------------------


class Holder(nn.Module):
    """What happens with its value is up to a function."""

    def __init__(self, value: Any = 0) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Any) -> Any:
        self.value += 1
        return x / self.value


class Buffered(nn.Module):
    """The value is a 0-dim buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros((), dtype=torch.long))

    def forward(self, x: Any) -> Any:
        self.value.add_(1)
        return x / self.value


def called(module: Any) -> Any:
    call = compiled(module)
    return [call(X) for _ in range(5)]


case(
    "a counter",
    advice_of_values.HELD_AS_TENSOR,
    lambda: called(Holder()),
    lambda: called(Buffered()),
)


class Dropping(nn.Module):
    """A layer of torch's reads its own attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        return self.drop(x) * 2


def scheduled(*, warm: bool) -> Any:
    module = Dropping()
    call = compiled(module)
    for times in range(2 if warm else 1):
        if times:
            warmed()
        for module.drop.p in (0.1, 0.2, 0.3):
            call(X)
    return None


case(
    "a schedule of dropout",
    advice_of_values.EACH_STATE,
    lambda: scheduled(warm=False),
    lambda: scheduled(warm=True),
    equal=False,
)


# --- packages -------------------------------------------------------------------------------------


def package(source: str) -> types.ModuleType:
    """A module that is installed, as far as its file shows."""
    folder = pathlib.Path(tempfile.mkdtemp()) / "site-packages"
    folder.mkdir()
    file = folder / f"advised_{len(sys.modules)}.py"
    file.write_text(source, encoding="utf-8")
    return imported_file.load(file)


class Configured(nn.Module):
    """Fills a setting that is missing in its first call."""

    def __init__(self, problem: str | None = None) -> None:
        super().__init__()
        self.config = types.SimpleNamespace(problem=problem)

    def forward(self, x: Any) -> Any:
        if self.config.problem is None:
            self.config.problem = "one"
        return x * 2 if self.config.problem == "one" else x


def configured(problem: str | None = None) -> Any:
    call = compiled(Configured(problem))
    return [call(X) for _ in range(3)]


case(
    "a setting that the first call fills",
    advice_of_values.SET_BEFORE,
    configured,
    lambda: configured("one"),
)


class Named(nn.Module):
    """Each instance has another name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Any) -> Any:
        return x * 2 if self.kind == "double" else x - 1


def named(*, container: bool) -> Any:
    blocks = [Named(kind) for kind in ("double", "less")]
    if container:
        return compiled(nn.Sequential(*blocks))(X)
    y = X
    for block in blocks:
        block.compile(backend="eager")
        y = block(y)
    return y


case(
    "instances with a name",
    advice_of_values.INSTANCES,
    lambda: named(container=False),
    lambda: named(container=True),
)
