"""Windows of torch.profiler that were requested while the program ran."""

from compilediag.receipt.schema.record import Record


class Profile(Record, frozen=True, kw_only=True):
    """One window; its trace is linked, never inlined."""

    first_step: int
    last_step: int
    uri: str | None = None
    problem: str | None = None
