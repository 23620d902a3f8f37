"""How often compiled callables were called, with which shapes, and how much work that was."""

from compilediag.receipt.schema.record import Record


class PerStep(Record, frozen=True, kw_only=True):
    """Calls in a step."""

    steps: int
    min: int
    median: float
    max: int


class ShapesRecord(Record, frozen=True, kw_only=True):
    """How often one combination of shapes was there."""

    shapes: str
    count: int


class VaryingSizesRecord(Record, frozen=True, kw_only=True):
    """Sizes of the tensors that change from call to call, with how often which came together."""

    dims: tuple[tuple[str, ...], ...]
    """Each size that changes, by the places that have it: "obs:0" is dim 0 of argument `obs`."""
    sizes: tuple[tuple[int, ...], ...]
    """Distinct combinations, ascending; each is parallel to `dims`."""
    counts: tuple[int, ...]
    """Calls of each, parallel to `sizes`."""
    other_calls: int = 0
    """Calls whose sizes are not known, or whose tensors are others in number or rank."""


class Invocation(Record, frozen=True, kw_only=True):
    """One compiled callable, called from eager code."""

    name: str
    file: str | None = None
    line: int | None = None
    calls: int
    complete: bool = True
    per_step: PerStep | None = None
    shapes: tuple[ShapesRecord, ...] = ()
    other_shapes: int = 0
    samples: int | None = None
    elements: int | None = None
    varying: VaryingSizesRecord | None = None
    padded_calls: int = 0


class Throughput(Record, frozen=True, kw_only=True):
    """How much work was done, to compare only runs of the same work, and how fast."""

    steps_per_s: float | None = None
    samples_per_s: float | None = None
    callable: str | None = None
    samples: int | None = None
    elements: int | None = None
    from_steps: int | None = None
    reported_by: str | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_device: float | None = None
    tflops_per_s_per_device: float | None = None
    mfu: float | None = None
    loss: float | None = None
    grad_norm: float | None = None
    train_s: float | None = None
