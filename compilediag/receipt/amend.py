"""A receipt with what is found out beside its own run: by a second start, or by pairs of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from compilediag.diagnosis.findings import Finding
from compilediag.receipt.compiles import finding_record
from compilediag.receipt.sanitize import sanitized, working_directories
from compilediag.receipt.schema.receipt import Receipt
from compilediag.receipt.schema.record import Record
from compilediag.timeline.timeline import Timeline
from compilediag_harness.redaction.redactor import Redactor


def amended(
    receipt: Receipt,
    timeline: Timeline,
    findings: Iterable[Finding],
    secret_values: Sequence[str] = (),
    **sections: Record,
) -> Receipt:
    """The receipt with these findings after its own and these sections in place of its own;
    redacted and bounded like the rest.

    Args:
        receipt: of a run.
        timeline: what it was made from.
        findings: numbered from the last of the receipt.
        secret_values: what must not stand in a receipt.
        sections: by name.
    """
    numbered = enumerate(findings, start=len(receipt.findings) + 1)
    records = [finding_record(replace(each, id=f"F{number}")) for number, each in numbered]
    redactor, directories = Redactor(tuple(secret_values)), working_directories(timeline)
    added, _ = sanitized(records, redactor, directories)
    safe, finite = sanitized([*sections.values()], redactor, directories)
    checks = receipt.checks
    return replace(
        receipt,
        verdict="findings" if added and receipt.verdict == "clean" else receipt.verdict,
        findings=(*receipt.findings, *added),
        checks=checks if finite else replace(checks, values_finite=False),
        **dict(zip(sections, safe, strict=True)),
    )
