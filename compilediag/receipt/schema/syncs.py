"""Where the host waits for tensor data, by user line, in the steps that were sampled."""

from compilediag.receipt.schema.record import Record


class SyncLineRecord(Record, frozen=True, kw_only=True):
    """Reads of one kind on one line."""

    file: str
    line: int
    function: str
    kind: str
    ownership: str
    loop_line: int | None = None
    count: int
    most_in_a_step: int
    steps: int
    seconds: float | None = None


class SyncsSection(Record, frozen=True, kw_only=True):
    """Counts and seconds of the sampled steps only."""

    sampled_steps: int
    on_device: bool
    complete: bool
    lines: tuple[SyncLineRecord, ...] = ()
    seconds: float | None = None
