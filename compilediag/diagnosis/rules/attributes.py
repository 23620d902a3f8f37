"""Python attributes of objects and modules, and instances that differ in them (CD104, CD117)."""

from __future__ import annotations

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Cause, Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording


def _attribute(group: Group) -> Wording:
    first = group.first
    if group.kind == "attribute_set":
        return Wording(
            "attribute added or removed",
            f"set {group.name} in __init__, before the first call, and keep it",
        )
    if group.kind in ("length", "members", "keys", "missing"):
        return Wording(
            "attribute container",
            f"replace {group.name} by a preallocated tensor with a 0-dim counter, or change it "
            "outside of the compiled region",
        )
    if group.kind == "type":
        return Wording(
            "attribute of another type",
            f"keep the type of {group.name}: build one model per variant before compiling",
            "one compile per variant",
        )
    if _is_number(first.expected):
        return Wording(
            "module attribute",
            f"make {group.name} a 0-dim buffer and change it in place (add_, fill_), or do not "
            f"touch it in {group.function}",
            "the buffer is in state_dict unless persistent=False",
        )
    return Wording(
        "module attribute",
        f"decide on {group.name} outside of the compiled region, or build one variant per value "
        "before compiling",
        "one compile per variant",
    )


def _instance(group: Group) -> Wording:
    fix = "compile the container of the instances once"
    if _is_number(group.first.expected):
        fix += f", or make {group.name} a 0-dim buffer"
    return Wording(
        "instances share code and differ",
        fix,
        "raise recompile_limit only as a last resort: each instance costs a compile",
    )


def _is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True


def is_number(cause: Cause) -> bool:
    """The guard expected an int or a float."""
    return _is_number(cause.expected)


RULES: tuple[Rule, ...] = (
    RecompileRule("CD104", _attribute),
    RecompileRule("CD117", _instance),
)
