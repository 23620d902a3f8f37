"""Builds the script of a finding: facts and assumptions, the user's lines, and the program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from compilediag.diagnosis.codes import UNREPEATABLE
from compilediag.errors import ReproImpossible
from compilediag.extensions.repro.changes import (
    MAX_ELEMENTS,
    build_change,
    build_ones,
    parse_shape,
)
from compilediag.extensions.repro.owners import (
    BACKEND,
    INPUT,
    Lines,
    build_instances,
    build_program,
    call_model,
    call_twice,
    define_function,
    define_model,
    indent,
    join,
    nest_modules,
)
from compilediag.extensions.repro.variables import RESERVED, get_code_info, locate_variable
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.user_line import find_leading_call
from compilediag.views.text import clean

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord

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


_FAMILIES: Mapping[str, str] = {
    "CD2": "a graph break comes from an operation, not from a value: its line is the program",
    "CD3": "it is about the time of steps, not about a guard",
    "CD4": "it is about CUDA graphs of the run, not about a guard",
    "CD5": "it is about a program as a whole",
    "CD9": "it is about the record of the run, not about a guard",
}
_MAX_COMMENT_CHARS = 300
_SHAPE = re.compile(r"\[[\d, ]*\]")


def build_script(
    number: int, finding: FindingRecord, quoted: Sequence[str] = (), inputs: str | None = None
) -> str:
    """Build the text of the script for a finding.

    Args:
        number: of the finding in its receipt.
        finding: one finding.
        quoted: the user's lines around the place to blame, as they are to be shown.
        inputs: shapes of a call of the compiled callable, as the receipt has them.

    Raises:
        ReproImpossible: there is no small program for it; the message says why.
    """
    program, assumed = _build_program(finding)
    # The shape of the tensors that are passed beside the variable, and where it is from.
    match = _SHAPE.search(inputs or "")
    shape = parse_shape(match[0]) if match else None
    assumption = f"the run was called with {inputs}: its first tensor is passed, as float32"
    if not shape or prod(shape) > MAX_ELEMENTS:
        shape = [2, 4]
        assumption = "other inputs were not recorded: a tensor [2, 4] of float32 is passed"
    program = [line.replace(INPUT, build_ones(shape)) for line in program]
    lines = [*_build_head(number, finding, (*assumed, assumption))]
    if quoted:
        place = _describe_place(finding)
        title = f"# The lines of the run, as they read when this was written ({place}):"
        lines += ["#", _clean_comment(title)[:_MAX_COMMENT_CHARS], "#"]
        lines += [f"#   {_clean_comment(line)}" for line in quoted]
    imports = ["import enum", ""] if any("(enum.Enum)" in line for line in program) else []
    imports.append("import torch")
    if any("nn." in line for line in program):
        imports.append("from torch import nn")
    gap = [""] * (2 if program[0].startswith(("@", "class ", "def ")) else 1)
    return "\n".join([*lines, "", *imports, *gap, *program]) + "\n"


def _build_program(finding: FindingRecord) -> tuple[Lines, tuple[str, ...]]:
    rule, evidence = finding.rule, GuardEvidence.parse(finding.evidence)
    reason = UNREPEATABLE.get(rule) or _FAMILIES.get(rule[:3])
    if reason is not None:
        raise ReproImpossible(reason)
    variable, about = finding.variable or "", get_code_info(rule)
    if about.owner == "process":
        return build_mode_change(evidence.kind)
    if rule == "CD112":
        return build_backend_change(), ()
    if rule == "CD113":
        return build_aliasing(evidence.guard or ""), ()
    if about.owner == "module":
        return build_hook_change(variable), ("a hook was added; the run may have removed one",)
    if about.changed == "condition":
        return build_size_one(evidence.guard or ""), ()
    place = locate_variable(rule, variable.removesuffix(".__code__"), evidence.source or "")
    change = build_change(rule, evidence.kind, evidence)
    if any(line.startswith(f"class {place.root}(") for line in change.classes):
        raise ReproImpossible(f"{place.root!r} is the name of a class and of the variable")
    if about.owner == "instance":
        return build_instances(place, change), change.assumed
    return build_program(place, change), change.assumed


def _build_head(number: int, finding: FindingRecord, assumed: Sequence[str]) -> Lines:
    evidence = GuardEvidence.parse(finding.evidence)
    parts = [
        ("rule", f"{finding.rule} {finding.slug}"),
        ("variable", finding.variable),
        ("expected", evidence.expected),
        ("met", evidence.actual),
        ("guard", evidence.guard),
        ("where", _describe_place(finding)),
    ]
    return [
        f"# Finding {number}, repeated by a small program. Made by `compilediag explain --repro`.",
        "#",
        "# This is NOT the program that was run: the functions below were written for this script.",
        "# They have the same kind of guard on a variable of the same name, with the same values.",
        "#",
        *[f"#   {label:<9} {_clean_comment(value)}" for label, value in parts if value],
        *[
            f"#   {'' if i else 'assumed':<9} {_clean_comment(text)}"
            for i, text in enumerate(assumed)
        ],
        "#",
        "# Look at it with `compilediag run THIS_FILE`, or TORCH_LOGS=recompiles python THIS_FILE.",
    ]


def _describe_place(finding: FindingRecord) -> str | None:
    place, call = finding.location, find_leading_call(finding)
    called = f", called at {call.file}:{call.line}" if call is not None else ""
    return f"{place.file}:{place.line} in {place.function}{called}" if place else None


def _clean_comment(text: object) -> str:
    """Clean a text of the target to one line, which cannot leave its comment."""
    return clean(text, limit=_MAX_COMMENT_CHARS)


def build_mode_change(kind: str | None) -> tuple[Lines, tuple[str, ...]]:
    """Build a program in which a mode of torch differs between two calls."""
    if kind == "train_eval":
        forward = ["if self.training:", "    return x + 1", "return x - 1"]
        definition = ["class Model(nn.Module):", "    def forward(self, x):", *indent(forward, 2)]
        return join(definition, call_model("model.eval()")), (_DIRECTION,)
    statements = _MODES.get(kind or "")
    if statements is None:
        raise ReproImpossible(f"the mode {kind or 'that changed'!r} has no small program")
    before, after = statements
    function_of_x = define_function("x", ["return x + 1"])
    return join(function_of_x, [before, *call_twice("repeated(INPUT())", after)]), (_DIRECTION,)


def build_backend_change() -> Lines:
    """Build a program that compiles one function with two backends."""
    call = "torch.compile(repeated, backend=backend_of_its_own())(INPUT())"
    return join(
        ["def repeated(x):", "    return x + 1"],
        ["def backend_of_its_own():", "    return lambda graph, inputs: graph.forward"],
        call_twice(call),
    )


def build_aliasing(guard: str) -> Lines:
    """Build a program in which two arguments become the same tensor."""
    match = _DUPLICATES.match(guard)
    names = _QUOTED.findall(match["names"]) if match else []
    if len(names) != 2 or names[0] == names[1] or RESERVED & set(names):
        raise ReproImpossible("only two arguments that become one tensor have a small program")
    first, second = names
    return join(
        define_function(f"{first}, {second}", [f"return {first} + {second}"]),
        ["repeated(INPUT(), INPUT())", "same = INPUT()", "repeated(same, same)  # compiles again"],
    )


def build_hook_change(variable: str) -> Lines:
    """Build a program that adds a hook to a module that has one."""
    match = _HOOKS.match(variable)
    module = _NUMBERED.sub(r"\1", match["module"]) if match else ""
    names = module.removeprefix("self.").split(".")
    if match is None or not all(name.isidentifier() or name.isdecimal() for name in names):
        raise ReproImpossible(f"{variable!r} names no forward hooks of a module")
    path = repr(".".join(names))
    register = f"layer.register_forward_{match['pre'] or ''}hook(lambda *seen: None)"
    setup = [f"layer = model.get_submodule({path})", register]
    return join(
        define_model(
            nest_modules(names, "Identity")[1], [f"return self.get_submodule({path})(x) + 1"]
        ),
        call_model(register, setup=setup),
    )


def build_size_one(guard: str) -> Lines:
    """Build a program in which a dynamic size becomes 1."""
    match = _AT_MIN_TWO.match(guard)
    if match is None or match["name"] in RESERVED:
        raise ReproImpossible(
            "the condition on the size comes from the operations of the frame: "
            "only a size that becomes 1 has a small program"
        )
    name, dimension = match["name"], int(match["dimension"])
    large, one = ([2] * (dimension + 1) for _ in range(2))
    large[dimension], one[dimension] = 4, 1
    # torch guards a dynamic size to be 2 or more: sizes 0 and 1 are specialised.
    decorator = f"@torch.compile({BACKEND}, dynamic=True)"
    return join(
        define_function(name, [f"return {name} + 1"], decorator),
        [f"repeated(torch.ones({large}))", f"repeated(torch.ones({one}))  # compiles again"],
    )
