"""How often compiled callables were called, with which shapes, and how much work that was; which
run at fixed sizes, how much padding that is, and whether it harms."""

from compilediag.receipt.schema.record import Record


class PerStep(Record, frozen=True, kw_only=True):
    """Calls in a step."""

    steps: int  #: Steps that were counted: at most those of the first 50,000 calls.
    min: int  #: Fewest.
    median: float  #: Median.
    max: int  #: Most.


class ShapesRecord(Record, frozen=True, kw_only=True):
    """How often one combination of shapes was there."""

    shapes: str  #: As in `[8, 16], mask=[8]`; a tensor of a subclass by its class.
    count: int  #: Calls with these shapes.


class VaryingSizesRecord(Record, frozen=True, kw_only=True):
    """Sizes of the tensors that change from call to call, with how often which came together."""

    dims: tuple[tuple[str, ...], ...]  #: Sizes, by places that have them: `x:0` is dim 0 of `x`.
    sizes: tuple[tuple[int, ...], ...]  #: Distinct combinations of those sizes, ascending.
    counts: tuple[int, ...]  #: Calls with each combination.
    #: Calls with sizes unknown or after 8,192 others, or with other tensors in number or rank.
    other_calls: int = 0


class Invocation(Record, frozen=True, kw_only=True):
    """One compiled callable, called from eager code."""

    name: str  #: The function; of a module its `forward`. Two modules of one class are two rows.
    file: str | None = None  #: Its file.
    line: int | None = None  #: Its line.
    calls: int  #: Calls from outside compiled code, as far as they were recorded.
    complete: bool = True  #: All calls were recorded; false: only the ends of most brief steps.
    per_step: PerStep | None = None  #: Calls in a step; null when no step was seen.
    shapes: tuple[ShapesRecord, ...] = ()  #: Shapes of a call's tensors: the most frequent 16.
    other_shapes: int = 0  #: Calls with other shapes.
    samples: int | None = None  #: Leading sizes of the first tensors, added up, if all are known.
    elements: int | None = None  #: Elements of those tensors, added up.
    varying: VaryingSizesRecord | None = None  #: Sizes that vary, for `compilediag plan`, or null.
    #: Calls by a `FixedShape` and its warm-ups; `shapes.fixed[].asked` has the sizes that came.
    padded_calls: int = 0


class Throughput(Record, frozen=True, kw_only=True):
    """How much work was done, to compare only runs of the same work, and how fast."""

    #: Steps by their wall seconds; of a trainer's output by the median step after warm-up, or of
    #: the whole run where it printed only that.
    steps_per_s: float | None = None
    #: Samples of the calls in steps, by the wall seconds of those steps; of a trainer's output as
    #: it printed them or its batch size, after warm-up, or of the whole run.
    samples_per_s: float | None = None
    callable: str | None = None  #: What work is measured by: the first of the often called.
    #: The sample budget: leading sizes of its calls' first tensors; only equal ones are compared.
    samples: int | None = None
    elements: int | None = None  #: Elements of these: the token budget, if they hold token ids.
    #: Watched steps, each given the same, from which both are concluded; null: all were watched.
    from_steps: int | None = None
    #: The trainer whose output gave the next fields, and rates that were not measured, or null.
    reported_by: str | None = None
    tokens_per_s: float | None = None  #: Tokens of all devices by the second: median after warm-up.
    tokens_per_s_per_device: float | None = None  #: Tokens of one device, likewise.
    tflops_per_s_per_device: float | None = None  #: As the trainer counts them, likewise.
    mfu: float | None = None  #: Model FLOPs utilization, 0 to 1, as the trainer has it, likewise.
    loss: float | None = None  #: The last loss; null: not finite (then a check says so).
    grad_norm: float | None = None  #: The last norm of the gradients; null where it was not finite.
    train_s: float | None = None  #: Wall seconds of the whole training, as printed at its end.


class SizeRecord(Record, frozen=True, kw_only=True):
    """One of the sizes."""

    run: tuple[int, ...]  #: One size for each axis.
    calls: int  #: Calls; a large batch may be several.
    elements: int  #: Real sizes of the axes multiplied (rows, with one axis), over all calls.


class PaddingOutput(Record, frozen=True, kw_only=True):
    """What the check found out about one result."""

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

    #: Nothing depends on finite padding on these probes, nothing was left out: `verdict` is `safe`.
    safe: bool
    #: `safe`, `unsafe` or `unknown`: random numbers, runs that differ without a reason, state that
    #: could not be looked into (`unseen`), no padding but that in use that could be tried. Null in
    #: receipts of versions before it.
    verdict: str | None = None
    outputs: tuple[PaddingOutput, ...] = ()  #: Results, and what else was found to change.
    unseen: tuple[str, ...] = ()  #: What it can reach and the check could not look into, by type.
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
    call_s: float | None = None  #: Seconds of a call: the lower quartile; null without one.
    slow_call_s: float | None = None  #: The upper quartile.
    rows_per_s: float | None = None  #: Rows by `call_s`.
    problem: str | None = None  #: Why it and larger ones were left out: a cliff, memory, an error.


class KneeRecord(Record, frozen=True, kw_only=True):
    """The knee of throughput, as the program had it measured last."""

    size: int | None = None  #: Smallest within 5 % of the best throughput; null: noise hides it.
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
    sizes: tuple[SizeRecord, ...] = ()  #: Calls by the size they ran at, no warm-ups; at most 64.
    #: Padding by real elements, over all calls: 0.5 is three rows run for two; null without a call.
    padding_waste_fraction: float | None = None
    warmed: bool  #: It was warmed up.
    warmup_compiles: int | None = None  #: Compiles and recordings begun in warm-ups, or null.
    late_compiles: int | None = None  #: Those begun in calls after the first warm-up, or null.
    padding: PaddingRecord | None = None  #: The last check of padding; null when there was none.
    rows: RowLoops | None = None  #: Loops over rows done one after another (`until_done`), or null.
    #: As many sizes of each axis, chosen for the calls that came; empty without a call, with more
    #: than two axes, and where the program gave a cost of its own.
    planned_buckets: tuple[tuple[int, ...], ...] = ()
    planned_waste_fraction: float | None = None  #: What these would pad in the same calls, or null.
    #: Batches by the size they came with, before padding and splitting; warm-ups and empty batches
    #: left out. Null without a batch. `compilediag plan` chooses buckets from it.
    asked: VaryingSizesRecord | None = None
    cudagraph_calls: int | None = None  #: Calls with a CUDA graph, without those of warm-ups.
    cudagraph_padding_fraction: float | None = None  #: Share of padding of their elements, or null.
    knee: KneeRecord | None = None  #: As the program last had it measured (`FixedShape.knee`).


class ShapesSection(Record, frozen=True, kw_only=True):
    """The callables of the lead process."""

    fixed: tuple[FixedShapeRecord, ...] = ()  #: The callables of the lead process, at most 64.
