"""Lookups of torch's compile caches, and the components that their keys are made of."""

from compilediag.receipt.schema.record import EMPTY, FrameName, Record


class CacheUsed(Record, frozen=True, kw_only=True):
    """One cache over all its lookups."""

    #: fx_graph: inductor's compiled graphs; aot_autograd: what AOTAutograd makes of a graph that
    #: Dynamo captured; autotune_choices: times of an operation's variants; pgo_local: a profile of
    #: sizes; mega: the program loaded caches of another run; others by the name of torch's class,
    #: such as RemoteFxGraphCache.
    cache: str
    lookups: int  #: Lookups of any outcome.
    hits: int  #: Lookups that found what was compiled before.
    misses: int  #: Lookups that did not.
    #: Times that torch does not cache what it compiles: every start compiles it again.
    bypasses: int
    disabled: int  #: Times that the cache was switched off.
    failed: int  #: Lookups in which the cache raised.
    #: Seconds that the hits saved: what compiling took when the entries were made, without what the
    #: entry of another cache holds already; null where torch did not tell.
    saved_s: float | None
    written: int | None  #: Entries that were written; null where that was not seen.
    not_written: int | None  #: Entries that could not be written; null where that was not seen.
    #: What all its keys share, by name: torch's digest of the value in short, and the value in
    #: short. Equal digests are equal values.
    components: dict[str, str] = EMPTY


class CacheRefusal(Record, frozen=True, kw_only=True):
    """A reason why torch did not cache something, or could not write it."""

    cache: str  #: The cache.
    outcome: str  #: bypass, miss, not_written.
    reason: str  #: torch's words, without addresses of objects.
    count: int  #: How often.
    compile_ids: tuple[str, ...] = ()  #: Of which compiles, at most 20.


class CacheLookupRecord(Record, frozen=True, kw_only=True):
    """One lookup."""

    cache: str  #: The cache.
    outcome: str  #: hit, miss, bypass, disabled or failed.
    compile_id: str  #: torch's id of the compile, such as 0/1; empty outside one.
    epoch: int  #: How often torch._dynamo.reset() had been called.
    process: int  #: Index of the process.
    frame: FrameName | None  #: The compiled frame; null where it is not known.
    key: str  #: The key; empty where torch made none.
    #: torch's word: full_miss, guard_miss (an entry was there, for other sizes), hit (of a miss:
    #: the entry was there, and a graph it refers to was not).
    status: str
    #: What compiling took when the entry was made; null where torch did not tell.
    saved_s: float | None
    within: str = ""  #: The cache whose entry referred to this one; empty where none did.
    #: What its key is made of beside what all keys of the cache share, written as there; empty
    #: where torch did not tell.
    components: dict[str, str] = EMPTY
    components_left_out: int = 0  #: Components beyond those listed.


class CachePlace(Record, frozen=True, kw_only=True):
    """The place of inductor's caches."""

    folder: str  #: The folder.
    configured: bool  #: true: TORCHINDUCTOR_CACHE_DIR names it; false: torch chose it.
    temporary: bool  #: It lies below the system's temporary folder.
    #: Of its mount: tmpfs is memory, overlay a container's own layer; empty where it is not known.
    filesystem: str
    writable: bool  #: Whether the process might write to it when it first looked.


class CacheSection(Record, frozen=True, kw_only=True):
    """Lookups of torch's compile caches."""

    #: Each cache that was looked into, in the order of its first lookup.
    caches: tuple[CacheUsed, ...]
    #: Why torch did not cache something or could not write it: each reason once, the most frequent
    #: first, at most 50.
    refusals: tuple[CacheRefusal, ...] = ()
    #: Every lookup in time order, process by process, at most 300.
    lookups: tuple[CacheLookupRecord, ...] = ()
    lookups_left_out: int = 0  #: Lookups that are counted and not listed.
    folder: CachePlace | None = None  #: Where inductor's caches lie; null where that was not seen.
