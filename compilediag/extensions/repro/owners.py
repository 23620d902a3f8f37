"""Programs that change a value between two calls: its owner decides what is defined and called."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.errors import ReproImpossible
from compilediag.extensions.repro.changes import ChangedValue
from compilediag.extensions.repro.variables import GuardedVariable, holding

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


def program_of(place: GuardedVariable, change: ChangedValue) -> Lines:
    """Build the lines below the imports."""
    parts = {"global": _global, "closure": _closure, "module": _module}.get(place.owner, _argument)(
        place, change
    )
    holder = [HOLDER] if any("Holder(" in line for part in parts for line in part) else []
    return blocks(*holder, change.classes, *parts)


def blocks(*parts: Iterable[str]) -> Lines:
    """Join definitions and statements with two blank lines between them."""
    lines: Lines = []
    for part in filter(None, map(list, parts)):
        lines += ["", "", *part] if lines else part
    return lines


def calls(call: str, *changes: str) -> Lines:
    """Build the call that compiles, what changes, and the call that compiles again."""
    return [call, *changes, f"{call}  # compiles again"]


def model_calls(*changes: str, setup: Iterable[str] = ()) -> Lines:
    """Build an instance of `Model`, compiled and called before and after the changes."""
    compiled = f"compiled = torch.compile(model, {BACKEND})"
    return ["model = Model()", *setup, compiled, *calls("compiled(INPUT())", *changes)]


def function(arguments: str, body: Iterable[str], decorator: str = COMPILED) -> Lines:
    """Build the compiled function of a script; `body` is not indented."""
    return [decorator, f"def repeated({arguments}):", *indented(body)]


def model(init: Iterable[str], forward: Iterable[str]) -> Lines:
    """Build the module of a script, from the bodies of its methods, which are not indented."""
    return [
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *indented(init, 2),
        "",
        "    def forward(self, x):",
        *indented(forward, 2),
    ]


def _argument(place: GuardedVariable, change: ChangedValue) -> list[Lines]:
    """Build for an argument: the value, or its holder, is passed in, one holder for both calls."""
    x = other_name(place.root)
    needs_x = any("{x}" in line for line in change.use)
    arguments = f"{x}, {place.root}" if needs_x else place.root
    return [
        function(arguments, _body(change, place.expression, x)),
        [
            *([f"{x} = INPUT()"] if needs_x else ()),
            f"{place.root} = {holding(place.hops, change.before)}",
            *calls(f"repeated({arguments})", f"{place.expression} = {change.after}"),
        ],
    ]


def _global(place: GuardedVariable, change: ChangedValue) -> list[Lines]:
    x = other_name(place.root)
    return [
        [f"{place.root} = {holding(place.hops, change.before)}"],
        function(x, _body(change, place.expression, x)),
        calls("repeated(INPUT())", f"{place.expression} = {change.after}"),
    ]


def _closure(place: GuardedVariable, change: ChangedValue) -> list[Lines]:
    """Build for a cell, which torch reaches through the function or through a hook."""
    x = other_name(place.root)
    arguments = f"_module, _inputs, {x}" if place.in_hook else x
    setter = [f"nonlocal {place.root}", f"{place.root} = new_value"]
    make = [
        "def make():",
        f"    {place.root} = {holding(place.hops, change.before)}",
        "",
        f"    def captures({arguments}):",
        *indented(_body(change, place.expression, x), 2),
        "",
        "    def set_captured(new_value):",
        *indented([f"{place.expression} = new_value"] if place.hops else setter, 2),
        "",
        "    return captures, set_captured",
    ]
    hooked = ["model = nn.Sequential(nn.Identity())", "model[0].register_forward_hook(captures)"]
    main = [
        "captures, set_captured = make()",
        *(hooked if place.in_hook else ()),
        f"compiled = torch.compile({'model' if place.in_hook else 'captures'}, {BACKEND})",
        *calls("compiled(INPUT())", f"set_captured({change.after})"),
    ]
    return [make, main]


def _module(place: GuardedVariable, change: ChangedValue) -> list[Lines]:
    """Build for an attribute or a buffer of a module below the compiled one."""
    *modules, last = [hop.name for hop in place.hops]
    owner = "self"
    for name in modules:
        owner = f"{owner}.{name}" if name.isidentifier() else f"getattr({owner}, {name!r})"
    sets = owner.replace("self", "model", 1)
    holder, init = nested(modules)
    if place.is_buffer:
        init += [f"{holder}.register_buffer({last!r}, {change.before}, persistent=False)"]
    else:
        init += [f"{holder}.{last} = {change.before}"]
    return [
        model(init, _body(change, f"{owner}.{last}", "x")),
        model_calls(f"{sets}.{last} = {change.after}"),
    ]


def nested(names: Iterable[str], module: str = "Module") -> tuple[str, Lines]:
    """Nest modules as attributes of `self`: the name of the innermost, and the lines."""
    lines: Lines = []
    holder = "self"
    for depth, name in enumerate(names):
        lines += [f"inner{depth} = nn.{module}()", f"{holder}.add_module({name!r}, inner{depth})"]
        holder = f"inner{depth}"
    return holder, lines


def _body(change: ChangedValue, value: str, x: str) -> Lines:
    return [line.replace("{value}", value).replace("{x}", x) for line in change.use]


def indented(lines: Iterable[str], depth: int = 1) -> Lines:
    """Indent the lines `depth` times."""
    return [f"{'    ' * depth}{line}" for line in lines]


def other_name(taken: str) -> str:
    """Choose a name for the tensor of a script that is not the variable's."""
    return "x" if taken != "x" else "x_of_the_script"


def instances_program(place: GuardedVariable, change: ChangedValue) -> Lines:
    """Build two instances of one class that differ in the value, each compiled by itself.

    Raises:
        ReproImpossible: the value is of a module below the instances.
    """
    if len(place.hops) != 1:
        raise ReproImpossible("the instances differ in a value of a module below them")
    name = place.hops[0].name
    definition = model([f"self.{name} = value"], _body(change, f"self.{name}", "x"))
    definition[1] = "    def __init__(self, value):"
    return blocks(
        [*change.classes, *definition],
        [
            f"first = torch.compile(Model({change.before}), {BACKEND})",
            f"second = torch.compile(Model({change.after}), {BACKEND})",
            "first(INPUT())",
            "second(INPUT())  # compiles again",
        ],
    )
