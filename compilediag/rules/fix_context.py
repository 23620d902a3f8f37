"""A finding with what changes are made from (`FixContext`), such as the calls of the program's own
by which its function was compiled."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from packaging.version import InvalidVersion, Version

from compilediag.receipt.schema.compiles import CompileEvent, FindingRecord, UserCallRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag_harness.base.resumed_frames import find_resumed_function
from compilediag_harness.wire import Location

# Invariant: no blank, quote, `$`, backslash or `!` in an item of the path: sources are put between
# double quotes of a shell as they are (`format_export`).
PARAMETER = re.compile(r"L\['(?!___)([A-Za-z_]\w*)'\]((?:\[[^\s$`\\\"!]+\]|\.\w+)*)")
"""A source below a parameter: its name, none of Dynamo's own, and the path below it."""

FIRST_WITH_UNBACKED = Version("2.13")
"""TORCH_COMPILE_UNBACKED_SOURCES, `ignore_logging_functions`, overrides in the environment, and
keywords of `torch.compile` about recompiles."""


@dataclass(frozen=True)
class FixContext:
    """A finding of a receipt, and the run that it is of: what changes are proposed from."""

    finding: FindingRecord
    receipt: Receipt
    version: Version
    """Of torch."""

    @cached_property
    def evidence(self) -> GuardEvidence:
        """The evidence, read as that of a finding about guards."""
        return GuardEvidence.parse(self.finding.evidence)

    @property
    def source(self) -> str:
        """The guarded variable as guards name it; empty where there is none."""
        return self.evidence.source or ""

    @property
    def kind(self) -> str:
        """The kind among those that its rule distinguishes; empty where there is none."""
        return self.evidence.kind or ""

    @property
    def values(self) -> list[tuple[str, str]]:
        """Each change that was seen, as (before, after)."""
        seen = self.evidence.values or [(self.evidence.expected, self.evidence.actual)]
        return [(before, after) for before, after in seen if before and after]

    @property
    def compiles(self) -> list[CompileEvent]:
        """The compiles that the finding caused."""
        return [
            event
            for event in self.receipt.compile.events
            if any(cause.finding == self.finding.id for cause in event.causes)
        ]

    @property
    def compiles_of_frames(self) -> list[CompileEvent]:
        """Every compile of the frames that the finding recompiled, but for what goes on behind a
        graph break: no call of the program's enters it."""
        frames = {
            event.frame
            for event in self.compiles
            if find_resumed_function(event.frame.function or "") is None
        }
        return [event for event in self.receipt.compile.events if event.frame in frames]

    @cached_property
    def function(self) -> Location | None:
        """The compiled function whose recompiles the finding is about, where that is what the
        program calls: marks are put on its arguments."""
        frames = {(event.frame.file, event.frame.line) for event in self.compiles}
        called = [
            invocation
            for invocation in self.receipt.invocations
            if (invocation.file, invocation.line) in frames
        ]
        if len(frames) != 1 or not called:
            return None
        return Location(called[0].file or "", called[0].line or 0, called[0].name)

    @cached_property
    def _compiled(self) -> frozenset[tuple[str | None, str | None]]:
        """Files and names of the functions that were compiled."""
        frames = (event.frame for event in self.receipt.compile.events)
        return frozenset(
            (at.file, find_resumed_function(at.function or "") or at.function) for at in frames
        )

    def is_compiled(self, call: UserCallRecord | None) -> bool:
        """True for a call in a function that is compiled itself: torch raises at a mark there."""
        return call is not None and (call.file, call.function) in self._compiled

    def is_own(self, file: str | None) -> bool:
        """True where a file is the program's own: others are never edited."""
        return file in self.receipt.header.provenance.source_sha256


def make_context(finding: FindingRecord, receipt: Receipt) -> FixContext | None:
    """Make the context of a finding; None where the version of torch is not known: what it can do
    is not, either."""
    version = parse_torch_version(receipt.environment.torch or "")
    return None if version is None else FixContext(finding, receipt, version)


def parse_torch_version(text: str) -> Version | None:
    """Parse a version of torch without what a build adds to it; None where the text is none."""
    try:
        return Version(Version(text).base_version)
    except InvalidVersion:
        return None
