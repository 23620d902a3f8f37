"""Programs for causes that are no value of a variable: modes of torch, backends, aliasing, hooks,
and a size that reaches 1."""

from __future__ import annotations

import re
from collections.abc import Mapping

from compilediag.errors import ReproImpossible
from compilediag.extensions.repro.views.owners import (
    BACKEND,
    Lines,
    blocks,
    calls,
    function,
    indented,
    model,
    model_calls,
    nested,
)
from compilediag.extensions.repro.views.variables import RESERVED

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
_NUMBERED = re.compile(r"\A\w+\[(\d+)\]")
"""A numbered child goes by its container: `Sequential[0]`."""
_HOOKS = re.compile(r"(?P<module>.+)\._forward_(?P<pre>pre_)?hooks\Z")
_AT_MIN_TWO = re.compile(r"2 <= L\['(?P<name>[A-Za-z_]\w*)'\]\.size\(\)\[(?P<dimension>\d)\]\Z")


def mode_program(kind: str | None) -> tuple[Lines, tuple[str, ...]]:
    """A mode of torch that differs between two calls."""
    if kind == "train_eval":
        return _train_eval(), (_DIRECTION,)
    statements = _MODES.get(kind or "")
    if statements is None:
        raise ReproImpossible(f"the mode {kind or 'that changed'!r} has no small program")
    before, after = statements
    function_of_x = function("x", ["return x + 1"])
    return blocks(function_of_x, [before, *calls("repeated(INPUT())", after)]), (_DIRECTION,)


def _train_eval() -> Lines:
    forward = ["if self.training:", "    return x + 1", "return x - 1"]
    definition = ["class Model(nn.Module):", "    def forward(self, x):", *indented(forward, 2)]
    return blocks(definition, model_calls("model.eval()"))


def backend_program() -> Lines:
    """The same function compiled with two backends."""
    call = "torch.compile(repeated, backend=backend_of_its_own())(INPUT())"
    return blocks(
        ["def repeated(x):", "    return x + 1"],
        ["def backend_of_its_own():", "    return lambda graph, inputs: graph.forward"],
        calls(call),
    )


def aliasing_program(guard: str) -> Lines:
    """Two arguments that become the same tensor."""
    found = _DUPLICATES.match(guard)
    names = _QUOTED.findall(found["names"]) if found else []
    if len(names) != 2 or names[0] == names[1] or RESERVED & set(names):
        raise ReproImpossible("only two arguments that become one tensor have a small program")
    first, second = names
    return blocks(
        function(f"{first}, {second}", [f"return {first} + {second}"]),
        ["repeated(INPUT(), INPUT())", "same = INPUT()", "repeated(same, same)  # compiles again"],
    )


def hooks_program(variable: str) -> Lines:
    """A hook added to a module that has one."""
    found = _HOOKS.match(variable)
    module = _NUMBERED.sub(r"\1", found["module"]) if found else ""
    names = module.removeprefix("self.").split(".")
    if found is None or not all(name.isidentifier() or name.isdecimal() for name in names):
        raise ReproImpossible(f"{variable!r} names no forward hooks of a module")
    path = repr(".".join(names))
    register = f"layer.register_forward_{found['pre'] or ''}hook(lambda *seen: None)"
    setup = [f"layer = model.get_submodule({path})", register]
    return blocks(
        model(nested(names, "Identity")[1], [f"return self.get_submodule({path})(x) + 1"]),
        model_calls(register, setup=setup),
    )


def size_one_program(guard: str) -> Lines:
    """A dynamic size that becomes 1."""
    found = _AT_MIN_TWO.match(guard)
    if found is None or found["name"] in RESERVED:
        raise ReproImpossible(
            "the condition on the size comes from the operations of the frame: "
            "only a size that becomes 1 has a small program"
        )
    name, dimension = found["name"], int(found["dimension"])
    large, one = ([2] * (dimension + 1) for _ in range(2))
    large[dimension], one[dimension] = 4, 1
    decorator = f"@torch.compile({BACKEND}, dynamic=True)"
    return blocks(
        function(name, [f"return {name} + 1"], decorator),
        [f"repeated(torch.ones({large}))", f"repeated(torch.ones({one}))  # compiles again"],
    )
