"""Values and containers that a function captured: hooks, closures, bound methods (CD101, CD102)."""

from __future__ import annotations

from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import CauseGroup, RecompileRule, Wording, Wordings

_DISABLE_COST = (
    "costs a kernel each step; disabling the function instead costs a graph break per call site, "
    "and the loop that calls it runs eager"
)


def _captured_kind(group: CauseGroup) -> str | None:
    if group.kind in ("tensor", "object"):
        return group.kind
    is_part = "." in group.first.variable or "[" in group.first.variable
    return "part" if is_part else None


_CAPTURED: Wordings = {
    "tensor": Wording(
        "captured tensor",
        "pass {name} to {function} as an argument, or keep its metadata fixed",
    ),
    "object": Wording(
        "captured function or object",
        "keep one object in {name}: choose between callables outside of the compiled region",
        "one compile per callable",
    ),
    "part": Wording(
        "captured object's value",
        "write always in {function} into a preallocated buffer instead of asking {name}, and read "
        "the buffer outside when it is due",
        _DISABLE_COST,
    ),
    None: Wording(
        "closure flag",
        "remove the flag {name} from {function}: copy the value into a preallocated buffer every "
        "time, and read the buffer outside when it is due",
        _DISABLE_COST,
    ),
}

_CONTAINER = Wording(
    "closure container",
    "replace {name} by a preallocated tensor that {function} writes in place (for a history: a "
    "ring buffer with index_copy_)",
    "disabling the function with torch.compiler.disable instead costs a graph break per call site",
)

RULES: tuple[Rule, ...] = (
    RecompileRule("CD101", _CAPTURED, _captured_kind),
    RecompileRule("CD102", {None: _CONTAINER}),
)
