"""Calls of compiled callables: how often, with which shapes, how much work.

Of those that run at fixed sizes: how much padding that is, and whether it harms.
"""

import msgspec

from compilediag.receipt.schema.record import Record


class PerStep(Record, frozen=True, kw_only=True):
    """Calls in a step."""

    steps: int  #: Steps that were counted: at most those of the first 50,000 calls.
    min: int  #: Fewest.
    median: float  #: Median.
    max: int  #: Most.


class ShapesRecord(Record, frozen=True, kw_only=True):
    """One combination of shapes, with its count."""

    shapes: str  #: As in `[8, 16], mask=[8]`; a tensor of a subclass by its class.
    count: int  #: Calls with these shapes.


class VaryingSizesRecord(Record, frozen=True, kw_only=True):
    """Sizes of the tensors that change from call to call, with how often which came together."""

    #: Each size that changes, by the places that have it: `obs:0` is dim 0 of the argument `obs`.
    dims: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[int, ...], ...]  #: Distinct combinations of those sizes, ascending.
    counts: tuple[int, ...]  #: Calls with each combination.
    #: Calls whose sizes are not known or came after 8,192 others, or whose tensors are others in
    #: number or rank.
    other_calls: int = 0


class Invocation(Record, frozen=True, kw_only=True):
    """One compiled callable, called from eager code."""

    name: str  #: The function; of a module its `forward`. Two modules of one class are two rows.
    file: str | None = None  #: Its file.
    line: int | None = None  #: Its line.
    calls: int  #: Calls from outside compiled code, as far as they were recorded.
    #: Every call was recorded; false where only the ends of most steps were, because they are
    #: short.
    complete: bool = True
    per_step: PerStep | None = None  #: Calls in a step; null when no step was seen.
    #: Shapes of the tensors of a call, the most frequent first; at most 16 combinations.
    shapes: tuple[ShapesRecord, ...] = ()
    other_shapes: int = 0  #: Calls with other shapes.
    #: Leading sizes of the first tensors, added up over the calls; null where one is not known.
    samples: int | None = None
    elements: int | None = None  #: Elements of those tensors, added up.
    #: Sizes of the tensors that change from call to call; null where none does. `compilediag plan`
    #: chooses buckets from it.
    varying: VaryingSizesRecord | None = None
    #: Calls that a `FixedShape` made, at its own sizes and in warm-ups; `shapes.fixed[].asked` has
    #: the sizes that came.
    padded_calls: int = 0


class Throughput(Record, frozen=True, kw_only=True):
    """The work that was done, to compare only runs of the same work, and its speed."""

    #: Steps by their wall seconds; of a trainer's output by the median step after warm-up, or of
    #: the whole run where it printed only that.
    steps_per_s: float | None = None
    #: Samples of the calls in steps, by the wall seconds of those steps; of a trainer's output as
    #: it printed them or its batch size, after warm-up, or of the whole run.
    samples_per_s: float | None = None
    #: The compiled callable by whose calls the work is measured: the first called of those called
    #: often.
    callable: str | None = None
    #: The sample budget: leading sizes of the first tensors of its calls, added up; runs with
    #: different budgets are not compared.
    samples: int | None = None
    #: Elements of those tensors: the token budget, where they hold token ids.
    elements: int | None = None
    #: Watched steps that samples and elements were concluded from, each of them being given the
    #: same; null where every step was watched.
    from_steps: int | None = None
    #: The trainer whose output gave the fields from here on, and the rates where nothing was
    #: measured; null where none was read.
    reported_by: str | None = None
    tokens_per_s: float | None = None  #: Tokens of all devices by the second: median after warm-up.
    #: Tokens of one device by the second: median after warm-up.
    tokens_per_s_per_device: float | None = None
    #: TFLOP/s of one device, as the trainer counts them: median after warm-up.
    tflops_per_s_per_device: float | None = None
    #: Model FLOPs utilization, 0 to 1, as the trainer counts it: median after warm-up.
    mfu: float | None = None
    #: The last loss; null where it was not finite (then a check says so).
    loss: float | None = None
    grad_norm: float | None = None  #: The last norm of the gradients; null where it was not finite.
    #: Wall seconds of the whole training, as the trainer printed them at its end.
    train_s: float | None = None


class SizeRecord(Record, frozen=True, kw_only=True):
    """One of the sizes."""

    run: tuple[int, ...]  #: One size for each axis.
    calls: int  #: Calls; a large batch may be several.
    #: Real sizes of the axes multiplied, over all calls: rows, where there is one axis.
    elements: int


class PaddingOutput(Record, frozen=True, kw_only=True):
    """The check's finding about one result."""

    #: Path of an output (empty for the only one), or `buffer`, `attribute`, `variable`, `global`,
    #: `class`, `default`, `argument`, `gradient` and a name.
    path: str
    #: `safe`, `contaminated` (real rows change with the padding), `reduced` (a result without rows
    #: does), `parity` (only the padded size counts), `state` (something is written that depends on
    #: padding), `nan_leak` (only NaN or overflow in the padding reaches it), `rng` (it draws random
    #: numbers, so no parity is claimed), `unknown` (it differs from run to run).
    kind: str
    note: str  #: What was seen.
    max_abs: float | None = None  #: Largest difference of a padded and an unpadded run.
    bitwise: bool  #: Padding of every finite kind gave the same bits.


class PaddingRecord(Record, frozen=True, kw_only=True):
    """The last check of padding."""

    #: Nothing was found to depend on finite padding, on these probes, and nothing was left out that
    #: could: `verdict` is `safe`.
    safe: bool
    #: `safe`, `unsafe` or `unknown`: random numbers, runs that differ without a reason, state that
    #: could not be looked into (`unseen`), no padding but that in use that could be tried. Null in
    #: receipts of versions before it.
    verdict: str | None = None
    outputs: tuple[PaddingOutput, ...] = ()  #: Results, and what else was found to change.
    #: What the callable can reach and the check could not look into, with its type: the first.
    unseen: tuple[str, ...] = ()
    size: tuple[int, ...]  #: Real sizes of the example.
    run: tuple[int, ...]  #: Sizes it was padded to.
    probes: tuple[str, ...] = ()  #: What the padding held.
    seeds: tuple[int, ...] = ()  #: Seeds of the random probes.
    rng_consumed: bool  #: The callable draws random numbers.


class RowLoops(Record, frozen=True, kw_only=True):
    """Loops over rows that were done one after the other."""

    loops: int  #: Loops.
    steps: int  #: Steps of all loops.
    computed_rows: int  #: Rows that were computed, over all steps, padding included.
    active_rows: int  #: Those of them that were not done; on a device an upper bound.
    compacted: int  #: How often the rows that were left moved to a smaller size.


class KneeSize(Record, frozen=True, kw_only=True):
    """One size that was measured for the knee."""

    size: int  #: Rows of a call.
    #: Seconds of a call: the lower quartile; null where there was none.
    call_s: float | None = None
    slow_call_s: float | None = None  #: The upper quartile.
    rows_per_s: float | None = None  #: Rows by `call_s`.
    #: Why this size and larger ones were not considered: a cliff, memory, an error; null where
    #: there was no reason.
    problem: str | None = None


class KneeRecord(Record, frozen=True, kw_only=True):
    """The knee of throughput, as the program had it measured last."""

    #: The smallest size within 5 % of the best throughput; null where noise hides it.
    size: int | None = None
    reason: str | None = None  #: Why none was named.
    backward: bool  #: Gradients were enabled, and the backward pass measured.
    measured: tuple[KneeSize, ...] = ()  #: The sizes, ascending.


class FixedShapeRecord(Record, frozen=True, kw_only=True):
    """One callable."""

    name: str  #: What is wrapped.
    file: str | None = None  #: Where it is defined; null for what has no source.
    line: int | None = None  #: First line of its definition.
    axes: tuple[str, ...] = ()  #: Names of the axes whose sizes vary; the first is that of rows.
    buckets: tuple[tuple[int, ...], ...] = ()  #: Sizes of each axis, ascending.
    #: Calls by the size they ran at, those of warm-ups left out; at most 64.
    sizes: tuple[SizeRecord, ...] = ()
    #: Padding by real elements, over all calls: 0.5 is three rows run for two; null without a call.
    padding_waste_fraction: float | None = None
    warmed: bool  #: It was warmed up.
    #: Compiles and recordings that began in warm-ups; null without one.
    warmup_compiles: int | None = None
    #: Those that began in calls after the first warm-up; null without one.
    late_compiles: int | None = None
    padding: PaddingRecord | None = None  #: The last check of padding; null when there was none.
    #: Loops over rows that are done one after the other (`until_done`); null without one.
    rows: RowLoops | None = None
    #: As many sizes of each axis, chosen for the calls that came; empty without a call, with more
    #: than two axes, and where the program gave a cost of its own.
    planned_buckets: tuple[tuple[int, ...], ...] = ()
    #: What the same calls would pad in them, as `padding_waste_fraction`; null where there are
    #: none.
    planned_waste_fraction: float | None = None
    #: Batches by the size they came with, before padding and splitting; warm-ups and empty batches
    #: left out. Null without a batch. `compilediag plan` chooses buckets from it.
    requested: VaryingSizesRecord | None = msgspec.field(default=None, name="asked")
    #: Calls in which a CUDA graph was recorded or replayed, those of warm-ups left out.
    cudagraph_calls: int | None = None
    #: Of the elements that ran in those calls, the share that was padding; null without one.
    cudagraph_padding_fraction: float | None = None
    #: The knee of throughput, as the program had it measured last (`FixedShape.knee`); null when it
    #: did not.
    knee: KneeRecord | None = None


class ShapesSection(Record, frozen=True, kw_only=True):
    """The callables of the lead process."""

    fixed: tuple[FixedShapeRecord, ...] = ()  #: The callables of the lead process, at most 64.
