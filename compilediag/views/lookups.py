"""Looks up what belongs to a finding elsewhere in the receipt: its change, writers, compiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from msgspec import Struct

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CompileEvent, EventCause, FindingRecord
    from compilediag.receipt.schema.receipt import Receipt


OUTLOOK_RULES = frozenset({"CD150", "CD151"})
"""Findings about what has not happened yet: an armed guard, a forecast."""
BLIND_RULES = frozenset({"CD901", "CD902", "CD903"})
"""Findings about missing evidence."""


def numbered(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """Every finding with the number that `compilediag explain N` takes: 1 is "F1"."""
    return list(enumerate(receipt.findings, 1))


def main_findings(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """The findings listed one by one: not the notes, the outlook, or why the verdict is blind."""
    apart = OUTLOOK_RULES | BLIND_RULES if receipt.verdict == "blind" else OUTLOOK_RULES
    return [
        (number, item)
        for number, item in numbered(receipt)
        if item.severity != "info" and item.rule not in apart
    ]


def notes(receipt: Receipt) -> list[tuple[int, FindingRecord]]:
    """The findings that are for information only."""
    return [
        (number, item)
        for number, item in numbered(receipt)
        if item.severity == "info" and item.rule not in OUTLOOK_RULES
    ]


def changes(finding: FindingRecord) -> list[tuple[str, str]]:
    """Every distinct pair of values the evidence has, in the order they appeared."""
    pairs = [_items(item) for item in _items(finding.evidence.get("values"))]
    return [(str(pair[0]), str(pair[1])) for pair in pairs if len(pair) == 2 and None not in pair]


def change(finding: FindingRecord, receipt: Receipt) -> tuple[str, str] | None:
    """What the guard expected and what it met; None where the evidence does not say both."""
    expected, actual = finding.evidence.get("expected"), finding.evidence.get("actual")
    if expected is not None and actual is not None:
        return str(expected), str(actual)
    for cause in causes(finding, receipt):
        if cause.expected is not None and cause.actual is not None:
            return cause.expected, cause.actual
    return None


class WrittenBy(Struct, frozen=True):
    """A function of the target that writes a guarded variable; `line` None where not known."""

    function: str
    file: str | None
    line: int | None


def writers(finding: FindingRecord, receipt: Receipt) -> tuple[WrittenBy, ...]:
    """Who writes the variable, each once: from the causes, else from the evidence."""
    parts = [
        WrittenBy(item.function, item.file, item.line)
        for cause in causes(finding, receipt)
        for item in cause.writers
    ]
    if not parts:
        parts = [_writer(item) for item in _items(finding.evidence.get("writers"))]
    return tuple(dict.fromkeys(parts))


def _writer(value: object) -> WrittenBy:
    if isinstance(value, Mapping):
        place = cast("Mapping[str, object]", value)
        line = place.get("line")
        return WrittenBy(
            str(place.get("function")),
            str(place["file"]) if place.get("file") else None,
            line if isinstance(line, int) else None,
        )
    return WrittenBy(str(value), None, None)


def compile_ids(finding: FindingRecord) -> tuple[str, ...]:
    """Ids of the compiles the finding speaks of."""
    return tuple(str(item) for item in _items(finding.evidence.get("compile_ids")))


def events(finding: FindingRecord, receipt: Receipt) -> list[CompileEvent]:
    """The compiles the finding speaks of, in time order."""
    ids = frozenset(compile_ids(finding))
    named = [item for item in receipt.compile.events if item.compile_id in ids]
    # Ids repeat after a reset and in every process: keep those that this cause explains.
    explained = [item for item in named if any(_about(finding, c) for c in item.causes)]
    return explained or named


def causes(finding: FindingRecord, receipt: Receipt) -> Iterable[EventCause]:
    """The false guards of those compiles that are about the finding's variable."""
    for event in events(finding, receipt):
        for cause in event.causes:
            if _about(finding, cause):
                yield cause


def _about(finding: FindingRecord, cause: EventCause) -> bool:
    return cause.family == finding.family and cause.variable == finding.variable


def _items(value: object) -> list[object]:
    if isinstance(value, (list, tuple)):
        return list(cast("list[object]", value))
    return []
