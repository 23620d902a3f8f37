"""What `run` was asked for, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from compilediag.receipt.prices import PriceTable
    from compilediag.receipt.schema.receipt import Receipt
    from compilediag.timeline.timeline import Timeline
    from compilediag_harness.base.session import WitnessPlan

LiveMode = Literal["title", "lines", "both"]

GRACE_S = 4.5
"""Seconds between the second Ctrl-C, or the time limit, and the end by force."""


class TelemetrySettings(Protocol):
    """Where an extension sends metrics of a run."""

    @property
    def experiments_every_s(self) -> float | None:
        """Seconds between updates of the target's experiments; None: they get none."""
        ...


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `compilediag run`; the defaults are those of the command line."""

    output: str | None = None
    """Directory for this run alone; None: a new one below `.compilediag`."""
    name: str | None = None
    steps: int | None = None
    warmup: int | None = None
    """None: found from the compiles ("auto")."""
    timeout_s: float | None = None
    grace_s: float = GRACE_S
    trace: bool = False
    tlparse: bool = False
    """Keep torch's trace, and make tlparse's report of it."""
    depyf: bool = False
    """Run the target a second time, and decompile what its frames became."""
    profile_on_signal: bool = False
    """SIGUSR1 and SIGUSR2 begin and end a window of torch.profiler in the target."""
    witness: bool = False
    """The lines of the target are followed, to see which of them changes what is guarded."""
    witness_plan: WitnessPlan | None = None
    """What of it is worth following; None: all."""
    prices: PriceTable | None = None
    """What an hour of a device costs; None: no cost is estimated."""
    live: LiveMode | None = "both"
    """How progress is shown, on a terminal; None: not at all."""
    stdout_to_stderr: bool = False
    """The target's stdout goes where its stderr goes: ours is for the receipt alone."""
    output_file: str | None = None
    """File that gets the target's stdout and stderr, and its stdin is empty: nobody looks on."""
    telemetry: TelemetrySettings | None = None
    """Where metrics of the run are sent while it goes on."""
    quiet: bool = False
    """Nothing is shown while the receipt is made."""
    label: str = ""
    """What progress says first, for one run of several."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    exit_code: int
    """For the shell: the target's own, 128 + signal when killed, 70 after a fault of ours."""
    run_dir: str
    """Where its files are: another directory than that requested where the target removed it."""
    receipt: Receipt | None
    """None when it could not be made; `notes` say why."""
    receipt_path: str | None
    """None when it could not be written."""
    notes: tuple[str, ...] = ()
    """Sentences for the user, beside the verdict."""
    timeline: Timeline | None = None
    """What the receipt was made from; None when there is none."""
    moved: bool = False
    """The files are not where they were requested to be."""
    stopped: bool = False
    """Ctrl-C, or a signal to us: no further run is wanted."""
    timed_out: bool = False
    """The time limit ended it."""
