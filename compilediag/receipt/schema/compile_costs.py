"""What compiled code costs beside its seconds of compiling."""

from msgspec import field

from compilediag.receipt.schema.record import FrameName, Record


class FrameGuards(Record, frozen=True, kw_only=True):
    """The guards of one frame, by the compile of it whose guards take least."""

    frame: FrameName
    evaluated: int | None
    in_python: int | None
    eval_us: float | None
    runs_per_step: float | None
    us_per_step: float | None
    kinds: dict[str, int] = field(default_factory=dict[str, int])


class WarmCalls(Record, frozen=True, kw_only=True):
    """Calls of one callable in which nothing compiled."""

    callable: str
    calls: int
    before_graph_us: float | None


class GuardsSection(Record, frozen=True, kw_only=True):
    """The guards of the lead process against its step."""

    step_s: float | None
    us_per_step: float | None
    share: float | None
    frames: tuple[FrameGuards, ...] = ()
    calls: tuple[WarmCalls, ...] = ()


class CompileMemory(Record, frozen=True, kw_only=True):
    """Host memory around one compile."""

    compile_id: str
    epoch: int
    process: int
    forward: bool
    grown_bytes: int
    """Resident after it beyond what was before; negative where it shrank."""
    peak_bytes: int | None
    """The most that was resident during it; None where the process had held more before."""


class CompileMemorySection(Record, frozen=True, kw_only=True):
    """Host memory around the compiles of the lead process."""

    compiles: int
    grown_bytes: int
    peak_bytes: int | None
    events: tuple[CompileMemory, ...] = ()
