"""Python attributes of objects and modules, and instances that differ in them (CD104, CD117)."""

from __future__ import annotations

from compilediag.diagnosis.findings import Rule
from compilediag.diagnosis.rules.recompiles import RecompileRule, Wording, Wordings

_CONTAINER = Wording(
    "attribute container",
    "replace {name} by a preallocated tensor with a 0-dim counter, or change it outside of the "
    "compiled region",
)
_ATTRIBUTE: Wordings = {
    "attribute_set": Wording(
        "attribute added or removed",
        "set {name} in __init__, before the first call, and keep it",
    ),
    **dict.fromkeys(("length", "members", "keys", "missing"), _CONTAINER),
    "type": Wording(
        "attribute of another type",
        "keep the type of {name}: build one model per variant before compiling",
        "one compile per variant",
    ),
    "number": Wording(
        "module attribute",
        "make {name} a 0-dim buffer and change it in place (add_, fill_), or do not touch it in "
        "{function}",
        "the buffer is in state_dict unless persistent=False",
    ),
    None: Wording(
        "module attribute",
        "decide on {name} outside of the compiled region, or build one variant per value before "
        "compiling",
        "one compile per variant",
    ),
}


_INSTANCE = Wording(
    "instances share code and differ",
    "compile the container of the instances once",
    "raise recompile_limit only as a last resort: each instance costs a compile",
)
_INSTANCES: Wordings = {
    "number": _INSTANCE._replace(fix=f"{_INSTANCE.fix}, or make {{name}} a 0-dim buffer"),
    None: _INSTANCE,
}


RULES: tuple[Rule, ...] = (
    RecompileRule("CD104", _ATTRIBUTE),
    RecompileRule("CD117", _INSTANCES),
)
