"""One batch through one callable at fixed sizes: split, pad, call, cut back, put together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Literal

from compilediag_harness.shapes import shape_log
from compilediag_harness.shapes.dims import CompiledAfterWarmup, ShapeUnusable, Sizes, cut_to_sizes
from compilediag_harness.shapes.layouts import (
    FlatCall,
    Layout,
    PaddedLeaf,
    build_layout,
    check_facts,
    collect_sizes,
    list_parameters,
)
from compilediag_harness.shapes.outputs import Outputs, build_given_outputs, infer_outputs
from compilediag_harness.shapes.padding import Buffer, pad_tensor
from compilediag_harness.shapes.settings import FixedShapeSettings, Part, Planner
from compilediag_harness.shapes.side_effects import preserve_eagerly, preserve_random_states
from compilediag_harness.shapes.trees import Structure, flatten, rebuild
from compilediag_harness.torch_internals import torch_api, torch_compiles, torch_cudagraphs
from compilediag_harness.wire import Event, FixedShapeCompiled, FixedShapeUsed

_begun: dict[int, list[str]] = {}
"""What began, by thread, in order."""

_listening = False

Ended = Callable[[Any, bool], None]
"""Gets what a call gives to its caller, and whether it gives anything: it may raise."""

call_listeners: list[Callable[[PaddedCalls, tuple[Any, ...], dict[str, Any]], Ended]] = []
"""Called with the arguments of each counted call of a `FixedShape`, before it begins."""


class _Buffers(threading.local):
    """The buffers of one thread: each thread records CUDA graphs of its own."""

    def __init__(self) -> None:
        self.by_leaf: dict[tuple[str, Sizes], Buffer] = {}
        self.masks: dict[tuple[int, Any], Any] = {}
        self.storages: set[int] = set()
        self.busy = False


class PaddedCalls:
    """Calls of one callable with batches that are padded to fixed sizes, or split."""

    def __init__(self, torch: Any, settings: FixedShapeSettings, declared: FixedShapeUsed) -> None:
        self.torch, self.settings, self.declared = torch, settings, declared
        self.frozen: Literal["finding", "error"] | None = None
        """After the warm-up: what a compile is."""
        self.late_compiles = 0
        self.warmed_modes: set[frozenset[Any]] = set()
        """Combinations of gradient and training mode: each is compiled on its own."""
        self._tensor: type = torch.Tensor
        self._parameters = list_parameters(settings.function, torch.nn.Module)
        self._layouts: dict[Structure, Layout] = {}
        self._first: dict[str, Any] = {}
        """What the leaves of the first call were."""
        self._outputs: Outputs | None = None
        self.plan_calls = Planner(settings).plan_calls
        self._buffers = _Buffers()

    def emit(self, kind: Callable[..., Event], **fields: Any) -> None:
        number, function = self.declared.number, self.declared.function
        shape_log.sinks.emit(
            lambda t, step: kind(t=t, step=step, number=number, function=function, **fields)
        )

    # --- a call ------------------------------------------------------------------------------

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, counted: bool = True) -> Any:
        """Run the callable on this batch. A call that is not `counted` is not reported.

        Raises:
            ShapeUnusable: the batch cannot be padded or split, or its result not be cut back.
            CompiledAfterWarmup: something compiled, and that was to be an error.
        """
        if not counted:
            shape_log.inside.not_counted += 1
            try:
                return self._run_batch(args, kwargs, counted=False)
            finally:
                shape_log.inside.not_counted -= 1
        listening = [begins(self, args, kwargs) for begins in tuple(call_listeners)]
        result, returned = None, False
        try:
            result = self._run_batch(args, kwargs, counted=True)
            returned = True
        finally:
            for ended in listening:
                ended(result, returned)
        return result

    def _run_batch(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, counted: bool) -> Any:
        torch, seed = self.torch, self.settings.seed_per_chunk
        call = self.read(args, kwargs)
        outputs = self.resolve_outputs(call)
        if call.sizes[0] == 0:
            grad = torch.is_grad_enabled()
            return outputs.make_empty(call.sizes, self._tensor, grad=grad)
        parts: list[list[Any]] = []
        template: Any = None
        for index, part in enumerate(self.plan_calls(call.sizes)):
            own = contextlib.nullcontext()  # generators, where a seed was given
            if seed is not None:
                own = preserve_random_states(torch, seed + index)
            with own:
                template, leaves = self._run_part(call, part, outputs, counted=counted)
            parts.append(leaves)
        leaves = parts[0] if len(parts) == 1 else outputs.join_parts(torch, parts)
        return leaves[0] if outputs.structure is None else rebuild(template, iter(leaves))

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FlatCall:
        """Take a call apart and check it.

        Raises:
            ShapeUnusable: it does not fit the dims, or is unlike the first call.
        """
        structure, leaves = flatten((args, kwargs))
        layout = self._layouts.get(structure)
        if layout is None:
            dims, pads = self.settings.dims, self.settings.pad
            layout = build_layout(dims, pads, structure, leaves, self._parameters, self._tensor)
        check_facts(self._first, layout, leaves, self._tensor)
        sizes = collect_sizes(layout, leaves, self.settings.dims.axes)
        self._layouts.setdefault(structure, layout)
        return FlatCall(args, kwargs, leaves, layout, sizes)

    def read_example(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], user: str, why: str = ""
    ) -> FlatCall:
        """Do the same for an example that `user`, the name of a method, needs rows of."""
        call = self.read(args, kwargs)
        if 0 in call.sizes:
            raise ShapeUnusable(f"{user} needs an example with at least one row{why}")
        return call

    def _run_part(
        self, call: FlatCall, part: Part, outputs: Outputs, *, counted: bool
    ) -> tuple[Any, list[Any]]:
        """One call at one size: the result as it is, and its leaves cut back."""
        _, sizes, bucket = part
        local = self._buffers
        # Autograd keeps its inputs: a buffer must not be written to before the backward.
        fresh = local.busy or self.torch.is_grad_enabled()
        before = len(list_begun()) if self.frozen and listen_to_compiles() else None
        graphs = torch_cudagraphs.count_runs_in_thread()
        was_busy, local.busy = local.busy, True
        shape_log.inside.depth += 1
        try:
            given, buffers = self._pad(call, part, fresh=fresh)
            args, kwargs = self.build_arguments(call, given, sizes, bucket, fresh=fresh)
            result = self.settings.function(*args, **kwargs)
            for index, leaf in enumerate(call.layout.padded):
                # torch raises the version of a tensor at each write in place.
                if buffers[index].written if buffers else given[leaf.index]._version > 0:
                    raise ShapeUnusable(
                        f"argument {leaf.path!r} is changed in place by the callable, which "
                        "works on a padded copy: the caller would not see it; return the new value "
                        "instead"
                    )
        finally:
            shape_log.inside.depth -= 1
            local.busy = was_busy
        if before is not None and (begun := list_begun()[before:]):
            self._check_compiles(begun, sizes, bucket)
        for sink in shape_log.sinks.all if counted else ():
            ran = torch_cudagraphs.count_runs_in_thread() != graphs
            sink.add(self.declared, sizes, bucket, () if part.start else call.sizes, ran)
        return result, outputs.take_leaves(result, sizes, bucket, self._must_copy)

    # --- its parts ---------------------------------------------------------------------------

    def build_arguments(
        self, call: FlatCall, leaves: list[Any], sizes: Sizes, bucket: Sizes, *, fresh: bool = True
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Build the arguments: other leaves, padded from `sizes` to `bucket`, and the mask."""
        args, kwargs = rebuild((call.args, call.kwargs), iter(leaves))
        if self.settings.mask is not None:
            kwargs[self.settings.mask] = self._make_mask(call, sizes[0], bucket[0], fresh=fresh)
        return args, kwargs

    def _pad(self, call: FlatCall, part: Part, *, fresh: bool) -> tuple[list[Any], list[Buffer]]:
        """Pad the leaves of one call; with the buffers among them."""
        start, sizes, bucket = part
        leaves, buffers = list(call.leaves), list[Buffer]()
        for leaf in call.layout.padded:
            rows = leaves[leaf.index]
            if leaf.row_dim is not None and sizes[0] != call.sizes[0]:
                rows = rows.narrow(leaf.row_dim, start, sizes[0])
            if fresh:
                tensor = pad_tensor(self.torch, rows, leaf.dims, sizes, bucket, leaf.pad)
            else:
                key = leaf.path, tuple([bucket[axis] for axis, _ in leaf.dims])
                buffer = self._buffers.by_leaf.get(key)
                if buffer is None:
                    buffer = Buffer(self.torch, rows, leaf.dims, bucket, leaf.pad)
                    self._buffers.by_leaf[key] = buffer
                    self._buffers.storages.add(buffer.tensor.untyped_storage().data_ptr())
                buffers.append(buffer)
                tensor = buffer.fill(rows, sizes)
            leaves[leaf.index] = tensor
        return leaves, buffers

    def _make_mask(self, call: FlatCall, real: int, bucket: int, *, fresh: bool) -> Any:
        """Make the mask: True for the rows that are real."""
        like = next(leaf for leaf in call.layout.padded if leaf.row_dim is not None)
        device = call.leaves[like.index].device
        if fresh:
            mask = self.torch.arange(bucket, device=device) < real
            torch_api.mark_fixed(mask, address=False)
            return mask
        mask = self._buffers.masks.get((bucket, device))
        if mask is None:
            with self.torch.inference_mode(mode=False):
                mask = self.torch.zeros(bucket, dtype=self.torch.bool, device=device)
            torch_api.mark_fixed(mask, address=True)
            self._buffers.masks[bucket, device] = mask
            self._buffers.storages.add(mask.untyped_storage().data_ptr())
        mask.narrow(0, 0, real).fill_(True)
        mask.narrow(0, real, bucket - real).fill_(False)
        return mask

    def _check_compiles(self, begun: tuple[str, ...], sizes: Sizes, bucket: Sizes) -> None:
        self.late_compiles += len(begun)
        self.emit(FixedShapeCompiled, size=sizes, run=bucket, begun=begun)
        if self.frozen == "error":
            raise CompiledAfterWarmup(
                f"{self.declared.function.function} compiled again after its warm-up, at "
                f"{dict(zip(self.settings.dims.axes, bucket, strict=True))}: {', '.join(begun)}; "
                "warm it up as it is used (grad mode, dtype, training or not), and run it under "
                "`compilediag run` for the cause"
            )

    def _must_copy(self, leaf: Any) -> bool:
        if not isinstance(leaf, self._tensor):
            return False
        output: Any = leaf
        # Without torch's private state a pool of CUDA graphs looks like any other memory.
        in_pool = output.is_cuda and self.settings.clone in (None, True)
        return in_pool or output.untyped_storage().data_ptr() in self._buffers.storages

    # --- its outputs -------------------------------------------------------------------------

    def resolve_outputs(self, call: FlatCall) -> Outputs:
        """Resolve the outputs of the callable: by eager runs the first time, then remembered."""
        if self._outputs is not None:
            return self._outputs
        pairs = [_choose_two_sizes(sizes) for sizes in self.settings.buckets]
        base, other = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)

        def run(bucket: Sizes) -> Any:
            """Run the callable as it was written, on as much of the batch as fits."""
            sizes = tuple(map(min, call.sizes, bucket))

            def pad(leaf: PaddedLeaf, rows: Any) -> Any:
                return pad_tensor(self.torch, rows, leaf.dims, sizes, bucket, leaf.pad)

            try:
                return self.run_eagerly(call, cut_leaves(call, sizes, pad), sizes, bucket)
            except Exception as error:
                if bucket == base:  # it would fail in the call itself too
                    raise
                at = dict(zip(self.settings.dims.axes, bucket, strict=True))
                raise ShapeUnusable(
                    f"{self.declared.function.function} fails at {at}, where it was run to see "
                    "which dimensions of its outputs follow the batch: say it with out_dims, or "
                    f"choose sizes that it can run at ({type(error).__name__}: {error})"
                ) from error

        with preserve_eagerly(self.torch, self.settings.function, call.others):
            axes, dims = self.settings.dims.axes, self.settings.out_dims
            if dims is None:
                self._outputs = infer_outputs(run, axes, base, other, self._tensor)
            else:
                self._outputs = build_given_outputs(dims, axes, run(base), self._tensor)
        return self._outputs

    def run_eagerly(self, call: FlatCall, leaves: list[Any], sizes: Sizes, bucket: Sizes) -> Any:
        """Run the callable as it was written, with leaves padded from `sizes` to `bucket`."""
        args, kwargs = self.build_arguments(call, leaves, sizes, bucket)
        return torch_api.get_original(self.settings.function)(*args, **kwargs)


def cut_leaves(call: FlatCall, sizes: Sizes, pad: Callable[[PaddedLeaf, Any], Any]) -> list[Any]:
    """Cut the padded leaves of a call to `sizes` and pad them by `pad`; with its other leaves."""
    leaves = list(call.leaves)
    for leaf in call.layout.padded:
        leaves[leaf.index] = pad(leaf, cut_to_sizes(leaves[leaf.index], leaf.dims, sizes))
    return leaves


def _choose_two_sizes(sizes: tuple[int, ...]) -> tuple[int, int]:
    first, *others = sizes
    if others:
        return first, others[0]
    return first, first - 1 if first > 2 else first + 1


def listen_to_compiles() -> bool:
    """Start counting. False where Dynamo is not imported, or does not say when it compiles."""
    global _listening

    def record_start(trigger: str, compile_id: str) -> None:
        _begun.setdefault(threading.get_ident(), []).append(f"{trigger} {compile_id}".strip())

    _listening = _listening or torch_compiles.watch_compile_starts(record_start) is not None
    return _listening


def list_begun() -> tuple[str, ...]:
    """List the compiles and recordings that have begun in this thread so far: "DYNAMO 0/1"."""
    return tuple(_begun.get(threading.get_ident(), ()))
