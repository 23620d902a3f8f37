"""The ranks of a run, compared."""

from compilediag.receipt.schema.record import Record


class RankRow(Record, frozen=True, kw_only=True):
    """One rank."""

    rank: int
    processes: int
    frames: int
    compiles: int
    recompiles: int
    graph_breaks: int
    eager_fallbacks: int
    compile_s: float | None
    cache_hits: int | None = None
    cache_misses: int | None = None
    steps: int = 0
    step_median_s: float | None = None


class RankDivergence(Record, frozen=True, kw_only=True):
    """Ranks that differ from most of the others in one respect."""

    aspect: str
    ranks: tuple[int, ...]
    like_rank: int
    """The lowest of the ranks they are compared with."""
    only_here: tuple[str, ...] = ()
    only_there: tuple[str, ...] = ()
    more: int = 0
    """Further differences that are not named."""
    count: int | None = None


class RankStraggler(Record, frozen=True, kw_only=True):
    """A rank that is slower than the median of the ranks."""

    rank: int
    what: str
    seconds: float
    ratio: float


class RankTotals(Record, frozen=True, kw_only=True):
    """All ranks, those without a row included."""

    ranks: int
    frames: int
    compiles: int
    recompiles: int
    eager_fallbacks: int
    compile_s: float | None


class RanksSection(Record, frozen=True, kw_only=True):
    """What the ranks of a run did, and where they did not do the same."""

    expected: int | None
    missing: tuple[int, ...] = ()
    rows: tuple[RankRow, ...] = ()
    divergences: tuple[RankDivergence, ...] = ()
    stragglers: tuple[RankStraggler, ...] = ()
    totals: RankTotals | None = None
    told: int | None = None
    differing: int | None = None
    divergences_left_out: int = 0
    missing_count: int | None = None
