"""The rest of torch that we touch: settings, loaders, backwards, saves, devices, module hooks."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from compilediag_harness.torch_internals.dynamo_skip import leave_out_this_frame
from compilediag_harness.torch_internals.torch_names import loaded, lookup


def config_flag(name: str) -> Any:
    """A flag of `torch._dynamo.config` in force now; None while Dynamo is not imported."""
    return getattr(loaded("torch._dynamo.config"), name, None)


def without_torch_function() -> Callable[[], AbstractContextManager[Any]]:
    """Makes blocks in which no `__torch_function__` runs, neither that of subclasses nor of modes.
    torch must be imported."""
    return getattr(loaded("torch._C"), "DisableTorchFunction", nullcontext)


def mark_fixed(tensor: Any, *, address: bool) -> bool:
    """Makes Dynamo compile for exactly the sizes of `tensor`, whatever sizes it has seen, and with
    `address` take it to stay where it is. False while Dynamo is not imported: nothing is compiled
    then."""
    decorators = loaded("torch._dynamo.decorators")
    if decorators is None or tensor.dim() == 0:
        return decorators is not None
    decorators.mark_static(tensor)
    if address:
        decorators.mark_static_address(tensor, guard=False)
    return True


_MARKS = ("mark_dynamic", "maybe_mark_dynamic", "mark_unbacked")


def mark_dimension(action: str, tensor: Any, dimension: int) -> str | None:
    """Marks a dimension of a tensor by one of Dynamo's functions for that; why it cannot be."""
    mark = getattr(loaded("torch._dynamo.decorators"), action, None) if action in _MARKS else None
    if mark is None:
        return f"this torch has no {action}"
    mark(tensor, dimension)
    return None


def original_of(function: Any) -> Any:
    """What a compiled callable was made from; the callable itself where it is none."""
    # An OptimizedModule keeps its module as the submodule `_orig_mod`; a wrapped function has it as
    # an attribute.
    inside = getattr(function, "__dict__", {})
    modules = inside.get("_modules")
    if isinstance(modules, dict) and "_orig_mod" in modules:
        return cast(dict[str, Any], modules)["_orig_mod"]
    return inside.get("_torchdynamo_orig_callable", function)


def loader_iterator(torch_module: Any) -> Any:
    """The class whose `__next__` gives a DataLoader's batches. Raises AttributeError if gone."""
    return torch_module.utils.data.dataloader._BaseDataLoaderIter


MAX_DEVICES = 64


def device_memory() -> dict[int, dict[str, Any]]:
    """The statistics of each CUDA device's allocator that was used, nested as torch gives them;
    empty while the program has not initialised CUDA, which this never does. Waits for no device."""
    cuda = loaded("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return {}
    read = {
        device: cuda.memory_stats_as_nested_dict(device)
        for device in range(min(cuda.device_count(), MAX_DEVICES))
    }
    return {
        device: stats
        for device, stats in read.items()
        if stats.get("reserved_bytes", {}).get("all", {}).get("peak")
    }


def profiler_enabled() -> bool:
    """Whether a profiler runs in this thread already; False where that is not known."""
    enabled = lookup(loaded("torch._C"), "_autograd._profiler_enabled")
    return bool(enabled()) if enabled is not None else False


DISTRIBUTED_SAVER = "torch.distributed.checkpoint.state_dict_saver"


def around_backward(torch_module: Any, begin: Callable[[], Any], end: Callable[[Any], None]) -> Any:
    """Calls `begin()`, and `end` with what it returned, around each run of the autograd engine that
    Python starts (`backward`, `torch.autograd.grad`), for ever. Returns the function that was put
    in place, for Dynamo to be kept away from; None where it cannot be."""
    graph = loaded("torch.autograd.graph")
    original = getattr(graph, "_engine_run_backward", None)
    if graph is None or original is None:
        return None

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        begun = begin()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            leave_out_this_frame(error)
            raise
        finally:
            end(begun)

    # `torch.autograd` imports the function for `grad`, `graph` has it for `Tensor.backward`.
    for owner in (graph, torch_module.autograd):
        if getattr(owner, "_engine_run_backward", None) is original:
            owner._engine_run_backward = run
    return run


def around_saves(
    module: str, names: Iterable[str], around: Callable[[], AbstractContextManager[Any]]
) -> list[Any]:
    """Enters `around()` for each call of the functions `names` of a module that is imported, for
    ever. Returns what was put in place, for Dynamo to be kept away from."""
    owner = loaded(module)
    made: list[Any] = []
    for name in names:
        original = getattr(owner, name, None)
        if isinstance(original, types.FunctionType) and not hasattr(original, "_compilediag"):
            made.append(_saving(original, around))
            setattr(owner, name, made[-1])
    return made


def _saving(original: types.FunctionType, around: Callable[[], AbstractContextManager[Any]]) -> Any:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        with around():
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                leave_out_this_frame(error)
                raise

    save._compilediag = True  # type: ignore[attr-defined]
    return save


def is_plain_data(torch_module: Any, tensor: Any) -> bool:
    """Whether the elements of a tensor can be read now by torch's own kernels alone: it is strided,
    is none of a tracer's or transform's, no graph is being captured, and no mode or subclass of the
    program's would see the operations."""
    native = torch_module._C
    count = getattr(native, "_len_torch_dispatch_stack", None)
    wrapped = lookup(native, "_functorch.is_functorch_wrapped_tensor")
    return (
        getattr(type(tensor), "__torch_dispatch__", None)  # pyright: ignore[reportUnknownArgumentType]
        is torch_module.Tensor.__torch_dispatch__
        and (count is None or count() == 0)
        and (wrapped is None or not wrapped(tensor))
        and tensor.layout is torch_module.strided
        and not (tensor.is_meta or tensor.is_nested or tensor.is_quantized)
        and not (tensor.is_cuda and torch_module.cuda.is_current_stream_capturing())
    )


def cuda_in_use(torch_module: Any) -> bool:
    """Whether this process uses CUDA and captures no graph now. Initialises nothing."""
    cuda = getattr(torch_module, "cuda", None)
    try:
        return bool(cuda.is_initialized() and not cuda.is_current_stream_capturing())  # type: ignore[union-attr]
    except Exception:
        return False


def global_forward_hooks() -> tuple[int, int]:
    """How many global module forward hooks and pre-hooks are registered."""
    module = loaded("torch.nn.modules.module")
    names = ("_global_forward_hooks", "_global_forward_pre_hooks")
    forward, before = (len(getattr(module, name, ())) for name in names)
    return forward, before


def module_hooks(module: Any) -> tuple[int, int]:
    """How many forward hooks and pre-hooks one module has."""
    names = ("_forward_hooks", "_forward_pre_hooks")
    forward, before = (len(getattr(module, name, ())) for name in names)
    return forward, before


_HOOK_REGISTRIES = (
    ("forward_hook", "_forward_hooks"),
    ("forward_pre_hook", "_forward_pre_hooks"),
    ("backward_hook", "_backward_hooks"),
    ("backward_pre_hook", "_backward_pre_hooks"),
    ("accumulate_grad_hook", "_post_accumulate_grad_hooks"),
)


def hook_registries(owner: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Kind and hooks of each table of hooks that a module or a tensor has. The hooks a tensor keeps
    under a module's name are its own: they are called with its gradient."""
    is_module = hasattr(owner, "_forward_hooks")
    for kind, name in _HOOK_REGISTRIES:
        registry = getattr(owner, name, None)
        if isinstance(registry, dict) and registry:
            of_tensor = name == "_backward_hooks" and not is_module
            yield "tensor_hook" if of_tensor else kind, registry  # pyright: ignore[reportUnknownVariableType]


def is_disabled(function: Any) -> bool:
    """Whether a function is behind `torch.compiler.disable`."""
    return bool(getattr(function, "_torchdynamo_disable", False))
