"""Programs that change a value between two calls: its owner decides what is defined and called."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.errors import ReproImpossible
from compilediag.extensions.repro.changes import ChangedValue
from compilediag.extensions.repro.variables import GuardedVariable, build_holder

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


def build_program(place: GuardedVariable, change: ChangedValue) -> Lines:
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
