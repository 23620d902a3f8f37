"""Numbers, flags and callables: captured, passed, global, or attributes of modules (CD101, CD104,
CD107, CD109, CD110, CD117)."""

from __future__ import annotations

import functools
import gc
import os
import pathlib
import sys
import tempfile
import types
from typing import Any

import imported_file
import torch
from torch import nn

from advice.case import X, case, compiled, warmed


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


# --- captured -------------------------------------------------------------------------------------


def make_scale(scale: Any) -> Any:
    def act(x: Any) -> Any:
        return x * scale

    return act


def scale_by(x: Any, scale: Any) -> Any:
    return x * scale


SCALES = (1.5, 2.5, 3.5)
case(
    "a factory's number",
    ("CD101", "number"),
    lambda: [compiled(make_scale(scale))(X) for scale in SCALES],
    lambda: each(compiled(scale_by), [torch.tensor(scale) for scale in SCALES]),
    lambda: [compiled(make_scale(torch.tensor(scale)))(X) for scale in SCALES],
)


def captured_level() -> Any:
    def make(level: float) -> Any:
        def gate(x: Any) -> Any:
            if level > 0:
                return x * 2
            return x - 1

        return gate

    return [compiled(make(level))(X) for level in (1.0, -1.0)]


def where(x: Any, level: Any) -> Any:
    return torch.where(level > 0, x * 2, x - 1)


LEVELS = (1.0, -1.0)
case(
    "a captured number to branch on",
    ("CD101", "branch"),
    captured_level,
    lambda: chosen_outside(lambda level: level > 0, *LEVELS),
    lambda: each(compiled(where), [torch.tensor(level) for level in LEVELS]),
)


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
    ("CD101", None),
    lambda: [compiled(make_named(mode))(X) for mode in ("double", "less")],
    named_warm,
    lambda: chosen_outside(lambda mode: mode == "double", "double", "less"),
)


def captured_callable(*, warm: bool = False) -> Any:
    acts = (torch.sin, torch.cos)
    act = acts[0]

    def call(x: Any) -> Any:
        return act(x)

    run = compiled(call)
    if warm:
        for act in acts:  # noqa: B007
            run(X)
        warmed()
    results = []
    for act in acts:  # noqa: B007
        results.append(run(X))  # noqa: PERF401
    return results


def per_callable() -> Any:
    def sine(x: Any) -> Any:
        return torch.sin(x)

    def cosine(x: Any) -> Any:
        return torch.cos(x)

    return [compiled(act)(X) for act in (sine, cosine)]


case(
    "a captured function",
    ("CD101", "callable"),
    captured_callable,
    per_callable,
    lambda: captured_callable(warm=True),
)


def captured_tensor(*, in_place: bool = False) -> Any:
    table = torch.zeros(4)

    def add(x: Any) -> Any:
        return x + table

    run = compiled(add)
    results = [run(X)]
    if in_place:
        table.copy_(torch.ones(4, dtype=torch.float64))
    else:
        table = torch.ones(4, dtype=torch.float64)
    return [item.float() for item in (*results, run(X))]


case(
    "a captured tensor",
    ("CD101", "tensor"),
    captured_tensor,
    lambda: captured_tensor(in_place=True),
)


def hooked(how: str = "flag") -> Any:
    model, kept = nn.Linear(4, 4), {}
    with torch.no_grad():
        model.weight.fill_(0.5)
        model.bias.fill_(0.5)
    capture, mean = False, torch.zeros(())

    def on_flag(module: Any, args: Any, output: Any) -> None:
        if capture:
            kept["mean"] = output.detach().mean()

    def always(module: Any, args: Any, output: Any) -> None:
        mean.copy_(output.detach().mean())

    hooks = {"flag": on_flag, "always": always, "disabled": torch.compiler.disable(on_flag)}
    model.register_forward_hook(hooks[how])
    call = compiled(model)
    for step in range(4):
        capture = step == 2
        call(X)
        if step == 2 and how == "always":
            kept["mean"] = mean.clone()
    return kept["mean"]


case(
    "a hook's flag",
    ("CD101", "hook"),
    hooked,
    lambda: hooked("always"),
    lambda: hooked("disabled"),
)


def hook_counter(how: str) -> Any:
    model, results = nn.Linear(4, 4), []
    with torch.no_grad():
        model.weight.fill_(0.5)
        model.bias.fill_(0.5)
    count, counted = 0, torch.zeros(())

    def number(module: Any, args: Any, output: Any) -> Any:
        nonlocal count
        count += 1
        return output * count

    def in_place(module: Any, args: Any, output: Any) -> Any:
        counted.add_(1)
        return output * counted

    hooks = {"number": number, "place": in_place, "disabled": torch.compiler.disable(number)}
    model.register_forward_hook(hooks[how])
    call = compiled(model)
    for _ in range(4):
        results.append(call(X).detach())  # noqa: PERF401
    return results


case(
    "a hook's counter",
    ("CD101", "hook_number"),
    lambda: hook_counter("number"),
    lambda: hook_counter("place"),
    lambda: hook_counter("disabled"),
)


# --- arguments ------------------------------------------------------------------------------------

case(
    "a bool",
    ("CD107", "bool"),
    lambda: each(compiled(select), (True, False)),
    lambda: once_each(compiled(select), (True, False)),
    lambda: each(compiled(selected), [torch.tensor(first) for first in (True, False)]),
)


def select(x: Any, first: Any) -> Any:
    kept = {True: x * 2, False: x - 1}
    return kept[first]


def selected(x: Any, first: Any) -> Any:
    return torch.where(first, x * 2, x - 1)


case(
    "a float",
    ("CD107", "number"),
    lambda: each(compiled(scale_by), SCALES),
    lambda: each(compiled(scale_by), [torch.tensor(scale) for scale in SCALES]),
    lambda: each(compiled(scale_by, dynamic=True), SCALES),
)


case(
    "a float or a tensor",
    ("CD107", "mixed"),
    lambda: each(compiled(scale_by), (1.5, torch.tensor(2.5))),
    lambda: each(compiled(scale_by), (torch.tensor(1.5), torch.tensor(2.5))),
)


def viewed(x: Any, count: int) -> Any:
    return x.view(count, -1) * 2


def views(*, warm: bool) -> Any:
    call, results = compiled(viewed), []
    for times in range(2 if warm else 1):
        if times:
            warmed()
        results = [call(torch.ones(8), count) for count in (2, 4, 8)]
    return results


case(
    "a number of rows to view",
    ("CD118", "number"),
    lambda: views(warm=False),
    lambda: views(warm=True),
)


def zeros(x: Any, size: int) -> Any:
    return x.new_zeros(size) + 1


INTS = (3, 4, 5)
case(
    "an int to compute with",
    ("CD107", "int"),
    lambda: each(compiled(scale_by), INTS),
    lambda: each(compiled(scale_by, dynamic=True), INTS),
    lambda: each(compiled(scale_by), [torch.tensor(scale) for scale in INTS]),
)


def repeated(x: Any, times: int) -> Any:
    for _ in range(times):
        x = x * 2
    return x


case(
    "a number of iterations",
    ("CD107", "constant"),
    lambda: each(compiled(repeated), (2, 3, 4)),
    lambda: once_each(compiled(repeated), (2, 3, 4)),
)
BETAS = [0.1, 0.2, 0.3, 0.4]
TABLE = torch.tensor(BETAS, dtype=torch.float64)


def by_list(x: Any, step: int) -> Any:
    return x * BETAS[step] + 1


def by_tensor(x: Any, step: int) -> Any:
    return x * TABLE[step] + 1


case(
    "a table of numbers",
    ("CD107", "table"),
    lambda: each(compiled(by_list), (3, 2, 1)),
    lambda: each(compiled(by_tensor, dynamic=True), (3, 2, 1)),
    lambda: once_each(compiled(by_list), (3, 2, 1)),
)
LAYERS = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))


def layer(x: Any, index: int) -> Any:
    return LAYERS[index](x)


def at(table: Any, index: Any) -> Any:
    return table[index] * 2


INDICES = [torch.tensor(index) for index in range(3)]
case(
    "a tensor as an index",
    ("CD107", "tensor_index"),
    lambda: each(compiled(at), INDICES),
    lambda: each(compiled(lambda x, index: x.index_select(0, index.view(1))[0] * 2), INDICES),
)


def call_with(x: Any, act: Any) -> Any:
    return act(x)


class Scale:
    """A callable object."""

    def __call__(self, x: Any) -> Any:
        return x * 2


class Less:
    """Another."""

    def __call__(self, x: Any) -> Any:
        return x - 1


case(
    "callables as arguments",
    ("CD110", None),
    lambda: each(compiled(call_with), (torch.sin, torch.cos)),
    None,
    per_callable,
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
    ("CD110", None),
    lambda: classes(once=False),
    lambda: classes(once=True),
)
case(
    "objects of two types",
    ("CD110", "type"),
    lambda: each(compiled(call_with), (Scale(), Less())),
    lambda: once_each(compiled(call_with), (Scale(), Less())),
)


def short_lived(*, alive: bool) -> Any:
    kept = type("Kept", (), {"factor": 2})
    call, results = compiled(lambda x, kind: x * kind.factor), []
    for _ in range(3):
        kind = kept if alive else type("Kept", (), {"factor": 2})
        results.append(call(X, kind))
        del kind
        gc.collect()
    return results


case(
    "a class that dies",
    ("CD110", "dead_object"),
    lambda: short_lived(alive=False),
    lambda: short_lived(alive=True),
)


# --- globals --------------------------------------------------------------------------------------


def by_environment(x: Any) -> Any:
    return x * 2 if os.environ.get("ADVICE") == "1" else x - 1


def environment() -> Any:
    call, results = compiled(by_environment), []
    for value in "01":
        os.environ["ADVICE"] = value
        results.append(call(X))
    del os.environ["ADVICE"]
    return results[:1]


def read_once() -> Any:
    at_import = "0" == "1"
    call = compiled(lambda x: x * 2 if at_import else x - 1)
    return [call(X), call(X)][:1]


case("an environment variable", ("CD109", "environment"), environment, read_once)


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


class Untouched(nn.Module):
    """The caller counts."""

    def forward(self, x: Any, value: Any) -> Any:
        return x / value


def called(module: Any) -> Any:
    call = compiled(module)
    return [call(X) for _ in range(5)]


case(
    "a counter",
    ("CD104", "number"),
    lambda: called(Holder()),
    lambda: called(Buffered()),
    lambda: each(compiled(Untouched()), [torch.tensor(count) for count in range(1, 6)]),
)


class Options:
    """No module: it has no buffers."""

    def __init__(self, scale: Any) -> None:
        self.scale = scale


def scaled(x: Any, options: Any) -> Any:
    return x * options.scale


def optioned(*, warm: bool) -> Any:
    call, options, results = compiled(scaled), Options(0.0), []
    for times in range(2 if warm else 1):
        if times:
            warmed()
        results = []
        for options.scale in (0.5, 0.1):
            results.append(call(X, options))
    return results


def optioned_tensor() -> Any:
    call, options, results = compiled(scaled), Options(torch.tensor(0.0)), []
    for scale in (0.5, 0.1):
        options.scale.fill_(scale)
        results.append(call(X, options))
    return results


case(
    "a number of an options object",
    ("CD104", "object_number"),
    lambda: optioned(warm=False),
    lambda: optioned(warm=True),
    optioned_tensor,
)


class Position:
    """Counted up by what is compiled."""

    def __init__(self) -> None:
        self.index = 0


def counting(x: Any, position: Any) -> Any:
    position.index += 1
    return x * position.index


def counted_up(*, warm: bool) -> Any:
    call = compiled(counting)
    if warm:
        position = Position()
        for _ in range(2):
            call(X, position)
        warmed()
    position = Position()
    return [call(X, position) for _ in range(6)]


case(
    "a position that is counted up",
    ("CD104", "object_counter"),
    lambda: counted_up(warm=False),
    lambda: counted_up(warm=True),
)


class Dropping(nn.Module):
    """A layer of torch's reads its own attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        return self.drop(x) * 2


def scheduled(*, warm: bool, constant: bool = False) -> Any:
    module = Dropping()
    call = compiled(module)
    for times in range(2 if warm else 1):
        if times:
            warmed()
        for module.drop.p in (0.1, 0.1) if constant else (0.1, 0.2, 0.3):
            call(X)
    return None


case(
    "a schedule of dropout",
    ("CD104", "library"),
    lambda: scheduled(warm=False),
    lambda: scheduled(warm=False, constant=True),
    lambda: scheduled(warm=True),
    equal=False,
)


class ByItem(nn.Module):
    """A dict of numbers."""

    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.options = {"scale-by": scale}

    def forward(self, x: Any) -> Any:
        return x * self.options["scale-by"] + 1


def by_item(*, tensor: bool) -> Any:
    module = ByItem(torch.zeros(()) if tensor else 0.0)
    call, results = compiled(module), []
    for scale in SCALES:
        if tensor:
            module.options["scale-by"].fill_(scale)
        else:
            module.options["scale-by"] = scale
        results.append(call(X))
    return results


case(
    "a number in a module's dict",
    ("CD104", "item_number"),
    lambda: by_item(tensor=False),
    lambda: by_item(tensor=True),
)


class Late(nn.Module):
    """Sets an attribute in its first call."""

    def __init__(self, *, early: bool) -> None:
        super().__init__()
        if early:
            self.factor = 3.0

    def forward(self, x: Any) -> Any:
        if not hasattr(self, "factor"):
            self.factor = 3.0
        return x * self.factor


case(
    "an attribute that is added",
    ("CD104", "attribute_set"),
    lambda: called(Late(early=False)),
    lambda: called(Late(early=True)),
)


# --- packages -------------------------------------------------------------------------------------


def package(source: str) -> types.ModuleType:
    """A module that is installed, as far as its file shows."""
    folder = pathlib.Path(tempfile.mkdtemp()) / "site-packages"
    folder.mkdir()
    file = folder / f"advised_{len(sys.modules)}.py"
    file.write_text(source, encoding="utf-8")
    return imported_file.load(file)


ENGINE = """
class Engine:
    def __init__(self):
        self.done = 0

    def advance(self):
        self.done = self.done + 1
"""


class Driven(nn.Module):
    """Reads the progress of an engine."""

    def __init__(self, engine: Any) -> None:
        super().__init__()
        self.engine = engine

    def forward(self, x: Any) -> Any:
        return x * self.engine.done


class OwnProgress(nn.Module):
    """Reads a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("done", torch.zeros((), dtype=torch.long))

    def forward(self, x: Any) -> Any:
        return x * self.done


def driven(*, own: bool) -> Any:
    engine = package(ENGINE).Engine()
    module = OwnProgress() if own else Driven(engine)
    call, results = compiled(module), []
    for _ in range(4):
        if own:
            module.done.fill_(engine.done)
        results.append(call(X))
        engine.advance()
    return results


class Progressing(nn.Module):
    """Has a package's object count in the compiled code, or outside it."""

    def __init__(self, engine: Any, *, inside: bool, disabled: bool = False) -> None:
        super().__init__()
        self.engine, self.inside = engine, inside
        self.advance = torch.compiler.disable(engine.advance) if disabled else engine.advance

    def forward(self, x: Any) -> Any:
        y = x * 2
        if self.inside:
            self.advance()
        return y


def counted(*, inside: bool = True, disabled: bool = False) -> Any:
    engine = package(ENGINE).Engine()
    module = Progressing(engine, inside=inside, disabled=disabled)
    call, results = compiled(module), []
    for _ in range(4):
        results.append(call(X))
        if not inside:
            engine.advance()
    assert engine.done == 4
    return results


case(
    "a counter of a package's object",
    ("CD104", "counter"),
    counted,
    lambda: counted(inside=False),
    lambda: counted(disabled=True),
)


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
    ("CD104", "filled"),
    configured,
    lambda: configured("one"),
)
case(
    "the progress of a package's object",
    ("CD104", "foreign"),
    lambda: driven(own=False),
    lambda: driven(own=True),
)

# --- instances ------------------------------------------------------------------------------------


class Indexed(nn.Module):
    """Each instance has another number."""

    def __init__(self, index: int, *, buffer: bool = False) -> None:
        super().__init__()
        if buffer:
            self.register_buffer("index", torch.tensor(index))
        else:
            self.index: Any = index

    def forward(self, x: Any) -> Any:
        return x * self.index


def instances(*, buffer: bool = False, container: bool = False) -> Any:
    blocks = [Indexed(index, buffer=buffer) for index in (2, 3, 4)]
    if container:
        return compiled(nn.Sequential(*blocks))(X)
    y = X
    for block in blocks:
        block.compile(backend="eager")
        y = block(y)
    return y


case(
    "instances with a number",
    ("CD117", "number"),
    instances,
    lambda: instances(container=True),
    lambda: instances(buffer=True),
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
    ("CD117", None),
    lambda: named(container=False),
    lambda: named(container=True),
)
case(
    "partials",
    ("CD117", "partial"),
    lambda: [compiled(functools.partial(scale_by, scale=scale))(X) for scale in SCALES],
    lambda: each(compiled(scale_by), [torch.tensor(scale) for scale in SCALES]),
)
