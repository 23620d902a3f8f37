"""The evidence of findings, typed: for each family of rules the fields that are read of it."""

from typing import Any, TypeVar

import msgspec

from compilediag.receipt.schema.compiles import Writer
from compilediag.receipt.schema.record import Record

Shape = TypeVar("Shape", bound="AnyEvidence")


def _fits(kind: type[Record], name: str, value: Any) -> bool:
    try:
        msgspec.convert({name: value}, kind)
    except msgspec.ValidationError:
        return False
    return True


class AnyEvidence(Record, frozen=True, kw_only=True):
    """Evidence of any rule. A field that it does not have is nothing, also in those below."""

    compile_ids: tuple[str, ...] = ()
    why: str | None = None
    """Why nothing was compiled (CD901)."""

    @classmethod
    def parse(cls: type[Shape], evidence: dict[str, Any]) -> Shape:
        """Parse what the evidence of a finding has of this family. A field that has another type
        there, as another rule or a newer version may give it, is nothing; the others are read."""
        try:
            return msgspec.convert(evidence, cls)
        except msgspec.ValidationError:
            return msgspec.convert(
                {name: value for name, value in evidence.items() if _fits(cls, name, value)}, cls
            )


class GuardEvidence(AnyEvidence, frozen=True, kw_only=True):
    """Evidence of CD1xx: a guard that was false or is armed, a frame at or near its limit."""

    cause: str | None = None
    kind: str | None = None
    expected: str | None = None
    actual: str | None = None
    values: tuple[tuple[str | None, str | None], ...] = ()
    guard: str | None = None
    source: str | None = None
    writers: tuple[Writer | str, ...] = ()
    size_needed: dict[str, Any] | None = None
    limit: int | None = None
    together: tuple[str, ...] = ()


class BreakEvidence(AnyEvidence, frozen=True, kw_only=True):
    """A graph break, or a frame that ran eager (CD2xx, CD154, CD904)."""

    category: str | None = None
    reason: str | None = None
    explanation: str | None = None
    frames: tuple[str, ...] = ()
    ran_eager: bool = False
    eager_frames: tuple[tuple[str, int], ...] | None = None
    other_lines: tuple[tuple[str, int], ...] = ()
    """Of the program's own, where torch's line is one for several of them."""
    consequence_only: bool = False
    nothing_else: bool = False
    options: dict[str, str] | None = None
    recompiles_behind: tuple[str, ...] = ()
