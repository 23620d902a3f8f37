"""The place of a guarded variable: its owner, its root name, and the path from there.

Names become part of a program, so only identifiers and constants are taken.
"""

from __future__ import annotations

import ast
import keyword
from typing import Literal, NamedTuple

from compilediag.diagnosis.codes import REGISTER, CodeInfo
from compilediag.diagnosis.guards.source import parse_path
from compilediag.errors import ReproImpossible

Owner = Literal["argument", "module", "object", "closure", "global"]

RESERVED = frozenset(
    [
        *("torch", "nn", "enum", "Holder", "Model", "repeated"),
        *("captures", "set_captured", "new_value", "_module", "_inputs"),
    ]
)
"""Names that scripts use themselves where a variable could hide them."""
MAX_INDEX = 64
_SELF = ("self", "fn")
_REGISTRIES = ("_modules", "_buffers", "_parameters")


class PathStep(NamedTuple):
    """One step from an object to a part of it: an attribute, a key or an index."""

    kind: Literal["attr", "key", "index"]
    name: str
    """The attribute's name, or the subscript as a literal."""


class GuardedVariable(NamedTuple):
    """A variable of a program."""

    owner: Owner
    root: str
    hops: tuple[PathStep, ...]
    is_buffer: bool = False
    in_hook: bool = False
    """A closure that torch reached through a hook of a module."""

    @property
    def expression(self) -> str:
        """The expression by which the script reads it."""
        steps = (f".{hop.name}" if hop.kind == "attr" else f"[{hop.name}]" for hop in self.hops)
        return self.root + "".join(steps)


def locate_variable(rule: str, variable: str, source: str) -> GuardedVariable:
    """Locate the variable of a finding.

    Args:
        rule: the code, which determines who owns the variable.
        variable: as in the receipt, "pos.pe" or "cfg['k']".
        source: the path on which torch reached it.

    Raises:
        ReproImpossible: the name is none a program could use.
    """
    owner = _determine_owner(rule, source)
    if owner == "module":
        # A variable as `named_buffers` spells it, or behind `self`.
        names = variable.split(".")
        if names[0] == "self" and len(names) > 1:
            names = names[1:]
        for name in names:
            if not (name.isidentifier() or name.isdecimal()) or keyword.iskeyword(name):
                raise ReproImpossible(f"{variable!r} is no path of names below a module")
        if names[-1].isdecimal():
            raise ReproImpossible(f"{variable!r} names a module, not a value of one")
        steps = tuple(PathStep("attr", name) for name in names)
        return GuardedVariable("module", "self", steps, "._buffers[" in source)
    root, hops = _parse_path(variable)
    return GuardedVariable(owner, root, hops, in_hook=owner == "closure" and "_hooks" in source)


def get_code_info(rule: str) -> CodeInfo:
    """Get a rule from the register, which lacks the codes of newer receipts: those are empty."""
    return REGISTER.get(rule) or CodeInfo(rule, "", "")


def _determine_owner(rule: str, source: str) -> Owner:
    owner = get_code_info(rule).owner
    if owner in ("closure", "global"):
        return owner
    path = parse_path(source) if source else None
    if path is None:
        raise ReproImpossible("the receipt does not say where torch found the variable")
    below = any(hop.text in _REGISTRIES for hop in path.hops)
    if path.root in _SELF or below:
        return "module"
    if path.scope == "global":
        return "global"
    return "object" if owner in ("object", "instance") else "argument"


def _parse_path(variable: str) -> tuple[str, tuple[PathStep, ...]]:
    unusable = ReproImpossible(f"{variable!r} is no name that a program could use")
    try:
        node = ast.parse(variable, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise unusable from error
    hops: list[PathStep] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            hops.append(PathStep("attr", node.attr))
            node = node.value
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            value = node.slice.value
            if isinstance(value, str):
                hops.append(PathStep("key", repr(value)))
            elif type(value) is int and 0 <= value < MAX_INDEX:
                hops.append(PathStep("index", str(value)))
            else:
                raise unusable
            node = node.value
        else:
            raise unusable
    if node.id in RESERVED:
        raise ReproImpossible(f"{node.id!r} is a name that the script needs itself")
    return node.id, tuple(reversed(hops))


def build_holder(hops: tuple[PathStep, ...], leaf: str) -> str:
    """Build the expression of nested objects that hold `leaf` at the end of the hops."""
    for hop in reversed(hops):
        if hop.kind == "attr":
            leaf = f"Holder({hop.name}={leaf})"
        elif hop.kind == "key":
            leaf = f"{{{hop.name}: {leaf}}}"
        else:
            leaf = f"[{'None, ' * int(hop.name)}{leaf}]"
    return leaf
