"""The program's hooks on its compiled modules: which there are, and which of them can be timed.

They are read, never wrapped: a compiled frame is guarded on the hook objects themselves. Looked at
once, when the process ends, for at most 50 ms.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from compilediag_harness.source import source_locations
from compilediag_harness.steps.disabled_calls import code_of
from compilediag_harness.torch_internals import torch_api
from compilediag_harness.wire import HooksFound, Location

_BUDGET_S = 0.05
"""CPU seconds, so that what is found does not depend on the load."""
_MAX_HOOKS = 512


class _Found(NamedTuple):
    kind: str
    target: str
    function: Location
    disabled: bool


def look(roots: Iterable[Any], now: float) -> HooksFound | None:
    """The hooks on compiled modules and their parameters; None where there is none."""
    deadline = time.thread_time() + _BUDGET_S
    found: dict[_Found, None] = {}
    seen: set[int] = set()
    # A part of a compiled module may have been compiled by itself: it is listed under the whole.
    for root in sorted(roots, key=lambda module: -sum(1 for _ in module.modules())):
        for path, owner in _owners(root):
            if id(owner) in seen:
                continue
            seen.add(id(owner))
            if time.thread_time() > deadline or len(found) >= _MAX_HOOKS:
                break
            for kind, registry in torch_api.hook_registries(owner):
                found.update(dict.fromkeys(_of(kind, path, registry)))
    if not found:
        return None
    kinds, targets, functions, disabled = zip(*found, strict=True)
    return HooksFound(now, kinds, targets, functions, disabled)


def _owners(root: Any) -> Iterator[tuple[str, Any]]:
    name = type(root).__name__
    for path, module in root.named_modules():
        yield path or name, module
    for path, parameter in root.named_parameters():
        yield path, parameter


def _of(kind: str, path: str, registry: Mapping[Any, Any]) -> Iterator[_Found]:
    for hook in list(registry.values()):
        code = code_of(hook)
        if code is not None and not source_locations.is_library(code.co_filename):
            yield _Found(
                kind, path, source_locations.definition_of(code), torch_api.is_disabled(hook)
            )
