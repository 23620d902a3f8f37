"""Sizes of tensor arguments, and dynamic sizes that left their region (CD105, CD118)."""

from __future__ import annotations

import re

from compilediag.findings import Rule
from compilediag.rules.recompiles import Group, Wording, recompile_rule


def _size(group: Group) -> Wording:
    if group.kind == "marking":
        return Wording(
            "dimension marked after the first call",
            f"mark {group.name} before the first compiled call",
        )
    dimension = _dimension(group)
    return Wording(
        "tensor argument of another size",
        f"call torch._dynamo.mark_dynamic({group.variable or 'x'}, {dimension}) before the first "
        "call; or pad to a fixed size (drop_last=True for a last batch)",
        "dynamic graphs may run slower; CUDA graphs need the padding",
    )


def _dimension(group: Group) -> str:
    """The dimension that torch named, else the first one that differs between the two sizes."""
    told = re.search(r"at index (\d+)", group.first.guard)
    if told is not None:
        return told[1]
    before = re.findall(r"[\d*]+", group.first.expected or "")
    after = re.findall(r"[\d*]+", group.first.actual or "")
    if len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            if old not in (new, "*"):
                return str(index)
    return "dim"


def _constraint(group: Group) -> Wording:
    name = group.variable or "x"
    words = {
        "zero_one": Wording(
            "size 0 or 1 reached a dynamic graph",
            f"pad {group.name} to at least 2, or call "
            f"torch._dynamo.decorators.mark_unbacked({name}, dim) before the first call",
            "mark_unbacked may raise where the code branches on the size",
        ),
        "divisibility": Wording(
            "dynamic size is no multiple any more", f"pad {group.name} to the multiple"
        ),
        "duck_equal": Wording(
            "sizes that were equal by accident differ",
            "make the sizes unequal in the first call, or set "
            "torch.fx.experimental._config.use_duck_shape = False",
        ),
        "equal": Wording(
            "sizes that the graph needs equal differ",
            f"pass inputs whose sizes are equal, or expand {group.name} before the compiled call",
        ),
    }
    return words.get(
        group.kind or "",
        Wording(
            "dynamic size left its range",
            f"warm up one size on each side of the bound that {group.function} sets on "
            f"{group.name}, or remove the branch on the size",
            "one graph per range",
        ),
    )


RULES: tuple[Rule, ...] = (
    recompile_rule("CD105", _size),
    recompile_rule("CD118", _constraint),
)
