"""The ranks of a run, compared."""

from compilediag.receipt.schema.record import Record


class RankRow(Record, frozen=True, kw_only=True):
    """One rank."""

    rank: int  #: The rank.
    processes: int  #: Processes that had it.
    frames: int  #: As compile.frames, of this rank.
    compiles: int  #: As compile.compiles.
    recompiles: int  #: As compile.recompiles.
    graph_breaks: int  #: As compile.graph_breaks.
    eager_fallbacks: int  #: As compile.eager_fallbacks.
    compile_s: float | None  #: Seconds of all attempts; null where the record has no seconds.
    #: Of inductor's and AOTAutograd's caches; null: torch did not count.
    cache_hits: int | None = None
    cache_misses: int | None = None  #: Misses of them.
    steps: int = 0  #: Steps seen.
    step_median_s: float | None = None  #: Median wall seconds of steps without the first two.


class RankDivergence(Record, frozen=True, kw_only=True):
    """Ranks that differ from most of the others in one respect."""

    #: `compile_ids`, `recompile_causes`, `graph_breaks`, `collectives` (the order of collectives in
    #: compiled graphs, which only traces tell), `cache_hits` (what compile caches answered) or
    #: `cache_keys` (of what their keys are made, without the index of a rank's device).
    aspect: str
    ranks: tuple[int, ...]  #: Ranks that differ, all in the same way; at most 64.
    like_rank: int  #: The lowest of the ranks they are compared with, which are the most.
    only_here: tuple[str, ...] = ()  #: What only they have, at most five; of collectives the first.
    only_there: tuple[str, ...] = ()  #: What they lack; at most five.
    more: int = 0  #: Differences that are not named.
    count: int | None = None  #: Ranks that differ in this way; `ranks` names at most 64 of them.


class RankStraggler(Record, frozen=True, kw_only=True):
    """A rank that is slower than the median of the ranks."""

    rank: int  #: The rank.
    what: str  #: `step` (its median) or, without steps, `compile` (seconds of all compiles).
    seconds: float  #: Its seconds.
    ratio: float  #: To the median of the ranks.


class RankTotals(Record, frozen=True, kw_only=True):
    """All ranks, those without a row included."""

    ranks: int  #: Ranks of which something arrived.
    frames: int  #: As compile.frames.
    compiles: int  #: As compile.compiles.
    recompiles: int  #: As compile.recompiles.
    eager_fallbacks: int  #: As compile.eager_fallbacks.
    compile_s: float | None  #: Seconds of all attempts; null where the record has no seconds.


class RanksSection(Record, frozen=True, kw_only=True):
    """What the ranks of a run did, and where they did not do the same."""

    expected: int | None  #: World size, reported or by the highest rank; null: unknown.
    missing: tuple[int, ...] = ()  #: Expected, and nothing arrived; at most 100,000.
    rows: tuple[RankRow, ...] = ()  #: One row a rank, ascending.
    divergences: tuple[RankDivergence, ...] = ()  #: Ranks that do not do what most of them do.
    #: Ranks slower than the median of the ranks, slowest first; at most 16. How much is too much is
    #: for the reader to say.
    stragglers: tuple[RankStraggler, ...] = ()
    #: Sums over all ranks, with those that have no row or that no other section tells of.
    totals: RankTotals | None = None
    #: Ranks that the other sections are of, where they are not of all: at most 256, one for each
    #: behaviour and then the lowest. Null where they are of all.
    told: int | None = None
    differing: int | None = None  #: Ranks that differ from most in any respect.
    divergences_left_out: int = 0  #: Groups of ranks that differ and are not listed.
    missing_count: int | None = None  #: Ranks that are missing, those included that are not listed.
