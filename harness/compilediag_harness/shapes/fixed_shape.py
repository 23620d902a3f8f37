"""A callable that gets batches of any size and runs at a few: padded, split, and cut back.

score = FixedShape(torch.compile(score), dims={"obs": 0}, buckets=[64, 512])
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from compilediag_harness import extension_points
from compilediag_harness.base.object_graph import get_class
from compilediag_harness.blame.source_locations import get_definition
from compilediag_harness.shapes.buckets import Cost, plan
from compilediag_harness.shapes.compaction import Loop, run_until_done
from compilediag_harness.shapes.dims import DimsGiven, ShapeUnusable, read_dims
from compilediag_harness.shapes.padded_calls import PaddedCalls
from compilediag_harness.shapes.padding import REPEAT, Pad, read_pad
from compilediag_harness.shapes.padding_check import check_padding
from compilediag_harness.shapes.padding_report import PaddingReport
from compilediag_harness.shapes.settings import FixedShapeSettings, read_buckets
from compilediag_harness.shapes.warming import warm_up
from compilediag_harness.torch_internals import dynamo_skip, torch_api
from compilediag_harness.wire import FixedShapeUsed, Location

_numbers = itertools.count()

_FLUENT = (
    *("apply", "bfloat16", "cpu", "cuda", "double", "eval", "float", "half", "requires_grad_"),
    *("share_memory", "to", "to_empty", "train", "type", "xpu"),
)
"""Methods of modules that return the module: here they return the FixedShape."""


class FixedShape:
    """Wraps a callable, compiled or not. Its attributes and methods are there too: `state_dict()`,
    `parameters()`, `train()`.

    Args:
        fn: a module or a function; usually what `torch.compile` gave.
        dims: which dimension varies, by argument: `{"obs": 0}`, or named axes,
            `{"tokens": {"B": 0, "T": 1}}`. A path goes into containers ("batch.obs"), and stands
            for every tensor below it. The first axis is that of rows.
        buckets: the sizes to run at, ascending from 2 on: a list, "powers_of_two:512",
            "multiples_of_8:512", a mapping of axes to those, or "auto": by `fit` from the sizes
            given to `observe`.
        pad: contents of padding: "repeat" (the last row), a number, or either by path.
        mask: name of an argument of `fn` for a flag a row: True for real ones.
        overflow: a batch above the largest size is split ("chunk") or refused ("error").
        max_graphs: combinations of sizes, at most.
        out_dims: as `dims`, for the outputs by path ("" for an output that is one tensor). Without
            it they are found by running `fn` eagerly at two sizes.
        cost: of a call at a size, to split large batches: a function or measured values.
        clone: whether outputs are copied. By default those on CUDA devices are, where CUDA graphs
            may write to them in the next call, and those that share memory with padded inputs.
        seed_per_chunk: the generators have this seed in the first call of a batch, the next in its
            second..., so that a batch draws the same numbers whatever was drawn before. The
            program's own generators go on as if nothing had been drawn.

    Raises:
        ShapeUnusable: a setting that cannot be used; it says what to write.
    """

    __slots__ = ("__weakref__", "_calls", "_counts", "_max_graphs", "_report", "_settings")

    def __init__(
        self,
        fn: Callable[..., Any],
        dims: DimsGiven,
        buckets: Any = "auto",
        pad: Pad | Mapping[str, Pad] = REPEAT,
        mask: str | None = None,
        overflow: Literal["chunk", "error"] = "chunk",
        max_graphs: int | None = None,
        *,
        out_dims: DimsGiven | None = None,
        cost: Cost | None = None,
        clone: bool | None = None,
        seed_per_chunk: int | None = None,
    ) -> None:
        if not callable(fn):
            raise ShapeUnusable(f"FixedShape wraps a callable, not a {type(fn).__name__}")
        if overflow not in ("chunk", "error"):
            raise ShapeUnusable(f'overflow must be "chunk" or "error", not {overflow!r}')
        named = read_dims(dims)
        sizes = read_buckets(buckets, named.axes)
        self._settings = FixedShapeSettings(
            function=fn,
            dims=named,
            out_dims=None if out_dims is None else read_dims(out_dims, "out_dims"),
            buckets=sizes or (),
            pad=read_pad(pad),
            mask=mask,
            overflow=overflow,
            cost=cost,
            clone=clone,
            seed_per_chunk=seed_per_chunk,
        )
        dynamo_skip.bind_if_imported()
        self._max_graphs = max_graphs
        self._counts: Counter[int] = Counter()
        self._report: PaddingReport | None = None
        self._calls: PaddedCalls | None = None
        if sizes is not None:
            self._use_sizes(sizes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the wrapped callable for this batch. Inside of compiled code it is the
        wrapped callable and nothing else.

        Raises:
            ShapeUnusable: the batch cannot be run at the sizes; it names the argument.
            CompiledAfterWarmup: something compiled, and `warmup(..., late="error")` forbade it.
        """
        if dynamo_skip.is_compiling():
            return self._settings.function(*args, **kwargs)
        return self._get_calls().run(args, kwargs)

    def warmup(
        self,
        *args: Any,
        late: Literal["finding", "error"] = "finding",
        unsafe: Literal["error", "allow"] = "error",
        **kwargs: Any,
    ) -> int:
        """Calls the callable with this example at every size, the largest first, in the grad mode
        in force, backward too; how many compiles and recordings began. Padding is checked before.

        Args:
            *args: an example: arguments as of a call, with at least one row.
            late: a compile or recording in a later call is a finding, or raises too.
            unsafe: padding that changes results, or what the callable leaves behind, raises, or is
                a finding only. What is not known does not raise: see `check`.
            **kwargs: as args.

        Raises:
            ShapeUnusable: as a call, or there are more sizes than torch compiles for.
            PaddingContaminates: results depend on padding.
        """
        if late not in ("finding", "error") or unsafe not in ("error", "allow"):
            raise ShapeUnusable('late is "finding" or "error", unsafe is "error" or "allow"')
        calls = self._get_calls()
        report = self._report or self.check(*args, **kwargs)
        if unsafe == "error":
            report.require_harmless()
        begun = warm_up(calls, args, kwargs)
        calls.frozen = late
        return begun

    def check(self, *args: Any, gradients: bool = True, **kwargs: Any) -> PaddingReport:
        """True if padding is harmless, tried on this example: nothing is compiled, and what the
        callable can reach is put back. With `gradients`, and where they are enabled, those of
        parameters and of padded arguments are compared too.

        Raises:
            ShapeUnusable: the example has no rows, or cannot be padded; an output cannot be looked
                into.
        """
        self._report = check_padding(self._get_calls(), args, kwargs, gradients=gradients)
        return self._report

    def knee(self, *args: Any, cap: int | None = None, rounds: int = 5, **kwargs: Any) -> Any:
        """Measures this example at every size up to `cap`, in turn, `rounds` times: the smallest
        size within 5 % of the best throughput. Calls beyond it are a finding (CD409).

        Returns:
            A `Knee`: `size` (None: `reason` says why), `measured`, `gain` and `noise`.

        Raises:
            ShapeUnusable: the example has no rows, there are several axes, or the extension that
                measures is missing.
        """
        measure_knee = extension_points.load(extension_points.KNEE)
        if measure_knee is None:
            raise ShapeUnusable("knee needs the extension compilediag_harness.extensions.knee")
        return measure_knee(self._get_calls(), args, kwargs, cap=cap, rounds=rounds)

    def until_done(
        self, state: Any, done: Callable[[Any], Any], steps: int, *, compaction: bool = True
    ) -> Loop:
        """Calls `state = fn(state)` until `done(state)`, one flag a row, is True for every row, or
        `steps` times. Rows that are done are held as they are. With `compaction` the rows that are
        left move to the next smaller size: the same result, without computing the others.

        Raises:
            ShapeUnusable: `fn` gives back another structure than it takes.
        """
        return run_until_done(self._get_calls(), state, done, steps, compaction=compaction)

    def observe(self, sizes: Iterable[int]) -> None:
        """Counts sizes of batches, for `fit`."""
        self._counts.update(map(int, sizes))

    def fit(
        self, k: int, *, cost: Cost | None = None, multiple: int = 1, cap: int | None = None
    ) -> tuple[int, ...]:
        """Chooses at most `k` sizes for what was observed, those that cost least, and uses them.

        Raises:
            ShapeUnusable: there are several axes, or `k` is more than `max_graphs`.
            BucketsImpossible: nothing was observed, or no size can be chosen.
        """
        if len(self._settings.dims.axes) > 1:
            raise ShapeUnusable("fit chooses the sizes of one axis: give buckets for each axis")
        chosen = plan(self._counts, k, cost=cost, multiple=multiple, cap=cap).buckets
        self._use_sizes((chosen,), priced=cost is not None)
        return chosen

    @property
    def buckets(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of each axis."""
        return self._get_calls().settings.buckets

    @property
    def wrapped(self) -> Callable[..., Any]:
        """The callable, as it was given."""
        return self._settings.function

    @property
    def late_compiles(self) -> int:
        """Compiles and recordings that torch reported in calls after the warm-up."""
        return self._get_calls().late_compiles

    def _use_sizes(self, sizes: tuple[tuple[int, ...], ...], *, priced: bool = False) -> None:
        graphs = math.prod(len(axis_sizes) for axis_sizes in sizes)
        if self._max_graphs is not None and graphs > self._max_graphs:
            raise ShapeUnusable(
                f"{graphs} combinations of sizes are more than max_graphs={self._max_graphs}: "
                "choose fewer sizes"
            )
        import torch

        settings = replace(self._settings, buckets=sizes)
        event = FixedShapeUsed(
            0.0,
            next(_numbers),
            _find_location(torch, settings.function),
            settings.dims.axes,
            *(sizes, (), (), ()),
            priced=priced or settings.cost is not None,
            dims=settings.dims.group_by_axis(),
        )
        self._calls = PaddedCalls(torch, settings, event)

    def _get_calls(self) -> PaddedCalls:
        if self._calls is None:
            raise ShapeUnusable(
                'buckets is "auto": tell sizes with observe(sizes), then choose with fit(k), or '
                "give a list"
            )
        return self._calls

    # --- what is wrapped shows through -------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in FixedShape.__slots__:
            raise AttributeError(name)
        value = getattr(self._settings.function, name)
        if name not in _FLUENT or not callable(value):
            return value

        def call_fluent(*args: Any, **kwargs: Any) -> Any:
            result = value(*args, **kwargs)
            originals = torch_api.get_original(self._settings.function), self._settings.function
            return self if any(result is original for original in originals) else result

        return call_fluent

    def __setattr__(self, name: str, value: Any) -> None:
        if name in FixedShape.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self._settings.function, name, value)

    def __repr__(self) -> str:
        return f"FixedShape({self._settings.function!r}, buckets={self._calls and self.buckets})"


def _find_location(torch: Any, function: Any) -> Location:
    """Find where the wrapped callable is defined; no file for one without Python code."""
    target: Any = torch_api.get_original(function)
    if isinstance(target, torch.nn.Module):
        target = get_class(target).forward
    place = get_definition(target)
    name = getattr(target, "__qualname__", place.function) if place.file else place.function
    return replace(place, function=name)
