"""Python values, containers and objects passed as arguments (CD107, CD108, CD110)."""

from __future__ import annotations

from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording, Wordings

_SCALAR: Wordings = {
    "tensor_index": Wording(
        "0-dim tensor used as an index", "index with table.index_select(0, {i}.view(1))"
    ),
    "bool": Wording(
        "bool argument",
        "warm up both values of {name}, or pass a bool tensor and use torch.where",
        "torch.where computes both sides",
    ),
    "number": Wording(
        "Python number as argument",
        "pass {name} as a 0-dim tensor",
        "an int can also stay one with torch.compile(dynamic=True)",
    ),
    None: Wording(
        "Python value as argument",
        "choose by {name} outside of the compiled function, or select from a table tensor",
        "one graph per value that is warmed up",
    ),
}

_OTHER_KEYS = Wording(
    "container argument with other keys",
    "pass {name} always with the same keys in the same order, such as dict(sorted({d}.items()))",
)
_STRUCTURE: Wordings = {
    **dict.fromkeys(("members", "keys", "missing"), _OTHER_KEYS),
    "type": Wording("container argument of another type", "pass {name} as one container type"),
    None: Wording(
        "container argument of another length", "pass a padded tensor with a mask instead of {name}"
    ),
}

_IDENTITY: Wordings = {
    "dead_object": Wording(
        "a guarded object died", "keep {name} alive as long as the compiled function is used"
    ),
    "type": Wording(
        "argument of another type", "pass one type for {name}, or tensors taken from it"
    ),
    None: Wording(
        "another function or class was passed",
        "create {name} once, outside of the loop, or pass tensors of coefficients instead",
    ),
}

RULES: tuple[Rule, ...] = (
    RecompileRule("CD107", _SCALAR),
    RecompileRule("CD108", _STRUCTURE),
    RecompileRule("CD110", _IDENTITY),
)
