"""Findings without a proved change, for a gate that demands one of each."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from compilediag.compare.gate.entries import finding_item
from compilediag.compare.gate.judgement import Item
from compilediag.compare.run_baseline import RunBaseline
from compilediag.receipt.proofs import missing_proof
from compilediag.receipt.schema.receipt import Receipt


def unproved(receipt: Receipt, run: RunBaseline) -> Iterable[Item]:
    """An item for each finding of at least `warning`, also one that a baseline allows. What was
    tried in vain has to be edited by hand; all else `compilediag fix` can try."""
    for finding in receipt.findings:
        if finding.severity == "info" or not run.counts_finding(finding):
            continue
        if (why := missing_proof(finding, receipt)) is not None:
            item = finding_item(receipt, finding)
            number = finding.id.removeprefix("F")
            following = "explain" if finding.fix.refused else "fix"
            message = f"{item.message}: {why}; run `compilediag {following} {number}`"
            yield replace(item, kind="unproved", message=message, after=None)
