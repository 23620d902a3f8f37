"""Settings of torch that need no edit of the program, as lines for a shell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from compilediag.rules import changes as environment

if TYPE_CHECKING:
    from compilediag.receipt.schema.compiles import CandidateRecord, FindingRecord


def export_line(candidate: CandidateRecord) -> str:
    """What to type before the program is started."""
    return environment.export_line(candidate.setting, candidate.value)


def joined_exports(findings: Iterable[FindingRecord]) -> list[str]:
    """The best settings of all findings together, where several need the same variable: the second
    `export` of it would replace the first."""
    best = [candidate for finding in findings for candidate in finding.fix.candidates[:1]]
    variables = dict.fromkeys((candidate.setting, candidate.value) for candidate in best)
    if len({setting for setting, _ in variables}) == len(variables):
        return []
    return [environment.export_line(*each) for each in environment.joined(variables).items()]
