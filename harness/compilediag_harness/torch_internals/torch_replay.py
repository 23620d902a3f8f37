"""Calls of compiled callables made again: torch's wrapper around one, the modes that it was called
in, and settings under which nothing is cached, logged or left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from compilediag_harness.torch_internals import torch_calls
from compilediag_harness.torch_internals.torch_names import get_imported, lookup
from compilediag_harness.torch_internals.torch_open_calls import this_thread

_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps")


class CallModes(NamedTuple):
    """Modes of torch that a call is made in."""

    gradients: bool
    inference: bool
    autocast: tuple[tuple[str, Any], ...]
    """Types of devices on which it is on, with the dtype."""
    device: Any
    """The default device; None where none is set."""


def read_modes(torch: Any) -> CallModes:
    """Read the modes of this thread."""
    enabled = (kind for kind in _DEVICE_TYPES if torch.is_autocast_enabled(kind))
    autocast = tuple((kind, torch.get_autocast_dtype(kind)) for kind in enabled)
    device = lookup(torch, "_GLOBAL_DEVICE_CONTEXT.device_context.device")
    return CallModes(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, device)


@contextlib.contextmanager
def enter_modes(torch: Any, modes: CallModes) -> Generator[None]:
    """Enter the modes of a call for a block."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(modes.inference))
        stack.enter_context(torch.set_grad_enabled(modes.gradients))
        for kind, dtype in modes.autocast:
            stack.enter_context(torch.autocast(kind, dtype=dtype))
        if modes.device is not None:
            stack.enter_context(modes.device)
        yield


def make_wrapper_getter() -> Callable[[], Any]:
    """Make a function that returns torch's wrapper around the compiled callable whose call begins
    in this thread: called, it runs the callable compiled. For a listener, while the call begins."""
    # The wrapper is a closure, and no frame refers to its function: another one is made of its
    # code and its variables (`_TorchDynamoContext.__call__` in eval_frame.py assigns to none).
    call = this_thread.open[-1]
    code, scope, names = call.frame.f_code, call.frame.f_globals, call.names or {}
    free = {name: names[name] for name in code.co_freevars if name in names}

    def get_wrapper() -> Any:
        cells = [
            types.CellType(free[n]) if n in free else types.CellType() for n in code.co_freevars
        ]
        return types.FunctionType(code, scope, code.co_name, None, tuple(cells))

    return get_wrapper


def is_pool_in_use() -> bool:
    """True if CUDA graphs of torch's own may hold the memory of what a program passes: a reference
    to it would change which graphs it records."""
    trees = get_imported("torch._inductor.cudagraph_trees")
    managers: Any = getattr(getattr(trees, "local", None), "tree_manager_containers", None)
    return bool(managers)


@contextlib.contextmanager
def force_backend(torch: Any, name: str) -> Generator[None]:
    """Force a backend in a block, unless the program has set a stance."""
    if torch_calls.get_stance() not in (None, "default"):
        yield
        return
    with torch.compiler.set_stance("default", force_backend=name):
        yield


_VARIABLES = {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "TORCH_COMPILE_DEBUG": "0",
}
"""Read by what is imported later."""

_FOLDERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")

_OPTIONS: tuple[tuple[str, str, Any], ...] = (
    ("torch._inductor.config", "compile_threads", 1),
    ("torch._inductor.config", "force_disable_caches", True),
    ("torch._functorch.config", "enable_autograd_cache", False),
    ("torch._dynamo.config", "automatic_dynamic_local_pgo", False),
    ("torch._dynamo.config", "automatic_dynamic_remote_pgo", False),
    ("torch._dynamo.config", "recompile_limit", 512),
    ("torch._dynamo.config", "accumulated_recompile_limit", 4096),
)
"""The limits are raised so that what compiles again does not depend on what was tried before."""


@contextlib.contextmanager
def isolate_compiles(folder: str) -> Generator[None]:
    """Isolate what is compiled in a block: caches lie in this folder, and nothing is logged. In
    this thread alone; torch's options belong to a thread from 2.12 on."""
    disabled = logging.root.manager.disable
    variables = {**_VARIABLES, **dict.fromkeys(_FOLDERS, folder)}
    before = {name: os.environ.get(name) for name in variables}
    options = list(_iterate_options())
    try:
        logging.disable(logging.CRITICAL)  # torch's trace and the program's own files, too
        os.environ.update(variables)
        for config, name, value, _ in options:
            setattr(config, name, value)
        yield
    finally:
        for config, name, _, old in options:
            setattr(config, name, old)
        for name, old in before.items():
            os.environ.pop(name) if old is None else os.environ.update({name: old})
        logging.disable(disabled)


def _iterate_options() -> Iterator[tuple[Any, str, Any, Any]]:
    """Iterate over (config, name, value, value now) of the options that this torch has."""
    for module, name, value in _OPTIONS:
        config = get_imported(module)
        if config is not None and hasattr(config, name):
            yield config, name, value, getattr(config, name)
