"""How often each thread began to compile, or to record a CUDA graph: for calls that should not."""

from __future__ import annotations

import threading
from typing import Any

from compilediag_harness.torch_internals import torch_compiles

_begun: dict[int, list[str]] = {}
"""What began, by thread, in order."""

_handler: Any = None
"""Torch's, once Dynamo is imported."""

_mine: object = None
"""What it calls for us."""


def _started(trigger: str, compile_id: str) -> None:
    _begun.setdefault(threading.get_ident(), []).append(f"{trigger} {compile_id}".strip())


def listen() -> bool:
    """Starts counting, or starts again where `torch._dynamo.reset()` removed us. False where Dynamo
    is not imported, or has no such callback."""
    global _handler, _mine
    if _handler is not None and _mine in _handler.start_callbacks:
        return True
    _handler = torch_compiles.compile_callbacks()
    if _handler is None or torch_compiles.on_compile_start(_started) is None:
        return False
    _mine = _handler.start_callbacks[-1]
    return True


def begun() -> int:
    """What has begun in this thread so far."""
    return len(_begun.get(threading.get_ident(), ()))


def since(count: int) -> tuple[str, ...]:
    """What has begun in this thread since `begun` gave `count`: "DYNAMO 0/1"."""
    return tuple(_begun.get(threading.get_ident(), ())[count:])
