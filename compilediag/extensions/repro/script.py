"""Builds the script of a finding: facts and assumptions, the user's lines, and the program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from compilediag.diagnosis.codes import UNREPEATABLE
from compilediag.errors import ReproImpossible
from compilediag.extensions.repro.changes import (
    MAX_ELEMENTS,
    ChangedValue,
    build_change,
    build_ones,
    parse_shape,
)
from compilediag.extensions.repro.variables import (
    RESERVED,
    GuardedVariable,
    build_holder,
    get_code_info,
    locate_variable,
)
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.user_line import find_leading_call
from compilediag.views.text import clean

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import FindingRecord

Lines = list[str]

HOLDER = (
    "class Holder:",
    "    def __init__(self, **values):",
    "        self.__dict__.update(values)",
)
BACKEND = 'backend="eager"'
COMPILED = f"@torch.compile({BACKEND})"
INPUT = "INPUT()"
"""Stands in a program where a tensor is passed that is not the variable."""

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
    return build_for_owner(place, change), change.assumed


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


# --- by the owner of the value: what is defined and called ----------------------------------------


def build_for_owner(place: GuardedVariable, change: ChangedValue) -> Lines:
    """Build the lines below the imports."""
    parts = {
        "global": _build_for_global,
        "closure": _build_for_closure,
        "module": _build_for_module,
    }.get(place.owner, _build_for_argument)(place, change)
    holder = [HOLDER] if any("Holder(" in line for part in parts for line in part) else []
    return join(*holder, change.classes, *parts)


def join(*parts: Iterable[str]) -> Lines:
    """Join definitions and statements with two blank lines between them."""
    lines: Lines = []
    for part in filter(None, map(list, parts)):
        lines += ["", "", *part] if lines else part
    return lines


def call_twice(call: str, *changes: str) -> Lines:
    """Build the call that compiles, what changes, and the call that compiles again."""
    return [call, *changes, f"{call}  # compiles again"]


def call_model(*changes: str, setup: Iterable[str] = ()) -> Lines:
    """Build an instance of `Model`, compiled and called before and after the changes."""
    compiled = f"compiled = torch.compile(model, {BACKEND})"
    return ["model = Model()", *setup, compiled, *call_twice("compiled(INPUT())", *changes)]


def define_function(arguments: str, body: Iterable[str], decorator: str = COMPILED) -> Lines:
    """Build the compiled function of a script; `body` is not indented."""
    return [decorator, f"def repeated({arguments}):", *indent(body)]


def define_model(init: Iterable[str], forward: Iterable[str]) -> Lines:
    """Build the module of a script, from the bodies of its methods, which are not indented."""
    return [
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *indent(init, 2),
        "",
        "    def forward(self, x):",
        *indent(forward, 2),
    ]


def _build_for_argument(place: GuardedVariable, change: ChangedValue) -> list[Lines]:
    """Build for an argument: the value, or its holder, is passed in, one holder for both calls."""
    x = choose_name(place.root)
    needs_x = any("{x}" in line for line in change.use)
    arguments = f"{x}, {place.root}" if needs_x else place.root
    return [
        define_function(arguments, _build_body(change, place.expression, x)),
        [
            *([f"{x} = INPUT()"] if needs_x else ()),
            f"{place.root} = {build_holder(place.hops, change.before)}",
            *call_twice(f"repeated({arguments})", f"{place.expression} = {change.after}"),
        ],
    ]


def _build_for_global(place: GuardedVariable, change: ChangedValue) -> list[Lines]:
    x = choose_name(place.root)
    return [
        [f"{place.root} = {build_holder(place.hops, change.before)}"],
        define_function(x, _build_body(change, place.expression, x)),
        call_twice("repeated(INPUT())", f"{place.expression} = {change.after}"),
    ]


def _build_for_closure(place: GuardedVariable, change: ChangedValue) -> list[Lines]:
    """Build for a cell, which torch reaches through the function or through a hook."""
    x = choose_name(place.root)
    arguments = f"_module, _inputs, {x}" if place.in_hook else x
    setter = [f"nonlocal {place.root}", f"{place.root} = new_value"]
    make = [
        "def make():",
        f"    {place.root} = {build_holder(place.hops, change.before)}",
        "",
        f"    def captures({arguments}):",
        *indent(_build_body(change, place.expression, x), 2),
        "",
        "    def set_captured(new_value):",
        *indent([f"{place.expression} = new_value"] if place.hops else setter, 2),
        "",
        "    return captures, set_captured",
    ]
    hooked = ["model = nn.Sequential(nn.Identity())", "model[0].register_forward_hook(captures)"]
    main = [
        "captures, set_captured = make()",
        *(hooked if place.in_hook else ()),
        f"compiled = torch.compile({'model' if place.in_hook else 'captures'}, {BACKEND})",
        *call_twice("compiled(INPUT())", f"set_captured({change.after})"),
    ]
    return [make, main]


def _build_for_module(place: GuardedVariable, change: ChangedValue) -> list[Lines]:
    """Build for an attribute or a buffer of a module below the compiled one."""
    *modules, last = [hop.name for hop in place.hops]
    owner = "self"
    for name in modules:
        owner = f"{owner}.{name}" if name.isidentifier() else f"getattr({owner}, {name!r})"
    sets = owner.replace("self", "model", 1)
    holder, init = nest_modules(modules)
    if place.is_buffer:
        init += [f"{holder}.register_buffer({last!r}, {change.before}, persistent=False)"]
    else:
        init += [f"{holder}.{last} = {change.before}"]
    return [
        define_model(init, _build_body(change, f"{owner}.{last}", "x")),
        call_model(f"{sets}.{last} = {change.after}"),
    ]


def nest_modules(names: Iterable[str], module: str = "Module") -> tuple[str, Lines]:
    """Nest modules as attributes of `self`: the name of the innermost, and the lines."""
    lines: Lines = []
    holder = "self"
    for depth, name in enumerate(names):
        lines += [f"inner{depth} = nn.{module}()", f"{holder}.add_module({name!r}, inner{depth})"]
        holder = f"inner{depth}"
    return holder, lines


def _build_body(change: ChangedValue, value: str, x: str) -> Lines:
    return [line.replace("{value}", value).replace("{x}", x) for line in change.use]


def indent(lines: Iterable[str], depth: int = 1) -> Lines:
    """Indent the lines `depth` times."""
    return [f"{'    ' * depth}{line}" for line in lines]


def choose_name(taken: str) -> str:
    """Choose a name for the tensor of a script that is not the variable's."""
    return "x" if taken != "x" else "x_of_the_script"


def build_instances(place: GuardedVariable, change: ChangedValue) -> Lines:
    """Build two instances of one class that differ in the value, each compiled by itself.

    Raises:
        ReproImpossible: the value is of a module below the instances.
    """
    if len(place.hops) != 1:
        raise ReproImpossible("the instances differ in a value of a module below them")
    name = place.hops[0].name
    definition = define_model([f"self.{name} = value"], _build_body(change, f"self.{name}", "x"))
    definition[1] = "    def __init__(self, value):"
    return join(
        [*change.classes, *definition],
        [
            f"first = torch.compile(Model({change.before}), {BACKEND})",
            f"second = torch.compile(Model({change.after}), {BACKEND})",
            "first(INPUT())",
            "second(INPUT())  # compiles again",
        ],
    )
