"""The receipt of the second start, with what it still pays after the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from compilediag.compare.cold_and_warm.changing_key import changing_keys
from compilediag.compare.cold_and_warm.conclude import ColdAndWarm, CompiledAgain
from compilediag.diagnosis.rules.make_finding import pick
from compilediag.receipt.build.compiles import finding_record
from compilediag.receipt.build.relative_paths import PathShortener
from compilediag.receipt.sanitize import sanitized
from compilediag.receipt.schema.cold_and_warm import ColdAndWarmSection, CompiledAgainRecord
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import record_from
from compilediag.timeline.timeline import Timeline
from compilediag_harness.redaction.redactor import Redactor

ANSWERS = ("hits", "misses", "bypasses", "disabled", "failed")
AGAIN_KEPT, CHANGES_KEPT = 100, 20
"""Most compiles listed, and components of each."""


def with_starts(
    receipt: Receipt, warm: Timeline, found: ColdAndWarm, secret_values: Sequence[str] = ()
) -> Receipt:
    """The receipt of the second start with its section `cold_and_warm`, and the findings of CD612
    after its own; both redacted and bounded like the rest.

    Args:
        receipt: of the second start.
        warm: what it was made from.
        found: the comparison with the first start.
        secret_values: what must not stand in a receipt.
    """
    places, redactor = PathShortener(warm), Redactor(tuple(secret_values))
    section, finite = sanitized(_section(found, places), redactor)
    first = len(receipt.findings) + 1
    more = [
        sanitized(finding_record(replace(each, id=f"F{number}"), places), redactor)[0]
        for number, each in enumerate(changing_keys(warm, found), start=first)
    ]
    checks = receipt.checks
    return msgspec.structs.replace(
        receipt,
        verdict="findings" if more and receipt.verdict == "clean" else receipt.verdict,
        findings=(*receipt.findings, *more),
        cold_and_warm=section,
        checks=checks if finite else msgspec.structs.replace(checks, values_finite=False),
    )


def _section(found: ColdAndWarm, places: PathShortener) -> ColdAndWarmSection:
    left_out = len(found.again) - AGAIN_KEPT
    more = (f"{left_out} more compiles are not listed",) if left_out > 0 else ()
    return record_from(
        ColdAndWarmSection,
        found,
        cold_answers={use.cache: pick(use, *ANSWERS) for use in found.cold_caches},
        again=tuple(_again(each, places) for each in found.again[:AGAIN_KEPT]),
        notes=(*found.notes, *more),
    )


def _again(each: CompiledAgain, places: PathShortener) -> CompiledAgainRecord:
    frame = each.frame
    place = "" if frame is None else f"{frame.function} at {places.short(frame.file)}:{frame.line}"
    kept = each.changes[:CHANGES_KEPT]
    changes = {item.name: (item.before, item.after) for item in kept}
    return record_from(CompiledAgainRecord, each, place=place, changes=changes)
