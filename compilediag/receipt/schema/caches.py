"""What torch's compile caches answered, and of what their keys are made."""

from msgspec import field

from compilediag.receipt.schema.record import FrameName, Record


class CacheUsed(Record, frozen=True, kw_only=True):
    """One cache over all its lookups."""

    cache: str
    lookups: int
    hits: int
    misses: int
    bypasses: int
    """torch decided that it may not cache what it compiled."""
    disabled: int
    failed: int
    saved_s: float | None
    """What compiling took when the entries were made, without what another cache's entry already
    holds; None where torch did not tell."""
    written: int | None
    not_written: int | None
    components: dict[str, str] = field(default_factory=dict[str, str])


class CacheRefusal(Record, frozen=True, kw_only=True):
    """Why torch did not cache something, or could not write it."""

    cache: str
    outcome: str
    reason: str
    count: int
    compile_ids: tuple[str, ...] = ()


class CacheLookupRecord(Record, frozen=True, kw_only=True):
    """One lookup."""

    cache: str
    outcome: str
    compile_id: str
    epoch: int
    process: int
    frame: FrameName | None
    key: str
    status: str
    saved_s: float | None
    within: str = ""
    components: dict[str, str] = field(default_factory=dict[str, str])
    components_left_out: int = 0


class CachePlace(Record, frozen=True, kw_only=True):
    """Where inductor's caches lie."""

    folder: str
    configured: bool
    temporary: bool
    filesystem: str
    writable: bool


class CacheSection(Record, frozen=True, kw_only=True):
    """Lookups of torch's compile caches."""

    caches: tuple[CacheUsed, ...]
    refusals: tuple[CacheRefusal, ...] = ()
    lookups: tuple[CacheLookupRecord, ...] = ()
    lookups_left_out: int = 0
    folder: CachePlace | None = None


class PrecompiledRecord(Record, frozen=True, kw_only=True):
    """One function, over all processes."""

    function: str
    entries: int
    called: bool
