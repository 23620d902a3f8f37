"""Facts of a run that change its numbers or its speed: machine, versions, flags.

Reads only: nothing is initialised (no CUDA context, no `torch._dynamo`), nothing is imported that
the program has not imported, nothing warns. What cannot be read is null.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable
from typing import Any

from compilediag_harness.torch_internals import torch_calls, torch_names
from compilediag_harness.wire import clip

Facts = dict[str, Any]

VARIABLES = (
    *("CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "KMP_AFFINITY"),
    *("LOCAL_RANK", "MKL_NUM_THREADS", "NODE_RANK", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS"),
    *("PYTHONHASHSEED", "RANK", "WORLD_SIZE"),
)
"""Environment variables that are recorded, with those that begin with a `VARIABLE_PREFIXES`."""

VARIABLE_PREFIXES = ("AOT_", "INDUCTOR_", "NCCL_", "PYTORCH_", "TORCH", "TRITON_")

NAME_LIMIT, VALUE_LIMIT, VARIABLE_LIMIT = 128, 512, 128
"""Longest name and value in characters, and how many variables are recorded."""


def read(torch_module: Any) -> Facts:
    """Read the facts of this process, as plain JSON values.

    `hooks_available` and tool versions are not here: they belong to the other half.
    """
    readers: dict[str, Callable[[], Any]] = {
        "os": lambda: f"{platform.system()} {platform.release()}",
        "machine": platform.machine,
        "python": platform.python_version,
        "python_implementation": platform.python_implementation,
        "torch": lambda: str(torch_module.__version__),
        "torch_git": lambda: _clip_text(torch_module.version.git_version),
        "triton": _read_triton_version,
        "cuda": lambda: _clip_text(torch_module.version.cuda),
        "hip": lambda: _clip_text(torch_module.version.hip),
        "driver": _read_driver_version,
        "cpu_model": _read_cpu_model,
        "cpu_count": os.cpu_count,
        "cpus_allowed": lambda: len(os.sched_getaffinity(0)),
        "ram_bytes": lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "load_avg_1m": lambda: os.getloadavg()[0],
        "gpus": lambda: _list_gpus(torch_module),
        "precision": lambda: _read_precision(torch_module),
        "numerics_flags": lambda: _read_numerics(torch_module),
        "compile": _read_compile_flags,
        "rank": lambda: _read_count("RANK"),
        "world_size": lambda: _read_count("WORLD_SIZE"),
        "env": _read_variables,
    }
    # torch warns of some flags when they are read; the program's own warning filters stay.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: _read_quietly(reader) for name, reader in readers.items()}


def _read_quietly(reader: Callable[[], Any]) -> Any:
    try:
        return reader()
    except Exception:  # a fact that is not known on this machine or of this torch
        return None


def _clip_text(value: Any) -> str | None:
    return None if value is None else clip(str(value), VALUE_LIMIT)


def _read_count(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def _read_labelled_line(path: str, label: str) -> str | None:
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if colon and name.strip() == label:
                return _clip_text(value.strip())
    return None


def _read_cpu_model() -> str | None:
    """Read it from Linux's /proc/cpuinfo; elsewhere what `platform` knows without a subprocess."""
    try:
        model = _read_labelled_line("/proc/cpuinfo", "model name")
    except OSError:
        model = None
    return model or platform.processor() or None


def _read_driver_version() -> str | None:
    """Read that of the NVIDIA kernel module: "NVRM version: ... Module  550.54.15  ..."."""
    with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as lines:
        words = lines.readline().split()
    numbered = [word for word in words if word[:1].isdigit() and "." in word]
    return numbered[0] if numbered else None


def _list_gpus(torch_module: Any) -> list[Facts]:
    """Ask torch once the program has initialised CUDA itself, else list the names of the driver."""
    cuda = torch_module.cuda
    if cuda.is_initialized():
        return [
            {
                "index": index,
                "name": _clip_text(properties.name),
                "memory_bytes": int(properties.total_memory),
                "capability": f"{properties.major}.{properties.minor}",
                "multiprocessors": int(properties.multi_processor_count),
            }
            for index in range(cuda.device_count())
            for properties in (cuda.get_device_properties(index),)
        ]
    folder = "/proc/driver/nvidia/gpus"
    if not os.path.isdir(folder):
        return []
    buses = sorted(os.listdir(folder))
    names = (_read_labelled_line(f"{folder}/{bus}/information", "Model") for bus in buses)
    return [{"index": None, "name": name} for name in names]


def _read_triton_version() -> str | None:
    """Read that of the imported module, else of the installed distribution."""
    module = torch_names.get_imported("triton")
    if module is not None:
        return _clip_text(getattr(module, "__version__", None))
    from importlib import metadata

    for name in ("triton", "pytorch-triton"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _read_numerics(torch_module: Any) -> Facts:
    """Flags that change results or speed, as they stand now."""
    backends = torch_module.backends
    readers: dict[str, Callable[[], Any]] = {
        "matmul_precision": torch_module.get_float32_matmul_precision,
        "allow_tf32_matmul": lambda: bool(backends.cuda.matmul.allow_tf32),
        "allow_tf32_cudnn": lambda: bool(backends.cudnn.allow_tf32),
        "cudnn_benchmark": lambda: bool(backends.cudnn.benchmark),
        "cudnn_deterministic": lambda: bool(backends.cudnn.deterministic),
        "deterministic": lambda: bool(torch_module.are_deterministic_algorithms_enabled()),
        "default_dtype": lambda: str(torch_module.get_default_dtype()),
        "num_threads": torch_module.get_num_threads,
        "num_interop_threads": torch_module.get_num_interop_threads,
        "autocast_cpu": lambda: _read_autocast(torch_module, "cpu"),
        "autocast_cuda": lambda: _read_autocast(torch_module, "cuda"),
        "grad": torch_module.is_grad_enabled,
    }
    return {name: _read_quietly(reader) for name, reader in readers.items()}


_PRECISIONS = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


def _read_precision(torch_module: Any) -> str:
    """Short name of the default dtype; autocast, which holds for a block only, is not in it."""
    name = str(torch_module.get_default_dtype()).removeprefix("torch.")
    return _PRECISIONS.get(name, name)


def _read_autocast(torch_module: Any, device: str) -> str | None:
    """Get the autocast dtype in force in this thread, None when autocast is off."""
    if not torch_module.is_autocast_enabled(device):
        return None
    return str(torch_module.get_autocast_dtype(device))


_DYNAMO_FLAGS = (
    *("accumulated_recompile_limit", "assume_static_by_default", "automatic_dynamic_shapes"),
    *("capture_scalar_outputs", "compiled_autograd", "disable", "error_on_recompile"),
    *("fail_on_recompile_limit_hit", "guard_nn_modules", "inline_inbuilt_nn_modules"),
    *("recompile_limit", "skip_nnmodule_hook_guards", "suppress_errors"),
)


def _read_compile_flags() -> Facts:
    """Flags of torch.compile. Those of Dynamo's config are null until the program loads Dynamo."""
    environ, config = os.environ, torch_names.get_imported("torch._dynamo.config")
    flags = {name: getattr(config, name, None) for name in _DYNAMO_FLAGS}
    switches = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
    return {
        **{n: v if isinstance(v, (bool, int, float)) else _clip_text(v) for n, v in flags.items()},
        "dynamo_loaded": torch_names.get_imported(torch_names.DYNAMO) is not None,
        "disabled_by_environment": any(environ.get(name) == "1" for name in switches),
        "job_id": _clip_text(environ.get("TORCH_COMPILE_JOB_ID")),
        "local_profile": _clip_text(environ.get("TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO")),
        "stance": _clip_text(torch_calls.get_stance()),
    }


def _read_variables() -> dict[str, str]:
    """Read the variables that are recorded. They may hold secrets: writing redacts them."""
    prefixes = VARIABLE_PREFIXES
    chosen = sorted(name for name in os.environ if name in VARIABLES or name.startswith(prefixes))
    recorded = chosen[:VARIABLE_LIMIT]
    return {clip(name, NAME_LIMIT): clip(os.environ[name], VALUE_LIMIT) for name in recorded}
