"""Values and containers that a function captured: hooks, closures, bound methods (CD101, CD102)."""

from __future__ import annotations

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording

_DISABLE_COST = (
    "costs a kernel each step; disabling the function instead costs a graph break per call site, "
    "and the loop that calls it runs eager"
)


def _captured_value(group: Group) -> Wording:
    if group.kind == "tensor":
        return Wording(
            "captured tensor",
            f"pass {group.name} to {group.function} as an argument, or keep its metadata fixed",
        )
    if group.kind == "object":
        return Wording(
            "captured function or object",
            f"keep one object in {group.name}: choose between callables outside of the compiled "
            "region",
            "one compile per callable",
        )
    if "." in group.variable or "[" in group.variable:
        return Wording(
            "captured object's value",
            f"write always in {group.function} into a preallocated buffer instead of asking "
            f"{group.name}, and read the buffer outside when it is due",
            _DISABLE_COST,
        )
    return Wording(
        "closure flag",
        f"remove the flag {group.name} from {group.function}: copy the value into a preallocated "
        "buffer every time, and read the buffer outside when it is due",
        _DISABLE_COST,
    )


def _captured_container(group: Group) -> Wording:
    return Wording(
        "closure container",
        f"replace {group.name} by a preallocated tensor that {group.function} writes in place "
        "(for a history: a ring buffer with index_copy_)",
        "disabling the function with torch.compiler.disable instead costs a graph break per "
        "call site",
    )


RULES: tuple[Rule, ...] = (
    RecompileRule("CD101", _captured_value),
    RecompileRule("CD102", _captured_container),
)
