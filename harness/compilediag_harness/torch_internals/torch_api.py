"""torch outside Dynamo: autograd engine, optimizers, data loaders, saves, devices, module hooks."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

from compilediag_harness.base.dropped_call import DroppedCall
from compilediag_harness.base.hidden_frame import hide_own_frame
from compilediag_harness.base.signal_handlers import is_raised_by_handler
from compilediag_harness.torch_internals.dynamo_skip import make_stand_in
from compilediag_harness.torch_internals.torch_names import get_imported, lookup


def get_torch_function_disabler() -> Callable[[], AbstractContextManager[Any]]:
    """Get what makes blocks in which no `__torch_function__` runs, neither that of subclasses nor
    of modes. torch must be imported."""
    # `DisableTorchFunctionSubclass`, its neighbour in disable_torch_function.cpp, leaves modes on.
    return getattr(get_imported("torch._C"), "DisableTorchFunction", nullcontext)


def list_guards_below_modes() -> tuple[Callable[[], AbstractContextManager[Any]], ...]:
    """List what makes blocks in which operations are those of torch's own kernels: no
    `__torch_function__` runs, no `__torch_dispatch__`, and autocast changes no type."""
    native = get_imported("torch._C")
    names = ("DisableTorchFunction", "_DisableTorchDispatch", "_DisableAutocast")
    return tuple(getattr(native, name, nullcontext) for name in names)


class OwnMemory:
    """Memory pools of ours on devices: what is allocated in a block does not come between the
    program's tensors, whose addresses CUDA graphs depend on."""

    def __init__(self) -> None:
        self._pools: dict[Any, Any] = {}

    @contextlib.contextmanager
    def allocate_on(self, devices: Iterable[Any]) -> Generator[None]:
        """Allocate from them in a block, where torch has them (2.6)."""
        cuda: Any = get_imported("torch.cuda")
        with contextlib.ExitStack() as stack:
            for device in devices:
                if device.type == "cuda" and hasattr(cuda, "use_mem_pool"):
                    if device not in self._pools:
                        with cuda.device(device):
                            self._pools[device] = cuda.MemPool()
                    stack.enter_context(cuda.use_mem_pool(self._pools[device], device))
            yield


def mark_fixed(tensor: Any, *, address: bool) -> bool:
    """Make Dynamo compile for exactly the sizes of `tensor`, whatever sizes it has seen, and with
    `address` take it to stay where it is. False while Dynamo, which compiles, is not imported."""
    decorators = get_imported("torch._dynamo.decorators")
    if decorators is None or tensor.dim() == 0:
        return decorators is not None
    decorators.mark_static(tensor)
    # `guard=False`: an address that moves makes CUDA graphs record again; guarded, it recompiles.
    if address:
        decorators.mark_static_address(tensor, guard=False)
    return True


_MARKS = ("mark_dynamic", "maybe_mark_dynamic", "mark_unbacked")


def mark_dimension(name: str, tensor: Any, dimension: int) -> str | None:
    """Mark a dimension of a tensor by Dynamo's function named `name`. Returns why that cannot be
    done; None when it was.

    Raises:
        Exception: what Dynamo's function raises, of a tensor or dimension that it does not take.
    """
    mark = getattr(get_imported("torch._dynamo.decorators"), name, None) if name in _MARKS else None
    if mark is None:
        return f"this torch has no {name}"
    mark(tensor, dimension)
    return None


def get_original(function: Any) -> Any:
    """Get what a compiled callable was made from; the callable itself where it is none."""
    # An OptimizedModule has its module as a submodule, a wrapped function has it as an attribute.
    inside = getattr(function, "__dict__", {})
    modules = inside.get("_modules")
    if isinstance(modules, dict) and "_orig_mod" in modules:
        return cast(dict[str, Any], modules)["_orig_mod"]
    return inside.get("_torchdynamo_orig_callable", function)


MAX_DEVICES = 64


def read_device_memory() -> dict[int, dict[str, Any]]:
    """Read the statistics of each CUDA device's allocator that was used, by device index, nested as
    torch gives them; empty while the program has not initialised CUDA, which this never does. Waits
    for no device."""
    # `peak` is of what was reserved: 0 on a device whose allocator never had to give memory.
    cuda = get_imported("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return {}
    devices = range(min(cuda.device_count(), MAX_DEVICES))
    stats_by_device = {device: cuda.memory_stats_as_nested_dict(device) for device in devices}
    return {
        device: stats
        for device, stats in stats_by_device.items()
        if stats.get("reserved_bytes", {}).get("all", {}).get("peak")
    }


SERIALIZATION = "torch.serialization"
DISTRIBUTED_SAVER = "torch.distributed.checkpoint.state_dict_saver"


def read_versions(groups: Iterable[Any]) -> list[int]:
    """Read how often each trained parameter of an optimizer's groups was written in place, as torch
    counts it (`Tensor._version`): it only grows."""
    weights = (weight for group in groups for weight in group["params"])
    # The counter that autograd itself checks saved tensors by; there is no public one.
    # An inference tensor has no version.
    return [one._version for one in weights if one.requires_grad and not one.is_inference()]


# Invariant: changed by the thread of the key alone, so that no lock is needed.
_engine_runs: dict[int, int] = {}
"""Runs of the autograd engine in progress, by the thread that waits for them."""

_engine_runs_begun = 0


def wrap_backward(torch_module: Any, begin: Callable[[], Any], end: Callable[[Any], None]) -> None:
    """Call `begin()`, and `end` with what it returned, around each run of the autograd engine that
    Python starts (`backward`, `torch.autograd.grad`), for ever."""
    # `_engine_run_backward` of torch/autograd/graph.py, through which all of them go, looks this
    # attribute up at each run. Wrappers of `torch.autograd.backward` and its like would miss who
    # imported these by name, and stand in tracebacks.
    variable: Any = lookup(torch_module, "autograd.variable.Variable")
    engine = getattr(variable, "_execution_engine", None)
    if engine is None:
        return
    kind: Any = cast(Any, type(engine))

    class Engine(kind):
        """torch's engine: it is looked up for each run."""

        @property
        def run_backward(self) -> Any:
            global _engine_runs_begun
            run = DroppedCall(kind.run_backward.__get__(self))
            try:
                _engine_runs_begun += 1
                begun, thread = begin(), threading.get_ident()
                _engine_runs[thread] = _engine_runs.get(thread, 0) + 1
                run.tell_end(functools.partial(end_run, thread, begun))
            except Exception as error:  # nothing of ours may reach the program
                if is_raised_by_handler(error):
                    raise
            return run

    def end_run(thread: int, begun: Any) -> None:
        try:
            others = _engine_runs.pop(thread, 1) - 1
            if others:
                _engine_runs[thread] = others
            end(begun)
        except Exception as error:  # nothing of ours may reach the program
            if is_raised_by_handler(error):
                raise

    variable._execution_engine = Engine()


def count_engine_runs() -> int:
    """Count the runs of the autograd engine begun so far, about: threads may begin one together."""
    return _engine_runs_begun


def is_in_backward() -> bool:
    """True if the autograd engine calls what this thread does: in the thread that waits for it, or
    in one of its own, which it makes in C++ (`threading` has only a stand-in for those)."""
    return bool(_engine_runs) and (
        threading.get_ident() in _engine_runs
        or type(threading.current_thread()).__name__ == "_DummyThread"
    )


class _Recorded(threading.local):
    """Optimizer step and waits for batches in progress in this thread, as torch records them."""

    def __init__(self) -> None:
        self.step: Any = None
        """The `record_function` of the outermost optimizer's step, and what `begin` returned."""
        self.begun: Any = None
        self.batches: dict[int, Any] = {}
        """The same for the waits for batches, by the address of the `record_function`."""


_recorded = _Recorded()
_STEP, _BATCH = "Optimizer.step#", "enumerate(DataLoader)#"


def wrap_recorded(
    torch_module: Any,
    step: tuple[Callable[[Any], Any], Callable[[Any, bool], None]],
    batch: tuple[Callable[[], Any], Callable[[Any], None]],
) -> None:
    """Call `begin(optimizer)`, and `end` with what it returned and whether an exception ended it,
    around each step of an optimizer that is not compiled and inside of no other one of its thread;
    `begin()` and `end` around each wait for a batch of a DataLoader. For ever."""
    # Both run in a `record_function` of a name of its own, for which Dynamo puts a context that
    # does nothing into compiled code. Hooks of optimizers it would trace, and guard on.
    recorder = lookup(torch_module, "autograd.profiler.record_function")
    if recorder is None:
        return
    entering, leaving = recorder.__enter__, recorder.__exit__
    step_begins, step_ends = step
    batch_begins, batch_ends = batch

    def enter(self: Any) -> Any:
        # Invariant: any other `record_function` of the program pays for this one test alone.
        result = entering(self)
        if "#" in self.name:
            here = _recorded
            if self.name.startswith(_BATCH):
                here.batches[id(self)] = batch_begins()
            elif self.name.startswith(_STEP) and here.step is None:
                caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
                # `profile_hook_step`, whose local `self` the optimizer is; not a block of the
                # program's that has such a name.
                if caller.f_globals.get("__name__") == "torch.optim.optimizer":
                    here.step = self
                    here.begun = step_begins(caller.f_locals.get("self"))
        return result

    def leave(self: Any, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
        try:
            return leaving(self, exc_type, exc_value, traceback)
        finally:
            if "#" in self.name:
                here = _recorded
                if here.step is self:
                    here.step = None
                    step_ends(here.begun, exc_type is not None)
                elif id(self) in here.batches:
                    batch_ends(here.batches.pop(id(self)))

    recorder.__enter__ = make_stand_in(entering, enter, get_imported("torch"))
    recorder.__exit__ = make_stand_in(leaving, leave, get_imported("torch"))


def is_in_optimizer_step() -> bool:
    """True if an optimizer that torch records steps in this thread."""
    return _recorded.step is not None


def forget_engine_runs() -> None:
    """Forget the runs in progress: this process is a fork, the threads of them are not there."""
    _engine_runs.clear()


def wrap_saves(
    module: str, names: Iterable[str], around: Callable[[], AbstractContextManager[Any]]
) -> None:
    """Enter `around()` at each call of the functions `names` of an imported module, for ever."""

    def make_save(original: types.FunctionType) -> Any:
        def save(*args: Any, **kwargs: Any) -> Any:
            with around(), hide_own_frame:
                return original(*args, **kwargs)

        return make_stand_in(original, save, get_imported("torch"))

    owner = get_imported(module)
    for name in names:
        original = getattr(owner, name, None)
        if isinstance(original, types.FunctionType) and not hasattr(original, "_compilediag"):
            save = make_save(original)
            save._compilediag = True
            setattr(owner, name, save)


def is_plain_data(torch_module: Any, tensor: Any) -> bool:
    """True if the elements of a tensor can be read now by torch's own kernels alone: it is strided,
    is none of a tracer's or transform's, no graph is being captured, and no mode or subclass of the
    program's would see the operations."""
    # What torch/utils/_python_dispatch.py itself counts active modes by; not public.
    count = getattr(torch_module._C, "_len_torch_dispatch_stack", None)
    return (
        is_plain_tensor(torch_module, tensor)
        and (count is None or count() == 0)
        and not (tensor.is_cuda and torch_module.cuda.is_current_stream_capturing())
    )


def is_plain_tensor(torch_module: Any, tensor: Any) -> bool:
    """True if torch's own kernels know what a tensor holds: it is strided, and none of a tracer's,
    a transform's or a subclass that keeps its elements elsewhere."""
    wrapped = lookup(torch_module._C, "_functorch.is_functorch_wrapped_tensor")
    return (
        getattr(type(tensor), "__torch_dispatch__", None)  # pyright: ignore[reportUnknownArgumentType]
        is torch_module.Tensor.__torch_dispatch__
        and (wrapped is None or not wrapped(tensor))
        and tensor.layout is torch_module.strided
        and not (tensor.is_meta or tensor.is_nested or tensor.is_quantized)
    )


def is_cuda_in_use(torch_module: Any) -> bool:
    """True if this process uses CUDA and captures no graph now. Initialises nothing."""
    cuda = getattr(torch_module, "cuda", None)
    try:
        return bool(cuda.is_initialized() and not cuda.is_current_stream_capturing())  # type: ignore[union-attr]
    except Exception:
        return False


def count_hooks(module: Any = None) -> tuple[int, int]:
    """Count the forward hooks and pre-hooks of one module; without one, those of all modules."""
    # The tables of torch/nn/modules/module.py: whether one is empty is what a module call looks at.
    prefix = "_global_forward" if module is None else "_forward"
    owner = get_imported("torch.nn.modules.module") if module is None else module
    hooks, pre_hooks = (getattr(owner, f"{prefix}_{kind}", ()) for kind in ("hooks", "pre_hooks"))
    return len(hooks), len(pre_hooks)


class Members(NamedTuple):
    """A container that is registered as a pytree node, taken apart by its own functions."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    context: Any
    """What the container is made of besides its members."""


def is_registered(kind: type) -> bool:
    """True if instances of exactly this class can be taken apart, as pytree nodes."""
    return _find_node(kind) is not None


def get_members(value: Any) -> Members:
    """Get the members of an instance of a registered class (`is_registered`).

    Raises:
        AttributeError: it is not registered. Else what its own functions raise.
    """
    node = _find_node(_type_of(value))
    flatten_with_keys = getattr(node, "flatten_with_keys_fn", None)
    if flatten_with_keys is None:
        values, context = node.flatten_fn(value)
        values = tuple(values)
        return Members(tuple(map(str, range(len(values)))), values, context)
    pairs, context = flatten_with_keys(value)
    pairs = tuple(pairs)
    names: list[str] = []
    for key, _ in pairs:  # of a mapping, an attribute or a position
        parts = (getattr(key, name) for name in ("key", "name", "idx") if hasattr(key, name))
        names.append(str(next(parts, key)))
    return Members(tuple(names), tuple(member for _, member in pairs), context)


def rebuild_container(value: Any, values: list[Any], context: Any) -> Any:
    """Rebuild a container of the class of `value` with other members."""
    container = _find_node(_type_of(value)).unflatten_fn(values, context)
    # A TensorDict guesses its batch size where members have another than that in the context, and
    # takes a feature for one more dimension of it where the numbers happen to be equal.
    rank = len(getattr(value, "batch_size", ()))
    shapes = [member.shape for member in values if hasattr(member, "shape")]
    if rank and shapes:
        container.batch_size = shapes[0][:rank]
    return container


_type_of: Callable[[Any], Any] = type


def _find_node(kind: type) -> Any:
    # By exact class, as torch looks it up but for named tuples: one of a subclass is a leaf.
    nodes: Any = lookup(get_imported("torch.utils._pytree"), "SUPPORTED_NODES") or {}
    node: Any = nodes.get(kind)
    complete = all(hasattr(node, name) for name in ("flatten_fn", "unflatten_fn"))
    return node if complete else None
