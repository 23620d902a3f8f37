"""Python values that changed, wherever they are from: what happened and what to do about them
(CD101, CD104, CD107, CD109, CD117)."""

from __future__ import annotations

from compilediag.diagnosis.causes.group import Group
from compilediag.rules.facts import (
    is_branched_on,
    is_callable,
    is_constant,
    is_container,
    is_filled_inside,
    is_number,
    is_of_hook,
    is_of_object,
    is_read_below,
    is_read_by_package,
)
from compilediag.rules.make_finding import Advice
from compilediag.rules.objects.advice import DISABLED_HOOK, KEPT_OUTSIDE
from compilediag.rules.recompiles import RecompileRule, Told

EACH_VALUE = Advice(
    "warm up each value of {name} before the timed steps; or write one function per value of "
    "{name}, compile each, and choose outside",
    "one graph per value, each a compile: only for values that are few",
)
EACH_STATE = Advice(
    "warm up every state that the timed steps have, {name} being one part of it",
    "one graph per state",
)
PASSED_AS_TENSOR = Advice(
    "where {function} only computes with {name}, pass it as a 0-dim tensor in the dtype of what it "
    "meets; or warm up each value of {name} before the timed steps",
    EACH_VALUE.caveat,
)
HELD_AS_TENSOR = Advice(
    "where {function} only computes with {name}, make it a 0-dim tensor in the dtype of what it "
    "meets, and change it in place (fill_, add_); or warm up each value of {name} before the timed "
    "steps",
    "a buffer of a module is in state_dict unless persistent=False",
)
ALWAYS_A_TENSOR = Advice(
    "pass {name} as a tensor at every call, torch.tensor({i}), of the shape and dtype that it has "
    "in the others",
)
SET_BEFORE = Advice(
    "set {name} before the first compiled call, to the value that {function} gives it"
)
INSTANCES = Advice(
    "compile the container of the instances once; or warm up each instance",
    "raise recompile_limit only as a last resort: each instance costs a compile",
)

_TENSOR_TYPES = ("torch.Tensor", "Tensor")
_OF_PACKAGES = ("CD104", "CD109")


def _captured(group: Group) -> Told:
    title = "closure flag" if is_of_hook(group) else "captured value"
    if group.kind == "tensor":
        title = "captured tensor"
    elif is_callable(group):
        title = "captured function or object"
    elif ".environ[" in group.variable:
        title = "environment value changed"
    elif is_number(group.first.expected) and not is_branched_on(group):
        title = "captured number"
    return title, _held(group)


def _attribute(group: Group) -> Told:
    advice = _held(group)
    title = "attribute of an object" if is_of_object(group) else "module attribute"
    if is_container(group) and group.variable.endswith("._modules"):
        title = "submodules added or removed"
    elif advice is SET_BEFORE:
        title = "attribute that the compiled code fills"
    elif advice is EACH_STATE:
        title = "attribute that a package reads"
    elif is_container(group):
        title = "attribute container"
    elif group.kind in ("attribute_set", "type"):
        title = f"attribute {'of another type' if group.kind == 'type' else 'added or removed'}"
    return title, advice


def _global(group: Group) -> Told:
    advice = _held(group)
    if group.kind == "environment":
        return "environment value changed", advice
    return ("global variable of a package" if advice is EACH_STATE else "global variable"), advice


def _held(group: Group) -> Advice:
    """What to do about a value that no call passes."""
    if is_of_hook(group):
        return DISABLED_HOOK
    is_attribute, may_be_of_package = group.code == "CD104", group.code in _OF_PACKAGES
    if is_attribute and is_filled_inside(group):
        return SET_BEFORE
    if (may_be_of_package and is_read_by_package(group)) or (is_attribute and is_read_below(group)):
        return EACH_STATE
    if may_be_of_package and is_container(group):
        return KEPT_OUTSIDE
    return HELD_AS_TENSOR if _may_be_tensor(group) else EACH_VALUE


def _argument(group: Group) -> Told:
    first = group.first
    number = is_number(first.expected)
    if (number and _is_tensor(first.actual)) or (
        first.expected in _TENSOR_TYPES and first.actual in ("int", "float")
    ):
        return "number in some calls, tensor in others", ALWAYS_A_TENSOR
    title = "Python value as argument"
    if group.kind == "tensor_index":
        title = "0-dim tensor used as an index"
    elif not is_branched_on(group):
        title = "Python number as argument" if number else title
        title = "bool argument" if first.expected in ("True", "False") else title
    return title, PASSED_AS_TENSOR if _may_be_tensor(group) else EACH_VALUE


def _may_be_tensor(group: Group) -> bool:
    """A number that no branch reads, and of which no graph is known to need the value."""
    shown = [text for cause in group.causes for text in (cause.expected, cause.actual)]
    known = [text for text in shown if text is not None]
    return (
        bool(known)
        and all(map(is_number, known))
        and not is_branched_on(group)
        and not is_constant(group)
    )


def _is_tensor(shown: str | None) -> bool:
    return (shown or "").startswith("Tensor ") or shown in _TENSOR_TYPES


def _instances(_: Group) -> Told:
    return "instances share code and differ", INSTANCES


RULES = (
    RecompileRule("CD101", _captured),
    RecompileRule("CD104", _attribute),
    RecompileRule("CD107", _argument),
    RecompileRule("CD109", _global),
    RecompileRule("CD117", _instances),
)
