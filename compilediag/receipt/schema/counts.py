"""What compiling is counted by: the definitions of docs/reference/receipt.md."""

from compilediag.receipt.schema.record import Record


class VariantCounts(Record, frozen=True, kw_only=True):
    """Those that a variant of a cadence probe is compared by."""

    frames: int
    """Frames that Dynamo attempted."""
    compiles: int
    """Forward compiles that ended with guarded code."""
    recompiles: int
    """Those of them that a failed guard caused."""
    graphs: int
    """Those of `compiles` that hold a graph with operations."""
    graph_breaks: int
    """Lines at which a graph breaks."""
    eager_fallbacks: int
    """Frames of which some call ran without guarded code."""


class Counts(VariantCounts, frozen=True, kw_only=True):
    """All counts of a run, or of some of its processes."""

    recompile_limit_hits: int
    """Frames that ran into the recompile limit."""
