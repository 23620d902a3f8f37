"""Recompiles whose reason fits no rule: the raw text is shown (CD190)."""

from __future__ import annotations

from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import CauseGroup, RecompileRule, Wording

_NO_REASON = Wording(
    "recompile without a reason",
    "could not determine: torch gave no reason; try TORCH_LOGS=recompiles_verbose",
)
_UNKNOWN = Wording(
    "recompile of unknown cause: {guard}",
    "could not determine the cause; the guard is shown as torch prints it",
)


def _is_named(group: CauseGroup) -> str | None:
    return "guard" if group.first.guard else None


RULES: tuple[Rule, ...] = (
    RecompileRule("CD190", {"guard": _UNKNOWN, None: _NO_REASON}, _is_named),
)
