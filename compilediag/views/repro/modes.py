"""Programs for causes that are no value of a variable: modes of torch, backends, aliasing, hooks,
and a size that reaches 1."""

from __future__ import annotations

import re
from collections.abc import Mapping

from compilediag.errors import ReproImpossible
from compilediag.views.repro.owners import BACKEND, Lines
from compilediag.views.repro.places import RESERVED

_DIRECTION = "in which direction the mode changed was not recorded"

_MODES: Mapping[str, tuple[str, str]] = {
    "grad_mode": ("torch.set_grad_enabled(True)", "torch.set_grad_enabled(False)"),
    "matmul_precision": (
        'torch.set_float32_matmul_precision("highest")',
        'torch.set_float32_matmul_precision("high")',
    ),
    "deterministic_algorithms": (
        "torch.use_deterministic_algorithms(False)",
        "torch.use_deterministic_algorithms(True)",
    ),
    "default_dtype": (
        "torch.set_default_dtype(torch.float32)",
        "torch.set_default_dtype(torch.float64)",
    ),
    "num_threads": ("torch.set_num_threads(1)", "torch.set_num_threads(2)"),
}
"""Kind to the statements before the first and before the second call."""

_DUPLICATES = re.compile(r"Duplicate tensors found: \[(?P<names>.{1,400})\]\Z", re.DOTALL)
_QUOTED = re.compile(r"\"(?P<name>[A-Za-z_]\w*)\"")
_HOOKS = re.compile(r"(?P<module>.+)\._forward_(?P<pre>pre_)?hooks\Z")
_AT_LEAST_TWO = re.compile(r"2 <= L\['(?P<name>[A-Za-z_]\w*)'\]\.size\(\)\[(?P<dimension>\d)\]\Z")


def mode_program(kind: str | None) -> tuple[Lines, tuple[str, ...]]:
    """A mode of torch that differs between two calls."""
    if kind == "train_eval":
        return _train_eval(), (_DIRECTION,)
    statements = _MODES.get(kind or "")
    if statements is None:
        raise ReproImpossible(f"the mode {kind or 'that changed'!r} has no small program")
    before, after = statements
    lines = [
        f"@torch.compile({BACKEND})",
        "def repeated(x):",
        "    return x + 1",
        "",
        "",
        before,
        "repeated(INPUT())",
        after,
        "repeated(INPUT())  # compiles again",
    ]
    return lines, (_DIRECTION,)


def _train_eval() -> Lines:
    return [
        "class Model(nn.Module):",
        "    def forward(self, x):",
        "        if self.training:",
        "            return x + 1",
        "        return x - 1",
        "",
        "",
        "model = Model()",
        f"compiled = torch.compile(model, {BACKEND})",
        "compiled(INPUT())",
        "model.eval()",
        "compiled(INPUT())  # compiles again",
    ]


def backend_program() -> Lines:
    """The same function compiled with two backends."""
    return [
        "def repeated(x):",
        "    return x + 1",
        "",
        "",
        "def backend_of_its_own():",
        "    return lambda graph, inputs: graph.forward",
        "",
        "",
        "torch.compile(repeated, backend=backend_of_its_own())(INPUT())",
        "torch.compile(repeated, backend=backend_of_its_own())(INPUT())  # compiles again",
    ]


def aliasing_program(guard: str) -> Lines:
    """Two arguments that become the same tensor."""
    found = _DUPLICATES.match(guard)
    names = _QUOTED.findall(found["names"]) if found else []
    if len(names) != 2 or names[0] == names[1] or RESERVED & set(names):
        raise ReproImpossible("only two arguments that become one tensor have a small program")
    first, second = names
    return [
        f"@torch.compile({BACKEND})",
        f"def repeated({first}, {second}):",
        f"    return {first} + {second}",
        "",
        "",
        "repeated(INPUT(), INPUT())",
        "same = INPUT()",
        "repeated(same, same)  # compiles again",
    ]


def hooks_program(variable: str) -> Lines:
    """A hook added to a module that has one."""
    found = _HOOKS.match(variable)
    names = found["module"].removeprefix("self.").split(".") if found else []
    if found is None or not all(name.isidentifier() or name.isdecimal() for name in names):
        raise ReproImpossible(f"{variable!r} names no forward hooks of a module")
    register = f"register_forward_{found['pre'] or ''}hook(lambda *seen: None)"
    return [
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *_nested(names),
        "",
        "    def forward(self, x):",
        f"        return self.get_submodule({'.'.join(names)!r})(x) + 1",
        "",
        "",
        "model = Model()",
        f"layer = model.get_submodule({'.'.join(names)!r})",
        f"layer.{register}",
        f"compiled = torch.compile(model, {BACKEND})",
        "compiled(INPUT())",
        f"layer.{register}",
        "compiled(INPUT())  # compiles again",
    ]


def _nested(names: list[str]) -> Lines:
    """Modules inside each other; the innermost can be called."""
    lines: Lines = []
    holder = "self"
    for depth, name in enumerate(names):
        lines += [
            f"        inner{depth} = nn.Identity()",
            f"        {holder}.add_module({name!r}, inner{depth})",
        ]
        holder = f"inner{depth}"
    return lines


def size_one_program(guard: str) -> Lines:
    """A dynamic size that becomes 1."""
    found = _AT_LEAST_TWO.match(guard)
    if found is None or found["name"] in RESERVED:
        raise ReproImpossible(
            "the condition on the size comes from the operations of the frame: "
            "only a size that becomes 1 has a small program"
        )
    name, dimension = found["name"], int(found["dimension"])
    large, one = ([2] * (dimension + 1) for _ in range(2))
    large[dimension], one[dimension] = 4, 1
    return [
        f"@torch.compile({BACKEND}, dynamic=True)",
        f"def repeated({name}):",
        f"    return {name} + 1",
        "",
        "",
        f"repeated(torch.ones({large}))",
        f"repeated(torch.ones({one}))  # compiles again",
    ]
