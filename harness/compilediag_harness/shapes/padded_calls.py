"""One batch through one callable at fixed sizes: split, pad, call, cut back, put together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Literal

from compilediag_harness.shapes import compile_watch, output_search, shape_log, unpadding
from compilediag_harness.shapes.call_parts import Call, Part, Settings, Sizes
from compilediag_harness.shapes.layouts import (
    Facts,
    Layout,
    PaddedLeaf,
    layout_of,
    parameters_of,
    sizes_of,
)
from compilediag_harness.shapes.padding import Buffer, pad_of_leaf, padded
from compilediag_harness.shapes.shape_errors import CompiledAfterWarmup, ShapeUnusable
from compilediag_harness.shapes.side_effects import seeded
from compilediag_harness.shapes.sizes import Splitter, holding
from compilediag_harness.shapes.trees import Structure, flatten, rebuilt
from compilediag_harness.torch_internals import torch_api, torch_cudagraphs
from compilediag_harness.wire import FixedShapeCompiled


class _Buffers(threading.local):
    """The buffers of one thread: each thread records CUDA graphs of its own."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, Sizes], Buffer] = {}
        self.masks: dict[tuple[int, Any], Any] = {}
        self.storages: set[int] = set()
        self.busy = False


class PaddedCalls:
    """Calls of one callable."""

    def __init__(self, torch: Any, settings: Settings, declared: shape_log.Declared) -> None:
        self.torch, self.settings, self.declared = torch, settings, declared
        self.frozen: Literal["finding", "error"] | None = None
        """After the warm-up: what a compile is."""
        self.late_compiles = 0
        self.warmed_modes: set[frozenset[Any]] = set()
        """Combinations of gradient and training mode: each is compiled on its own."""
        self.tensor: type = torch.Tensor
        self._parameters = parameters_of(settings.function, torch.nn.Module)
        self._layouts: dict[tuple[Structure, Structure], Layout] = {}
        self._facts = Facts()
        self.outputs: unpadding.Outputs | None = None
        """Which dimensions of the outputs follow which axis, once that is known."""
        self._splitter: Splitter | None = None
        self._buffers = _Buffers()

    # --- a call ------------------------------------------------------------------------------

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, counted: bool = True) -> Any:
        """What the callable gives for this batch. A call that is not `counted` is told to nobody.

        Raises:
            ShapeUnusable: the batch cannot be padded or split, or its result not be cut back.
            CompiledAfterWarmup: something compiled, and that was to be an error.
        """
        call = self.read(args, kwargs)
        outputs = self.outputs or output_search.outputs_of(self, call)
        if call.sizes[0] == 0:
            grad = self.torch.is_grad_enabled()
            return unpadding.without_rows(outputs, call.sizes, self.tensor, grad=grad)
        parts: list[list[Any]] = []
        template: Any = None
        for number, part in enumerate(self.plan(call.sizes)):
            template, leaves = self._drawn(call, part, outputs, number, counted=counted)
            parts.append(leaves)
        leaves = parts[0] if len(parts) == 1 else unpadding.joined(self.torch, outputs, parts)
        return leaves[0] if outputs.structure is None else rebuilt(template, iter(leaves))

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """A call taken apart and checked."""
        leaves: list[Any] = []
        structure = flatten(args, leaves), flatten(kwargs, leaves)
        layout = self._layouts.get(structure)
        if layout is None:
            dims = self.settings.dims
            layout = layout_of(dims, structure, leaves, self._parameters, self.tensor)
        self._facts.check(layout, leaves, self.tensor)
        sizes = sizes_of(layout, leaves, self.settings.dims.axes)
        self._layouts.setdefault(structure, layout)
        return Call(args, kwargs, leaves, layout, sizes)

    def plan(self, sizes: Sizes) -> list[Part]:
        """The calls that a batch takes.

        Raises:
            ShapeUnusable: it is too large, and may not be split.
        """
        rows, *rest = sizes
        others = [self._holding(axis, size) for axis, size in enumerate(rest, 1)]
        row_sizes = self.settings.buckets[0]
        bucket = holding(rows, row_sizes)
        if bucket is not None:
            return [(0, sizes, (bucket, *others))]
        if self.settings.overflow == "error":
            raise ShapeUnusable(
                f"the batch has {rows} in {self.settings.dims.axes[0]!r}, the largest size is "
                f'{row_sizes[-1]}: add a larger bucket, or set overflow="chunk" to split it'
            )
        if self._splitter is None:
            self._splitter = Splitter(row_sizes, self.settings.cost)
        calls: list[Part] = []
        start = 0
        for bucket in self._splitter.split(rows):
            real = min(bucket, rows - start)
            calls.append((start, (real, *rest), (bucket, *others)))
            start += real
        return calls

    def _holding(self, axis: int, size: int) -> int:
        bucket = holding(size, self.settings.buckets[axis])
        if bucket is None:
            raise ShapeUnusable(
                f"the batch has {size} in {self.settings.dims.axes[axis]!r}, the largest size is "
                f"{self.settings.buckets[axis][-1]}: add a larger bucket; only "
                f"{self.settings.dims.axes[0]!r} can be split"
            )
        return bucket

    def _drawn(
        self, call: Call, part: Part, outputs: unpadding.Outputs, number: int, *, counted: bool
    ) -> tuple[Any, list[Any]]:
        """`_one`, with generators of its own where that was asked for."""
        seed = self.settings.seed_per_chunk
        if seed is None:
            return self._one(call, part, outputs, counted=counted)
        with seeded(self.torch, seed + number):
            return self._one(call, part, outputs, counted=counted)

    def _one(
        self, call: Call, part: Part, outputs: unpadding.Outputs, *, counted: bool
    ) -> tuple[Any, list[Any]]:
        """One call at one size: the result as it is, and its leaves cut back."""
        start, sizes, bucket = part
        local = self._buffers
        # Autograd keeps what it was given: a buffer must not be written to before the backward.
        fresh = local.busy or self.torch.is_grad_enabled()
        before = compile_watch.begun() if self.frozen and compile_watch.listen() else None
        graphs = torch_cudagraphs.run_in_this_thread()
        was_busy, local.busy = local.busy, True
        try:
            given, buffers = self._padded_leaves(call, start, sizes, bucket, fresh=fresh)
            result = self.called(call, given, sizes[0], bucket[0], fresh=fresh)
            _check_unchanged(call.layout, given, buffers)
        finally:
            local.busy = was_busy
        if before is not None and compile_watch.begun() != before:
            self._check_compiles(before, sizes, bucket)
        if counted and shape_log.writers:
            ran = torch_cudagraphs.run_in_this_thread() != graphs
            asked = () if start else call.sizes
            shape_log.called(self.declared, sizes, bucket, asked, in_graphs=ran)
        leaves: list[Any] = []
        if flatten(result, leaves) != outputs.structure:
            raise ShapeUnusable(
                "the outputs have another structure than at first: return the same containers in "
                "every call"
            )
        return result, unpadding.cut(outputs, leaves, sizes, bucket, self._must_be_copied)

    def called(self, call: Call, leaves: list[Any], real: int, bucket: int, *, fresh: bool) -> Any:
        """Calls what is wrapped with other leaves."""
        args, kwargs = self.arguments(call, leaves)
        if self.settings.mask is not None:
            kwargs[self.settings.mask] = self.mask(call, real, bucket, fresh=fresh)
        shape_log.inside.depth += 1
        try:
            return self.settings.function(*args, **kwargs)
        finally:
            shape_log.inside.depth -= 1

    def arguments(self, call: Call, leaves: list[Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments of a call with other leaves."""
        taken = iter(leaves)
        args = rebuilt(call.args, taken)
        return args, rebuilt(call.kwargs, taken) if call.kwargs else {}

    # --- its parts ---------------------------------------------------------------------------

    def _padded_leaves(
        self, call: Call, start: int, sizes: Sizes, bucket: Sizes, *, fresh: bool
    ) -> tuple[list[Any], list[Buffer]]:
        """The leaves of one call, and the buffers among them."""
        leaves, buffers = list(call.leaves), list[Buffer]()
        for leaf in call.layout.padded:
            rows = leaves[leaf.place]
            if leaf.row_dim is not None and sizes[0] != call.sizes[0]:
                rows = rows.narrow(leaf.row_dim, start, sizes[0])
            if fresh:
                pad = pad_of_leaf(self.settings.pad, leaf.path)
                tensor = padded(self.torch, rows, leaf.dims, sizes, bucket, pad)
            else:
                buffer = self._buffer(leaf, rows, bucket)
                buffers.append(buffer)
                tensor = buffer.fill(rows, sizes)
            leaves[leaf.place] = tensor
        return leaves, buffers

    def _buffer(self, leaf: PaddedLeaf, like: Any, bucket: Sizes) -> Buffer:
        key = leaf.path, tuple([bucket[axis] for axis, _ in leaf.dims])
        buffer = self._buffers.of.get(key)
        if buffer is None:
            pad = pad_of_leaf(self.settings.pad, leaf.path)
            buffer = self._buffers.of[key] = Buffer(self.torch, like, leaf.dims, bucket, pad)
            self._buffers.storages.add(buffer.tensor.untyped_storage().data_ptr())
        return buffer

    def mask(self, call: Call, real: int, bucket: int, *, fresh: bool) -> Any:
        """True for the rows that are real."""
        like = next(leaf for leaf in call.layout.padded if leaf.row_dim is not None)
        device = call.leaves[like.place].device
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

    def _check_compiles(self, before: int, sizes: Sizes, bucket: Sizes) -> None:
        begun = compile_watch.since(before)
        self.late_compiles += len(begun)
        shape_log.tell(
            lambda t, step: FixedShapeCompiled(
                t, step, self.declared.number, self.declared.function, sizes, bucket, begun
            )
        )
        if self.frozen == "error":
            raise CompiledAfterWarmup(
                f"{self.declared.function.function} compiled again after its warm-up, at "
                f"{dict(zip(self.settings.dims.axes, bucket, strict=True))}: {', '.join(begun)}; "
                "warm it up as it is used (grad mode, dtype, training or not), and run it under "
                "`compilediag run` for the cause"
            )

    def _must_be_copied(self, leaf: Any) -> bool:
        if not isinstance(leaf, self.tensor):
            return False
        told: Any = leaf
        if self.settings.clone is not None and told.is_cuda:
            return self.settings.clone or self._is_ours(told)
        # Without asking torch's private state a pool of CUDA graphs cannot be told from others.
        return bool(told.is_cuda) or self._is_ours(told)

    def _is_ours(self, leaf: Any) -> bool:
        return leaf.untyped_storage().data_ptr() in self._buffers.storages


def _check_unchanged(layout: Layout, given: Sequence[Any], buffers: Sequence[Buffer]) -> None:
    """Raises ShapeUnusable when the callable wrote to a padded tensor."""
    for place, leaf in enumerate(layout.padded):
        if buffers[place].written if buffers else given[leaf.place]._version > 0:
            raise ShapeUnusable(
                f"argument {leaf.path!r} is changed in place by the callable, which works on "
                "a padded copy: the caller would not see it; return the new value instead"
            )
