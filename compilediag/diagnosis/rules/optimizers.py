"""State of a compiled optimizer step (CD116)."""

from __future__ import annotations

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording


def _state(group: Group) -> Wording:
    if group.kind is not None:
        return Wording(
            f"{group.kind} of the optimizer changed",
            f"pass {group.kind} as a tensor ({group.kind}=torch.tensor(...)) and change it with "
            "fill_",
        )
    if group.variable.endswith(".grad"):
        return Wording(
            "a parameter without gradient in the optimizer step",
            "call zero_grad(set_to_none=False), or give every parameter a gradient",
        )
    if group.variable.endswith("param_groups"):
        return Wording("parameter groups changed", "add all groups before the first step")
    return Wording(
        "optimizer state was created",
        "let the first step create the state during warm-up",
        "two compiles are normal for a compiled optimizer",
    )


RULES: tuple[Rule, ...] = (RecompileRule("CD116", _state),)
