"""A change of a value put into a program: who owns the value decides what is defined and called."""

from __future__ import annotations

from collections.abc import Iterable

from compilediag.errors import ReproImpossible
from compilediag.views.repro.changes import Change
from compilediag.views.repro.places import Place, holding

Lines = list[str]

HOLDER = (
    "class Holder:",
    "    def __init__(self, **values):",
    "        self.__dict__.update(values)",
    "",
    "",
)
BACKEND = 'backend="eager"'
INPUT = "INPUT()"
"""Stands in a program where a tensor is passed that is not the variable."""


def program_of(place: Place, change: Change) -> Lines:
    """The lines below the imports."""
    made = {
        "argument": _argument,
        "object": _argument,
        "global": _global,
        "closure": _closure,
        "module": _module,
    }[place.owner](place, change)
    needs_holder = any("Holder(" in line for line in made)
    classes = [*change.classes, "", ""] if change.classes else []
    return [*(HOLDER if needs_holder else ()), *classes, *made]


def _argument(place: Place, change: Change) -> Lines:
    """The value, or what holds it, is passed in; the same holder is used for both calls."""
    x = other_name(place.root)
    needs_x = any("{x}" in line for line in change.use)
    given = f"{x}, {place.root}" if needs_x else place.root
    return [
        f"@torch.compile({BACKEND})",
        f"def repeated({given}):",
        *_body(change, place.spelled, x),
        "",
        "",
        *([f"{x} = INPUT()"] if needs_x else ()),
        f"{place.root} = {holding(place.hops, change.before)}",
        f"repeated({given})",
        f"{place.spelled} = {change.after}",
        f"repeated({given})  # compiles again",
    ]


def _global(place: Place, change: Change) -> Lines:
    x = other_name(place.root)
    return [
        f"{place.root} = {holding(place.hops, change.before)}",
        "",
        "",
        f"@torch.compile({BACKEND})",
        f"def repeated({x}):",
        *_body(change, place.spelled, x),
        "",
        "",
        "repeated(INPUT())",
        f"{place.spelled} = {change.after}",
        "repeated(INPUT())  # compiles again",
    ]


def _closure(place: Place, change: Change) -> Lines:
    """The value is in a cell; torch reaches it through the function or through a hook."""
    x = other_name(place.root)
    given = f"_module, _inputs, {x}" if place.in_hook else x
    setter = [f"nonlocal {place.root}", f"{place.root} = new_value"]
    if place.hops:
        setter = [f"{place.spelled} = new_value"]
    lines = [
        "def make():",
        f"    {place.root} = {holding(place.hops, change.before)}",
        "",
        f"    def captures({given}):",
        *_indented(_body(change, place.spelled, x)),
        "",
        "    def set_captured(new_value):",
        *_indented(setter, 2),
        "",
        "    return captures, set_captured",
        "",
        "",
        "captures, set_captured = make()",
    ]
    if place.in_hook:
        lines += [
            "model = nn.Sequential(nn.Identity())",
            "model[0].register_forward_hook(captures)",
            f"compiled = torch.compile(model, {BACKEND})",
        ]
    else:
        lines.append(f"compiled = torch.compile(captures, {BACKEND})")
    return [
        *lines,
        "compiled(INPUT())",
        f"set_captured({change.after})",
        "compiled(INPUT())  # compiles again",
    ]


def _module(place: Place, change: Change) -> Lines:
    """The value is an attribute or a buffer of a module below the compiled one."""
    *modules, last = [hop.name for hop in place.hops]
    x = "x"
    reads = "self"
    for name in modules:
        reads = f"{reads}.{name}" if name.isidentifier() else f"getattr({reads}, {name!r})"
    sets = reads.replace("self", "model", 1)
    return [
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *_indented(_nested(modules, last, change.before, is_buffer=place.is_buffer), 2),
        "",
        f"    def forward(self, {x}):",
        *_indented(_body(change, f"{reads}.{last}", x)),
        "",
        "",
        "model = Model()",
        f"compiled = torch.compile(model, {BACKEND})",
        "compiled(INPUT())",
        f"{sets}.{last} = {change.after}",
        "compiled(INPUT())  # compiles again",
    ]


def _nested(modules: list[str], last: str, leaf: str, *, is_buffer: bool) -> Lines:
    lines: Lines = []
    holder = "self"
    for depth, name in enumerate(modules):
        lines += [f"inner{depth} = nn.Module()", f"{holder}.add_module({name!r}, inner{depth})"]
        holder = f"inner{depth}"
    if is_buffer:
        return [*lines, f"{holder}.register_buffer({last!r}, {leaf}, persistent=False)"]
    return [*lines, f"{holder}.{last} = {leaf}"]


def _body(change: Change, value: str, x: str) -> Lines:
    return _indented(line.replace("{value}", value).replace("{x}", x) for line in change.use)


def _indented(lines: Iterable[str], depth: int = 1) -> Lines:
    return [f"{'    ' * depth}{line}" for line in lines]


def other_name(taken: str) -> str:
    """A name for the tensor of a script that is not the variable's."""
    return "x" if taken != "x" else "x_of_the_script"


def instances_program(place: Place, change: Change) -> Lines:
    """Two instances of one class that differ in the value, each compiled by itself."""
    if len(place.hops) != 1:
        raise ReproImpossible("the instances differ in a value of a module below them")
    name = place.hops[0].name
    return [
        *change.classes,
        "class Model(nn.Module):",
        "    def __init__(self, value):",
        "        super().__init__()",
        f"        self.{name} = value",
        "",
        "    def forward(self, x):",
        *_indented(_body(change, f"self.{name}", "x")),
        "",
        "",
        f"first = torch.compile(Model({change.before}), {BACKEND})",
        f"second = torch.compile(Model({change.after}), {BACKEND})",
        "first(INPUT())",
        "second(INPUT())  # compiles again",
    ]
