"""Buffers and cached tensors that grow inside the compiled region (CD103)."""

from __future__ import annotations

from compilediag.diagnosis.causes.of_run import Group
from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording


def _lazy_buffer(group: Group) -> Wording:
    titles = {"created": "lazily created buffer", "companion": "lazily filled cache"}
    if group.kind == "companion":
        fix = (
            f"fill the cache that {group.name} belongs to once at its largest size, in __init__ "
            "or by one eager call before compiling"
        )
    else:
        fix = f"allocate {group.name} at its largest size in __init__ and slice it"
    return Wording(
        titles.get(group.kind or "", "lazily grown buffer"),
        fix,
        "when the input length varies too, one recompile for that size remains (CD105)",
    )


RULES: tuple[Rule, ...] = (RecompileRule("CD103", _lazy_buffer),)
