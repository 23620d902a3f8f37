"""The receipt of the program as it is, with what the pairs of runs show in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from compilediag.compare.against_eager.conclude import Payoff
from compilediag.compare.against_eager.slower import slower_than_eager
from compilediag.receipt.build.compiles import finding_record
from compilediag.receipt.build.relative_paths import PathShortener
from compilediag.receipt.sanitize import sanitized
from compilediag.receipt.schema.against_eager import (
    AgainstEagerSection,
    ArmRecord,
    CallableAgainstEager,
)
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.timeline import Timeline
from compilediag_harness.redaction.redactor import Redactor


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One run that was made."""

    arm: Literal["compiled", "eager"]
    pair: int
    """0 for the first."""
    wall_s: float | None
    steps: int
    problem: str | None = None
    """Why it did not end well."""


def with_payoff(
    receipt: Receipt,
    timeline: Timeline,
    payoff: Payoff,
    runs: Sequence[ArmRun],
    *,
    fresh_caches: bool,
    secret_values: Sequence[str] = (),
) -> Receipt:
    """The receipt of the first compiled run with its section `against_eager`, and the findings of
    CD631 after its own; both redacted and bounded like the rest.

    Args:
        receipt: of the first compiled run.
        timeline: what it was made from.
        payoff: what the pairs show.
        runs: all that were made.
        fresh_caches: each run had empty caches of its own.
        secret_values: what must not stand in a receipt.
    """
    places, redactor = PathShortener(timeline), Redactor(tuple(secret_values))
    section, finite = sanitized(
        record_from(
            AgainstEagerSection,
            payoff,
            caches="fresh" if fresh_caches else "kept",
            callables=tuple(
                record_from(
                    CallableAgainstEager,
                    each,
                    function=replace(each.function, file=places.short(each.function.file)),
                )
                for each in payoff.callables
            ),
            runs=tuple(record_from(ArmRecord, each) for each in runs),
        ),
        redactor,
    )
    first = len(receipt.findings) + 1
    found = [
        sanitized(finding_record(replace(each, id=f"F{number}"), places), redactor)[0]
        for number, each in enumerate(slower_than_eager(timeline, payoff), start=first)
    ]
    checks = receipt.checks
    return msgspec.structs.replace(
        receipt,
        verdict="findings" if found and receipt.verdict == "clean" else receipt.verdict,
        findings=(*receipt.findings, *found),
        against_eager=section,
        checks=checks if finite else msgspec.structs.replace(checks, values_finite=False),
    )
