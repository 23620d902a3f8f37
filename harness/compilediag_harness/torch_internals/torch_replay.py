"""Calls of compiled callables made again: torch's wrapper around one, the modes that it was called
in, and settings under which nothing is cached, logged or left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import types
import warnings
from collections.abc import Generator
from typing import Any, NamedTuple

from compilediag_harness.base.object_graph import get_dict
from compilediag_harness.torch_internals import torch_calls
from compilediag_harness.torch_internals.torch_names import UTILS, get_imported

_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps")


class CallModes(NamedTuple):
    """Modes of torch that a call is made in."""

    gradients: bool = True
    inference: bool = False
    autocast: tuple[tuple[str, Any], ...] = ()
    """Types of devices on which it is on, with the dtype."""


def read_modes(torch: Any) -> CallModes:
    """Read the modes of this thread."""
    enabled = (kind for kind in _DEVICE_TYPES if torch.is_autocast_enabled(kind))
    autocast = tuple((kind, torch.get_autocast_dtype(kind)) for kind in enabled)
    return CallModes(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast)


@contextlib.contextmanager
def enter_modes(torch: Any, modes: CallModes) -> Generator[None]:
    """Enter the modes of a call for a block."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(modes.inference))
        stack.enter_context(torch.set_grad_enabled(modes.gradients))
        for kind, dtype in modes.autocast:
            stack.enter_context(torch.autocast(kind, dtype=dtype))
        yield


def make_function(frame: types.FrameType) -> Any:
    """Make a function of the code and the captured variables of a call that begins. Of torch's
    wrapper around a compiled callable it is one that runs the callable compiled."""
    # No frame refers to its function. The wrapper's code assigns to none of its captured variables
    # (`_TorchDynamoContext.__call__` in eval_frame.py).
    code, names = frame.f_code, frame.f_locals
    cells = [
        types.CellType(names[name]) if name in names else types.CellType()
        for name in code.co_freevars
    ]
    return types.FunctionType(code, frame.f_globals, code.co_name, None, tuple(cells))


_DECLARED = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices")


def list_declared_dimensions(tensor: Any) -> list[int]:
    """List the dimensions of a tensor that the program has marked as dynamic."""
    return sorted({dim for name in _DECLARED for dim in getattr(tensor, name, ())})


def copy_marks(tensor: Any, other: Any) -> Any:
    """Copy what the program has declared of a tensor for Dynamo to another one; returns that."""
    for name, mark in get_dict(tensor).items():
        if "_dynamo" in name:
            setattr(other, name, mark)
    return other


def read_compile_seconds() -> float:
    """Read the seconds that this process has spent compiling; 0 where torch does not say."""
    calculate: Any = getattr(get_imported(UTILS), "calculate_time_spent", dict)
    return float(calculate().get("total_wall_time", 0.0))


def copy_to_host(torch: Any, tensor: Any) -> Any:
    """Begin to copy a tensor to memory of the host; nothing is waited for. A reference would keep
    memory that the program gives up, and move what it allocates next: CUDA graphs are recorded
    again where addresses change."""
    with torch.no_grad():
        copy = torch.empty_like(tensor, device="cpu", pin_memory=True, requires_grad=False)
        copy.copy_(tensor, non_blocking=True)
    return copy_marks(tensor, copy.requires_grad_(tensor.requires_grad))


def copy_to_device(copy: Any, device: Any) -> Any:
    """Copy a tensor to a device, as a new leaf of autograd."""
    moved = copy.detach().to(device, copy=True)
    return copy_marks(copy, moved.requires_grad_(copy.requires_grad))


def is_overwritten(error: RuntimeError) -> bool:
    """True for what torch raises where a result of a CUDA graph is read that has run since."""
    return "overwritten by a subsequent run" in str(error)


@contextlib.contextmanager
def skip_overwritten() -> Generator[None]:
    """Skip the rest of a block where it reads what a CUDA graph has overwritten."""
    try:
        yield
    except RuntimeError as error:
        if not is_overwritten(error):
            raise


def find_device_problem(torch: Any) -> str | None:
    """Find why the device of this process can be used no more; None where it can. Waits for it."""
    try:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return None


@contextlib.contextmanager
def force_backend(torch: Any, name: str) -> Generator[None]:
    """Force a backend in a block, unless the program has set a stance."""
    if torch_calls.get_stance() not in (None, "default"):
        yield
        return
    with torch.compiler.set_stance("default", force_backend=name):
        yield


_FOLDERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")

_OPTIONS: dict[str, dict[str, Any]] = {
    "torch._inductor.config": {
        "compile_threads": 1,
        "force_disable_caches": True,
        "trace.enabled": False,
    },
    "torch._functorch.config": {"enable_autograd_cache": False},
    "torch._dynamo.config": {
        "automatic_dynamic_local_pgo": False,
        "automatic_dynamic_remote_pgo": False,
        "recompile_limit": 512,
        "accumulated_recompile_limit": 4096,
    },
}
"""The limits are raised so that what compiles again does not depend on what was tried before."""


@contextlib.contextmanager
def isolate_compiles(folder: str) -> Generator[None]:
    """Isolate what is compiled in a block: caches lie in this folder, and nothing is logged. In
    this thread alone; torch's options belong to a thread from 2.12 on."""
    disabled = logging.root.manager.disable
    before = {name: os.environ.get(name) for name in _FOLDERS}
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # torch 2.11 warns of these settings
        for module, options in _OPTIONS.items():
            config = get_imported(module)
            known = {name: value for name, value in options.items() if hasattr(config, name)}
            if config is not None:
                stack.enter_context(config.patch(known))
        try:
            logging.disable(logging.CRITICAL)  # torch's trace and the program's own files, too
            os.environ.update(dict.fromkeys(_FOLDERS, folder))
            yield
        finally:
            for name, old in before.items():
                os.environ.pop(name) if old is None else os.environ.update({name: old})
            logging.disable(disabled)
