"""Random programs whose guarded values change: in some the facts of a recipe hold, in others one of
them fails. Every program has a function `main`, which returns what it computed."""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass

HEAD = """\
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def scaled(x, amount):
    return x * amount


def dropped(x, p):
    return F.dropout(x, p, training=False)


"""

FLOAT_USES = (
    *("x * {v}", "x + {v} ** 2", "x / (1 + {v})", "scaled(x, {v})", "torch.lerp(x, x + 1, {v})"),
    *("x.clamp(max={v})", "torch.where(x > {v}, x, x * 2)", "x * math.sqrt({v})", "x.mul({v})"),
    *("F.softmax(x / {v}, dim=-1)", "x * (1 - 0.9 ** {v})", "x * math.exp(-{v})", "x - {v} * x"),
    *("torch.add(x, x, alpha={v})", "F.dropout(x, {v}, training=False)", "dropped(x, {v})"),
    *("F.leaky_relu(x, {v})", "(x * 2 if {v} > 0.25 else x - 1)", "x.sum() * float({v}) + x"),
    *("F.layer_norm(x, (6,), eps={v})", "torch.full_like(x, {v}) + x", "x + min({v}, 0.4)"),
    *("x * torch.tensor({v})", "x.new_tensor([{v}]) * x", "torch.pow(x.abs(), {v})"),
    *("F.gelu(x) * {v}", "torch.addcmul(x, x, x, value={v})", "x * round({v}, 1)"),
)
INT_USES = (
    *("x * {v}", "x[:, : {v} + 1].sum() + x", "x.roll({v}, 0)", "torch.add(x, x, alpha={v})"),
    *(
        "x / ({v} + 1)",
        "x * (0.9 ** {v})",
        "x.topk({v} % 3 + 1).values.sum() + x",
        "x.clamp(max={v})",
    ),
    *("x[:, {v} % 6].sum() + x", "sum(x * i for i in range({v}))", "scaled(x, {v})"),
    *("x * math.log({v} + 2)", "(x * 2 if {v} > 2 else x - 1)", "x * math.sqrt({v} + 1)"),
    *("torch.arange({v} + 1).sum() + x", "torch.tril(x, {v})", "x + torch.full_like(x, {v})"),
    *("x.view(-1)[: {v} + 1].sum() * x", "x + min({v}, 3)", "torch.ones({v} + 1).sum() + x"),
)
FLAG_USES = ("(x * 2 if {v} else x - 1)", "(x.sin() if not {v} else x)")
NAMES = (
    "alpha",
    "gain",
    "temperature",
    "level",
    "beta",
    "width",
    "ratio",
    "decay",
    "steps",
    "order",
)
DYNAMIC = ("", "", "", ", dynamic=False", ", dynamic=True")


@dataclass(frozen=True)
class Program:
    """A program and what it was made of."""

    name: str
    text: str


INNER = " " * 12
"""Indentation of a statement inside of one of a method."""


def generate(seed: int) -> Program:
    """Generate the program of a number."""
    draw = random.Random(seed)  # noqa: S311
    kinds = (_number, _number, _sizes, _sizes, _filled, _held, _held, _held, _others, _broken)
    make = draw.choice(kinds)
    name, body = make(draw)
    return Program(f"{seed:04d} {name}", HEAD + textwrap.dedent(body))


def _values(draw: random.Random) -> tuple[list[object], str]:
    kind = draw.choice(("float", "float", "int", "int", "bool"))
    if kind == "float":
        return [0.1, 0.2, 0.3, 0.5, 0.35], draw.choice(FLOAT_USES)
    if kind == "int":
        start = draw.choice((0, 1, 2, 5))
        return [start + step for step in range(5)], draw.choice(INT_USES)
    return [False, True, False, True, True], draw.choice(FLAG_USES)


def _number(draw: random.Random) -> tuple[str, str]:
    values, use = _values(draw)
    name, other = draw.sample(NAMES, 2)
    holder = draw.choice(
        ("attribute", "attribute", "submodule", "argument", "keyword", "object", "global")
    )
    second = draw.choice(("", "", "", " + x.sum() * {v}", " * (2 if {v} > 0.2 else 1)"))
    use = f"{use}{second}"
    dynamic, own = draw.choice(DYNAMIC), draw.random() < 0.3
    wrapped = f"net = torch.compile(Net(), backend='eager'{dynamic})"
    if own:
        wrapped = f"net = Net()\n        net.compile(backend='eager'{dynamic})"
    label = f"{holder} {use} {dynamic} {'own' if own else ''}"
    if holder in ("argument", "keyword"):
        passed = f"{name}=value" if holder == "keyword" else "value"
        return (
            label,
            f"""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(6, 6)

            def forward(self, x, {name}):
                x = self.body(x)
                return {use.format(v=name)}


        def main():
            {wrapped.replace(chr(10) + "        ", chr(10) + " " * 12)}
            results = []
            for value in {values!r}:
                results.append(net(torch.ones(4, 6), {passed}))
            return results
        """,
        )
    if holder == "global":
        return (
            label,
            f"""
        {name.upper()} = {values[0]!r}


        def step(x):
            return {use.format(v=name.upper())}


        def main():
            global {name.upper()}
            compiled = torch.compile(step, backend='eager'{dynamic})
            results = []
            for value in {values!r}:
                {name.upper()} = value
                results.append(compiled(torch.ones(4, 6)))
            return results
        """,
        )
    path = {"attribute": name, "submodule": f"part.{name}", "object": f"settings.{name}"}[holder]
    helper = draw.random() < 0.4
    read = f"self.{name}" if holder != "object" else f"self.settings.{name}"
    body = f"return {use.format(v=read)}"
    inner = (
        f"""
            def forward(self, x):
                return self.{other}(x)

            def {other}(self, x):
                {body}
"""
        if helper
        else f"""
            def forward(self, x):
                {body}
"""
    )
    if holder == "submodule":
        inner = f"""
            def forward(self, x):
                return self.part(x)


        class Part(nn.Module):
            def __init__(self):
                super().__init__()
                self.{name} = {values[0]!r}

            def forward(self, x):
                {body}
"""
    made = {
        "attribute": f"self.{name} = {values[0]!r}",
        "submodule": "self.part = Part()",
        "object": "self.settings = Settings()",
    }[holder]
    where = draw.choice(("loop", "loop", "function", "setattr"))
    setting = {
        "loop": f"net.{path} = value",
        "function": "adjust(net, value)",
        "setattr": f"setattr(net.{path.rpartition('.')[0]}, {name!r}, value)"
        if "." in path
        else f"setattr(net, {name!r}, value)",
    }[where]
    return (
        f"{label} {where}",
        f"""
        class Settings:
            {name} = {values[0]!r}

            def __init__(self):
                self.{name} = {values[0]!r}


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                {made}
                self.body = nn.Linear(6, 6)
{inner}

        def adjust(net, value):
            net.{path} = value


        def main():
            {wrapped.replace(chr(10) + "        ", chr(10) + " " * 12)}
            results = []
            for value in {values!r}:
                {setting}
                results.append(net(torch.ones(4, 6)))
            return results
        """,
    )


def _sizes(draw: random.Random) -> tuple[str, str]:
    sizes = draw.choice(([8, 6, 7, 9], [5, 9, 3, 12], [4, 2, 8, 16], [6, 1, 7, 5], [3, 4, 5, 6]))
    dimension = draw.choice((0, 0, 1))
    dynamic = draw.choice(DYNAMIC)
    uses = (
        "",
        "",
        "",
        "for i in range(x.size({d})):\n        total = total + i",
        "if x.shape[{d}] > 6:\n        total = total * 2",
        "total = total + x.reshape(-1, 2).sum()",
        "total = total * math.sqrt(x.shape[{d}])",
        "total = total / x.shape[{d}]",
        "total = total + x.flatten().cumsum(0).sum()",
    )
    use = draw.choice(uses).format(d=dimension)
    shape = "{n}, 4" if dimension == 0 else "4, {n}"
    how = draw.choice(
        ("variable", "expression", "pair", "other", "dict", "list", "keyword", "item", "star")
    )
    one = f"torch.ones({shape.format(n='size')}) * 0.5"
    before, call, parameters, reading = "", "", "x", "total = (x * 2).sum()"
    if how == "variable":
        before, call = f"batch = {one}", "batch"
    elif how == "expression":
        call = one
    elif how == "keyword":
        before, call = f"batch = {one}", "x=batch"
    elif how == "star":
        before, call = f"batch = {{'x': {one}}}", "**batch"
    elif how == "item":
        before, call = f"batch = {{'rows': {one}}}", "batch['rows']"
    elif how == "pair":
        before = f"batch = {one}\n        target = batch + 1"
        call, parameters, reading = "batch, target", "x, y", "total = (x * y).sum()"
    elif how == "other":
        before = f"batch = {one}\n        target = torch.ones(3, size, 2)"
        call, parameters, reading = "batch, target", "x, y", "total = (x * 2).sum() + y.mean()"
    elif how == "dict":
        before, call = f"batch = {{'rows': {one}}}", "batch"
        parameters, reading = "data", "x = data['rows']\n    total = (x * 2).sum()"
    elif how == "list":
        before, call = f"batch = [{one}]", "batch"
        parameters, reading = "data", "x = data[0]\n    total = (x * 2).sum()"
    lines = "\n    ".join(filter(None, (reading, use, "return total + torch.zeros(())")))
    body = f"""
def step({parameters}):
    {lines}


def main():
    compiled = torch.compile(step, backend='eager'{dynamic})
    results = []
    for size in {sizes!r}:
        {before or "pass"}
        results.append(compiled({call}))
    return results
"""
    return f"{how} {sizes} {use!r} {dynamic}", body


def _broken(draw: random.Random) -> tuple[str, str]:
    """Sizes that go on over a graph break, in variables of the program's and in Dynamo's own."""
    sizes = draw.choice(([8, 6, 7, 9], [5, 9, 3, 12], [4, 3, 8, 16], [6, 1, 7, 5], [4, 2, 5, 6]))
    width = draw.choice((4, 4, 12))
    dynamic = draw.choice(DYNAMIC)
    expression = draw.choice(
        (
            "twice(x) + read(x)",
            "torch.cat([twice(x), x]) * read(x)",
            "(x - 1, read(x), x * 2)[0]",
            "twice(x)[: x.shape[0] - 1] * read(x)",
            "[twice(x), read(x)][0].reshape(-1, 2)",
        )
    )
    after = draw.choice(
        (
            "y.sum()",
            "(y * 2).mean() + x.sum()",
            "y.sum() * (2 if x.shape[0] > 6 else 1)",
            "sum(row.sum() for row in y)",
            "torch.zeros(x.shape[0]).sum() + y.max()",
        )
    )
    fill = draw.choice(("torch.ones(size, {w})", "torch.ones(size + 2, {w})[2:]"))
    body = f"""
def twice(x):
    return x * 2


def read(x):
    {draw.choice(("print(end='')", "print(end='')", "x.sum().item()"))}
    return 0.5


def step(x):
    y = {expression}
    return {after}


def main():
    compiled = torch.compile(step, backend='eager'{dynamic})
    results = []
    for size in {sizes!r}:
        results.append(compiled({fill.format(w=width)}))
    return results
"""
    return f"broken {sizes} {width} {expression!r} {after!r} {dynamic}", body


def _filled(draw: random.Random) -> tuple[str, str]:
    name, other = draw.sample(("mask", "table", "cache", "pos", "freqs", "state"), 2)
    kind = draw.choice(
        ("attribute", "attribute", "dict", "layers", "grows", "helper", "counter", "flag")
    )
    dynamic = draw.choice(DYNAMIC)
    made, fill, read = (
        f"self.{name} = None",
        f"if self.{name} is None:\n{INNER}self.{name} = torch.arange(6.0)\n{INNER}self.{other} = 6",
        f"x * self.{name} + self.{other}",
    )
    made += f"\n        self.{other} = 0"
    extra, sizes = "", [4, 4, 4, 4]
    if kind == "dict":
        made, fill, read = (
            f"self.{name} = {{}}",
            f"if 'rows' not in self.{name}:\n            self.{name}['rows'] = torch.arange(6.0)",
            f"x * self.{name}['rows']",
        )
    elif kind == "grows":
        fill = (
            f"if self.{name} is None or self.{name}.shape[0] < x.shape[0]:\n"
            f"{INNER}self.{name} = torch.ones(x.shape[0], 6)\n{INNER}self.{other} = x.shape[0]"
        )
        sizes = [3, 4, 6, 8]
    elif kind == "helper":
        fill, read = "self.prepare()", f"x * self.{name} + self.{other}"
        extra = (
            f"\n    def prepare(self):\n        if self.{name} is None:\n"
            f"{INNER}self.{name} = torch.arange(6.0)\n{INNER}self.{other} = 6\n"
        )
    elif kind == "counter":
        fill += "\n        self.calls = self.calls + 1"
        made += "\n        self.calls = 0"
        read += " * self.calls"
    elif kind == "flag":
        made, fill, read = (
            "self.ready = False",
            f"if not self.ready:\n{INNER}self.ready = True\n{INNER}self.weight = torch.ones(6)",
            "x * self.weight",
        )
    layers = 2 if kind == "layers" else 1
    inside = draw.random() < 0.3
    loop = "for step in range(4):\n        results.append(net(torch.ones(sizes[step], 6)))"
    if inside:
        loop = (
            "for step, size in enumerate(sizes):\n        batch = torch.ones(size, 6)\n"
            "        results.append(net(batch))"
        )
    return (
        f"{kind} {dynamic}",
        f"""
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        {made}

    def forward(self, x):
        {fill}
        return {read}
{extra}

def main():
    blocks = [Block() for _ in range({layers})]
    net = torch.compile(nn.Sequential(*blocks), backend='eager'{dynamic})
    sizes, results = {sizes!r}, []
    {loop}
    return results
""",
    )


ITEM_USES = (
    *("x * (1 - 0.9 ** state['{v}'])", "x * math.sqrt(1 - 0.5 ** state['{v}'])", "of(x, state)"),
    *("x + min(state['{v}'] / 4, 1.0)", "x.add(x, alpha=state['{v}'])", "x * state['{v}']"),
    *("(x * 2 if state['{v}'] > 3 else x)", "x[:, state['{v}'] % 6 :].sum() * x"),
    *("F.dropout(x, 0.0 * state['{v}'])", "x * math.cos(state['{v}'] / 9)"),
    *("x * math.exp(-state['{v}'])", "sum(x for _ in range(state['{v}']))", "noted(x, state)"),
)
CAPTURED = (
    *("x[x > 0].sum() + x", "x.nonzero().sum() + x", "torch.unique(x.round()).sum() + x"),
    *("torch.masked_select(x, x > 0).mean() + x", "x[(x > 0).any(1)].sum(0) + x"),
    *("(x * 2 if x.nonzero().shape[0] > 3 else x)", "x[x > 9].reshape(-1, 1).sum() + x"),
)


def _held(draw: random.Random) -> tuple[str, str]:
    """Draw what is held between calls: tensors that grow, counted items; and shapes of data."""
    kind = draw.choice(("growing", "growing", "item", "item", "captured"))
    name = draw.choice(NAMES)
    if kind == "captured":
        body = f"""
def step_of(x):
    x = x + 1
    return {draw.choice(CAPTURED)}


def main():
    compiled, results = torch.compile(step_of, backend='eager'), []
    for step in range(3):
        results.append(compiled(torch.arange(24.0).view(4, 6) - 9 * step))
    return results
"""
        return kind, body
    if kind == "item":
        deep = draw.random() < 0.5
        read = "KEPT[key]" if deep else "KEPT"
        kept = "KEPT = {key: {} for key in (torch.ones(2), torch.ones(3))}" if deep else ""
        use = draw.choice(ITEM_USES).format(v=name)
        each = "for key in KEPT:\n            " if deep else "if True:\n            "
        body = f"""
{kept or "KEPT = {}"}


def of(x, state):
    return x / (1 + state['{name}'])


def noted(x, state):
    return x * 2 if state['{name}'] == 2 else x


class Counter:
    def update(self, x):
        {each}state = {read}
            if len(state) == 0:
                state['{name}'] = {draw.choice((0, 0, 1, 2))}
            state['{name}'] += 1
            x = {use}
        return x


def main():
    counter, results = Counter(), []
    update = torch.compile(counter.update, backend='eager')
    for step in range(5):
        results.append(update(torch.ones(4, 6)))
    return results
"""
        return f"{kind} {use}", body
    condition = draw.choice(
        (
            f"self.{name} is None or self.{name}.shape[0] != x.shape[0]",
            f"self.{name} is None or self.{name}.shape[0] < x.shape[0]",
        )
    )
    make = draw.choice(("torch.ones(x.shape[0], 1)", "torch.arange(x.shape[0]).view(-1, 1) * 1.0"))
    extra = draw.choice(("", "", " * self.gain_", " * (2 if x.shape[0] > 6 else 1)"))
    sizes = draw.choice(((3, 5, 5, 7, 9), (4, 7, 7, 5), (5, 8, 8, 8), (3, 6, 9, 12), (1, 4, 4, 6)))
    return (
        f"{kind} {extra}",
        f"""
class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.{name} = None
        self.gain_ = 1.0

    def forward(self, x):
        if {condition}:
            self.{name} = {make}
        return x * self.{name}[: x.shape[0]]{extra}


def main():
    table, results = Table(), []
    net = torch.compile(table, backend='eager')
    for step, size in enumerate({sizes}):
        {draw.choice(("pass", "pass", "pass", "table.gain_ = 1.0 + step / 10"))}
        results.append(net(torch.ones(size, 6)))
    return results
""",
    )


def _others(draw: random.Random) -> tuple[str, str]:
    kind = draw.choice(
        (
            "int32",
            "strides",
            "optional",
            "hook",
            "lr",
            "train",
            "grad",
            "list",
            "str",
            "two",
            "two",
            "print",
            "item",
        )
    )
    options = {
        "int32": (
            "x, ids",
            "x[:, 0] + ids * 2",
            "torch.ones(4, 6), (torch.arange(4).int() if step % 2 else torch.arange(4))",
        ),
        "strides": (
            "x",
            "x * 2 + x.sum(1, keepdim=True)",
            "(torch.ones(6, 4).t() if step % 2 else torch.ones(4, 6))",
        ),
        "optional": (
            "x, mask=None",
            "(x if mask is None else x * mask)",
            "torch.ones(4, 6), (torch.ones(6) if step % 2 else None)",
        ),
        "list": ("x, items", "x + len(items)", "torch.ones(4, 6), [0.0] * step"),
        "str": (
            "x, mode",
            "(x * 2 if mode == 'double' else x - 1)",
            "torch.ones(4, 6), ('double' if step % 2 else 'less')",
        ),
        "two": ("x, scale", "x * scale", "torch.ones(4 + step, 6), 0.5 + step / 10"),
    }
    if kind in options:
        parameters, use, passed = options[kind]
        return (
            kind,
            f"""
def step_of({parameters}):
    return {use}


def main():
    compiled = torch.compile(step_of, backend='eager'{draw.choice(DYNAMIC)})
    results = []
    for step in range(4):
        results.append(compiled({passed}))
    return results
""",
        )
    if kind == "hook":
        return (
            kind,
            """
def main():
    model, kept, capture = nn.Linear(6, 6), {}, False

    def record(module, args, output):
        if capture:
            kept["mean"] = output.detach().mean()

    model.register_forward_hook(record)
    net = torch.compile(model, backend='eager')
    results = []
    for step in range(5):
        capture = step == 2
        results.append(net(torch.ones(4, 6)))
    return results
""",
        )
    if kind == "lr":
        return (
            kind,
            """
def main():
    model = nn.Linear(6, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    step_of = torch.compile(optimizer.step, backend='eager')
    results = []
    for step in range(5):
        model(torch.ones(4, 6)).sum().backward()
        step_of()
        schedule.step()
        results.append(model.weight.detach().clone())
    return results
""",
        )
    if kind in ("print", "item"):
        use = "print('seen')" if kind == "print" else "n = x.sum().item()\n    x = x * n"
        return (
            kind,
            f"""
def step_of(x):
    x = x + 1
    {use}
    return x * 2


def main():
    compiled = torch.compile(step_of, backend='eager')
    return [compiled(torch.ones(4, 6)) for step in range(3)]
""",
        )
    changing = (
        "net.train(step % 2 == 0)" if kind == "train" else "torch.set_grad_enabled(step % 2 == 0)"
    )
    return (
        kind,
        f"""
def main():
    net = torch.compile(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.0)), backend='eager')
    results = []
    for step in range(4):
        {changing}
        results.append(net(torch.ones(4, 6)).detach())
    torch.set_grad_enabled(True)
    return results
""",
    )
