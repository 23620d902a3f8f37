"""What a second start of a program still compiles."""

from typing import Literal

from msgspec import field

from compilediag.receipt.schema.record import Record

WhyCompiledAgain = Literal[
    "bypass", "disabled", "failed", "key_changed", "entry_gone", "guard_miss", "not_compiled_before"
]


class CompiledAgainRecord(Record, frozen=True, kw_only=True):
    """A compile of the second start that was not taken from a cache."""

    compile_id: str
    place: str
    why: WhyCompiledAgain
    reason: str
    seconds: float | None
    changes: dict[str, tuple[str | None, str | None]] = field(
        default_factory=dict[str, tuple[str | None, str | None]]
    )


class ColdAndWarmSection(Record, frozen=True, kw_only=True):
    """Two starts of a program with the same caches."""

    verdict: Literal["from_caches", "compiles_again", "not_concluded"]
    problem: str | None = None
    cold_s: float | None = None
    warm_s: float | None = None
    cold_by_phase: dict[str, float] = field(default_factory=dict[str, float])
    cold_answers: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    compiles: int = 0
    again: tuple[CompiledAgainRecord, ...] = ()
    notes: tuple[str, ...] = ()
