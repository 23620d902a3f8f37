"""A recompile that has just ended, in the words of the verdict."""

from __future__ import annotations

import os
from collections.abc import Sequence

from compilediag.receipt.build.run_metadata import RunMetadata
from compilediag.runs.pipeline import RunEvents, receipt_of
from compilediag.views.finding_rows import finding_line
from compilediag.views.style import RenderOptions
from compilediag_harness.wire import Event, StepEvent

OUTLOOK = frozenset({"CD150", "CD151"})
"""What has not happened yet: the verdict says it once."""
NAMED = frozenset({"CD152", "CD190"})
"""Their titles say what they are."""


def sentences_on(events: Sequence[Event], secrets: tuple[str, ...]) -> list[str]:
    """A sentence for each finding that these events of one compile give by themselves."""
    run = RunMetadata("", "", secret_values=secrets)
    receipt = receipt_of(RunEvents([events]), run).receipt
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    last = events[-1]
    step = f"step {last.step}: " if isinstance(last, StepEvent) else ""
    told = [
        (finding.rule, finding_line(finding, receipt, RenderOptions(root=folder)))
        for finding in receipt.findings
        if finding.rule.startswith("CD1") and finding.rule not in OUTLOOK
    ]
    return [step + (line if rule in NAMED else f"recompile: {line}") for rule, line in told]
