"""Recompiles whose reason no rule knows: the raw text is shown (CD190)."""

from __future__ import annotations

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording


def _unclassified(group: Group) -> Wording:
    if not group.first.guard:
        return Wording(
            "recompile without a reason",
            "could not determine: torch gave no reason; try TORCH_LOGS=recompiles_verbose",
        )
    return Wording(
        f"recompile of unknown cause: {group.first.guard}",
        "could not determine the cause; the guard is shown as torch prints it",
    )


RULES: tuple[Rule, ...] = (RecompileRule("CD190", _unclassified),)
