"""A finding with what candidates are made from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from packaging.version import InvalidVersion, Version

from compilediag.receipt.schema.compiles import CompileEvent, FindingRecord
from compilediag.receipt.schema.evidence import GuardEvidence
from compilediag.receipt.schema.receipt import Receipt
from compilediag_harness.wire import Location, resumed_function

PARAMETER = re.compile(r"L\['([A-Za-z_]\w*)'\]((?:\[[^\s$`\\\"!]+\]|\.\w+)*)")
"""A source below a parameter: its name, and the path below it."""

FIRST_WITH_UNBACKED = Version("2.13")
"""TORCH_COMPILE_UNBACKED_SOURCES, `ignore_logging_functions`, overrides in the environment, and
keywords of `torch.compile` about recompiles."""


@dataclass(frozen=True)
class Case:
    """A finding, and the run that it is of."""

    finding: FindingRecord
    receipt: Receipt
    version: Version
    """Of torch."""

    @property
    def source(self) -> str:
        """The guarded variable as guards name it; empty where there is none."""
        return GuardEvidence.of(self.finding.evidence).source or ""

    @property
    def kind(self) -> str:
        """Which of its rule's cases it is."""
        return GuardEvidence.of(self.finding.evidence).kind or ""

    @property
    def guard(self) -> str:
        """The text of the guard; empty where there is none."""
        return GuardEvidence.of(self.finding.evidence).guard or ""

    @property
    def values(self) -> list[tuple[str, str]]:
        """Each change that was seen, as (before, after)."""
        guard = GuardEvidence.of(self.finding.evidence)
        seen = guard.values or [(guard.expected, guard.actual)]
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
            if resumed_function(event.frame.function or "") is None
        }
        return [event for event in self.receipt.compile.events if event.frame in frames]

    @cached_property
    def function(self) -> Location | None:
        """The compiled function whose recompiles the finding is about, where that is what the
        program calls: marks are put on its arguments."""
        frames = {(event.frame.file, event.frame.line) for event in self.compiles}
        called = [item for item in self.receipt.invocations if (item.file, item.line) in frames]
        if len(frames) != 1 or not called:
            return None
        return Location(called[0].file or "", called[0].line or 0, called[0].name)

    @property
    def has_compile_keywords(self) -> bool:
        """Whether `torch.compile` takes `recompile_limit` and `isolate_recompiles`."""
        return self.version >= FIRST_WITH_UNBACKED

    def is_own(self, file: str | None) -> bool:
        """Whether a file is the program's own: others are never edited."""
        return file in self.receipt.header.provenance.source_sha256

    @property
    def call_place(self) -> str:
        """Where the program's own call is, for the end of a line; empty where it is not known."""
        entered = self.finding.entered_at
        return f", {entered.file}:{entered.line}" if entered is not None else ""


def case_of(finding: FindingRecord, receipt: Receipt) -> Case | None:
    """None where the version of torch is not known: what it can do is not, either."""
    try:
        version = Version(Version(receipt.environment.torch or "").base_version)
    except InvalidVersion:
        return None
    return Case(finding, receipt, version)
