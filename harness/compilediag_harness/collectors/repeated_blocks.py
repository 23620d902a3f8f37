"""Equal blocks of the module whose code was compiled: layers that could share one compile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from compilediag_harness.torch_internals.torch_names import loaded
from compilediag_harness.wire import RepeatedBlocks

FEWEST = 4
"""Fewer blocks save too little to be worth another way of compiling."""

WORTH_S = 1.0
"""Modules are looked at for compiles that took longer: counting takes a thousandth of that."""

MAX_MODULES = 20_000

MAX_VALUES = 200


def repeated_blocks(values: Mapping[str, Any]) -> RepeatedBlocks | None:
    """The largest group of siblings of one class, with the same parts and the same shapes of
    parameters and buffers, below a module among the local variables of what was compiled. Plain
    layers, which have no parts, are no blocks. None where no group has `FEWEST`.

    Args:
        values: local variables of the frame, by name.
    """
    module_type = getattr(loaded("torch.nn"), "Module", None)
    if module_type is None:
        return None
    found: list[RepeatedBlocks] = []
    for name, value in list(values.items())[:MAX_VALUES]:
        if isinstance(value, module_type):
            found += _groups(name, value)
    return max(found, key=lambda each: each.modules, default=None)


def _groups(name: str, root: Any) -> Iterable[RepeatedBlocks]:
    modules = list(root.named_modules())
    if len(modules) > MAX_MODULES:
        return
    for path, module in modules:
        children = [child for child in module.children() if any(True for _ in child.children())]
        if len(children) < FEWEST:
            continue
        kinds = Counter(map(_kind, children))
        kind, count = kinds.most_common(1)[0]
        if count >= FEWEST:
            one = next(child for child in children if _kind(child) == kind)
            parts = count * sum(1 for _ in one.modules())
            where = f"{name}.{path}" if path else name
            yield RepeatedBlocks(where, type(one).__name__, count, parts)


def _kind(module: Any) -> Hashable:
    named: list[tuple[str, object]] = list(module.named_modules())
    parts = tuple((name, type(part)) for name, part in named)
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return parts, tuple((name, tuple(each.shape), each.dtype) for name, each in tensors)
