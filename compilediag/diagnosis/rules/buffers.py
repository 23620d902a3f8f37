"""Buffers and cached tensors that grow inside the compiled region (CD103)."""

from __future__ import annotations

from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording

_GROWN = Wording(
    "lazily grown buffer",
    "allocate {name} at its largest size in __init__ and slice it",
    "when the input length varies too, one recompile for that size remains (CD105)",
)
_FILLED = _GROWN._replace(
    title="lazily filled cache",
    fix="fill the cache that {name} belongs to once at its largest size, in __init__ or by one "
    "eager call before compiling",
)

RULES: tuple[Rule, ...] = (
    RecompileRule(
        "CD103",
        {
            "created": _GROWN._replace(title="lazily created buffer"),
            "companion": _FILLED,
            None: _GROWN,
        },
    ),
)
