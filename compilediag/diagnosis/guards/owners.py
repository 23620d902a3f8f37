"""Whose value a guard's path leads to: an argument, a module, a global, a closure."""

from __future__ import annotations

from typing import Literal

from compilediag.diagnosis.guards.source import Path
from compilediag_harness.wire import GuardFacts

Owner = Literal["closure", "global", "argument", "module", "attribute", "nothing"]

_ARGUMENT_PARTS = ("__defaults__", "__kwdefaults__", "keywords", "args", "func")
_SLICE_PARTS = ("start", "stop", "step")
_LIKELY_SLICE_PARTS = ("start", "stop")
"""Without facts: `.step` is far oftener a counter of the user's than the step of a slice."""


def owner_of(path: Path | None, facts: GuardFacts) -> Owner:
    """Whose value a path leads to, after the last callable it passes through."""
    if path is None or path.scope == "state":
        return "nothing"
    if path.below_module:
        return "module"
    if path.callable_end:
        return "closure"
    is_module = facts.holder_kind == "module" and path.member is not None
    if facts.root == "free_variable":
        return "module" if is_module else "closure"
    if path.scope == "global" or facts.root == "global":
        return "module" if is_module else "global"
    if _is_argument(path, facts):
        return "argument"
    return "module" if is_module else "attribute"


def _is_argument(path: Path, facts: GuardFacts) -> bool:
    """An argument, or a part of one: an element of its containers, or a field of an object that
    is another one at every call. On the way to other arguments is no attribute, but those of named
    tuples, slices, and the defaults and keywords of functions."""
    if _is_field_of_fresh_object(path, facts):
        return True
    for index, hop in enumerate(path.hops):
        if hop.kind == "call":
            return False
        if hop.kind != "attr" or hop.text in _ARGUMENT_PARTS:
            continue
        at_end = index == len(path.hops) - 1
        if hop.text == "__code__" and at_end:
            continue
        if at_end and facts.holder_kind in ("namedtuple", "tuple"):
            continue
        if at_end and _is_slice_part(hop.text, path.root, facts):
            continue
        return False
    return True


def _is_field_of_fresh_object(path: Path, facts: GuardFacts) -> bool:
    """Whoever makes the object for one call decides on its fields: they hold no state."""
    if not facts.instance_changed or path.root in ("self", "fn"):
        return False
    return facts.holder_kind not in ("module", "optimizer", "class", "python_module", "callable")


def _is_slice_part(name: str, root: str, facts: GuardFacts) -> bool:
    if facts.holder_type is not None:
        return facts.holder_type in ("slice", "range") and name in _SLICE_PARTS
    return name in _LIKELY_SLICE_PARTS and root not in ("self", "fn")
