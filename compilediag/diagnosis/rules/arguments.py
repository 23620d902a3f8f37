"""Python values, containers and objects passed as arguments (CD107, CD108, CD110)."""

from __future__ import annotations

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.attributes import is_number
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording


def _scalar(group: Group) -> Wording:
    name = group.name
    if group.kind == "tensor_index":
        return Wording(
            "0-dim tensor used as an index",
            f"index with table.index_select(0, {group.variable or 'i'}.view(1))",
        )
    if group.first.expected in ("True", "False"):
        return Wording(
            "bool argument",
            f"warm up both values of {name}, or pass a bool tensor and use torch.where",
            "torch.where computes both sides",
        )
    if is_number(group.first):
        return Wording(
            "Python number as argument",
            f"pass {name} as a 0-dim tensor",
            "an int can also stay one with torch.compile(dynamic=True)",
        )
    return Wording(
        "Python value as argument",
        f"choose by {name} outside of the compiled function, or select from a table tensor",
        "one graph per value that is warmed up",
    )


def _structure(group: Group) -> Wording:
    name = group.name
    if group.kind in ("members", "keys", "missing"):
        return Wording(
            "container argument with other keys",
            f"pass {name} always with the same keys in the same order, such as "
            f"dict(sorted({group.variable or 'd'}.items()))",
        )
    if group.kind == "type":
        return Wording("container argument of another type", f"pass {name} as one container type")
    return Wording(
        "container argument of another length",
        f"pass a padded tensor with a mask instead of {name}",
    )


def _identity(group: Group) -> Wording:
    name = group.name
    if group.kind == "dead_object":
        return Wording(
            "a guarded object died",
            f"keep {name} alive as long as the compiled function is used",
        )
    if group.kind == "type":
        return Wording(
            "argument of another type", f"pass one type for {name}, or tensors taken from it"
        )
    return Wording(
        "another function or class was passed",
        f"create {name} once, outside of the loop, or pass tensors of coefficients instead",
    )


RULES: tuple[Rule, ...] = (
    RecompileRule("CD107", _scalar),
    RecompileRule("CD108", _structure),
    RecompileRule("CD110", _identity),
)
