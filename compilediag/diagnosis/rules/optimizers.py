"""State of a compiled optimizer step (CD116)."""

from __future__ import annotations

from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import CauseGroup, RecompileRule, Wording, Wordings


def _state_kind(group: CauseGroup) -> str | None:
    if group.kind is not None:
        return "option"
    variable = group.first.variable
    return next((end for end in (".grad", "param_groups") if variable.endswith(end)), None)


_STATE: Wordings = {
    "option": Wording(
        "{kind} of the optimizer changed",
        "pass {kind} as a tensor ({kind}=torch.tensor(...)) and change it with fill_",
    ),
    ".grad": Wording(
        "a parameter without gradient in the optimizer step",
        "call zero_grad(set_to_none=False), or give every parameter a gradient",
    ),
    "param_groups": Wording("parameter groups changed", "add all groups before the first step"),
    None: Wording(
        "optimizer state was created",
        "let the first step create the state during warm-up",
        "two compiles are normal for a compiled optimizer",
    ),
}

RULES: tuple[Rule, ...] = (RecompileRule("CD116", _STATE, _state_kind),)
