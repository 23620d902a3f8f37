"""How often each thread began to compile, or to record a CUDA graph: for calls that should not."""

from __future__ import annotations

import threading

from compilediag_harness.torch_internals import torch_compiles

_begun: dict[int, list[str]] = {}
"""What began, by thread, in order."""

_listening = False


def _started(trigger: str, compile_id: str) -> None:
    _begun.setdefault(threading.get_ident(), []).append(f"{trigger} {compile_id}".strip())


def listen() -> bool:
    """Starts counting. False where Dynamo is not imported, or does not say when it compiles."""
    global _listening
    _listening = _listening or torch_compiles.on_compile_start(_started) is not None
    return _listening


def begun() -> int:
    """What has begun in this thread so far."""
    return len(_begun.get(threading.get_ident(), ()))


def since(count: int) -> tuple[str, ...]:
    """What has begun in this thread since `begun` gave `count`: "DYNAMO 0/1"."""
    return tuple(_begun.get(threading.get_ident(), ())[count:])
