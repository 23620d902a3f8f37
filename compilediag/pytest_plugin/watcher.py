"""One watched test from its setup to the end of its call: opened, judged, reported."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence

import pytest

from compilediag.pytest_plugin import COUNTED
from compilediag.pytest_plugin.fixture import CompileFixture
from compilediag.pytest_plugin.isolation import forget_compiled_code
from compilediag.pytest_plugin.judge import JudgedPart, judge
from compilediag.pytest_plugin.lanes import judge_lane, judge_limits
from compilediag.pytest_plugin.marks import COUNTS, Requirements
from compilediag.pytest_plugin.problems import CompileFailure, Problem, blind, failure_text
from compilediag.pytest_plugin.receipt_files import write_receipt_of
from compilediag.pytest_plugin.settings import Settings
from compilediag.runs.watch import WatchResult, watch

SECTION = "compilediag"


class WatchedTest:
    """What one test compiles, and what is required of it."""

    def __init__(self, item: pytest.Item, required: Requirements, settings: Settings) -> None:
        self._item = item
        self._required = required
        self._settings = settings
        self._watch: watch | None = None
        self._run: WatchResult | None = None
        self._improvements = 0
        self.fixture: CompileFixture | None = None

    def open(self, *, uses_fixture: bool) -> None:
        """Begins to watch, after torch has forgotten what earlier tests compiled where this one
        is judged."""
        self.close()
        if self._required.any or uses_fixture or self._settings.limits:
            forget_compiled_code()
        root = str(self._item.config.rootpath)
        folders = (root, os.path.dirname(str(self._item.path)))
        lane = self._required.lane or self._item.nodeid
        self._watch = watch(root=root, user_roots=folders, lane=lane)
        self._run = self._watch.__enter__()
        self.fixture = CompileFixture(self._run)

    def judge(self, failed: BaseException | None) -> None:
        """The call has ended: what the markers forbid fails the test, unless it `failed` anyway.

        Raises:
            CompileFailure: with everything that is wrong.
        """
        run, fixture = self._run, self.fixture
        if run is None or fixture is None:
            return
        self._stop(failed)
        failed = failed or _failed_inside(self._item)
        if isinstance(failed, pytest.skip.Exception | pytest.exit.Exception | KeyboardInterrupt):
            return
        try:
            problems = self._problems(run, fixture, passed=failed is None)
            text = failure_text(problems)
            self._record(run, "failed" if problems else "passed")
        except Exception as error:
            if self._required.any or fixture.judged:
                raise
            # A test that only shows its counts never fails for a fault of ours.
            fault = "".join(traceback.format_exception_only(error)).strip()
            text = f"compilediag: a fault of its own: {fault}"
            self._item.add_report_section("call", SECTION, text)
            return
        if problems and failed is None:
            raise CompileFailure(text)
        if problems:
            self._item.add_report_section("call", SECTION, text)

    def close(self) -> None:
        """Stops watching, whatever happened."""
        self._stop(None)
        self._run = self.fixture = None

    def _stop(self, failed: BaseException | None) -> None:
        watching, self._watch = self._watch, None
        if watching is not None:
            trace = failed.__traceback__ if failed is not None else None
            watching.__exit__(type(failed) if failed is not None else None, failed, trace)

    def _problems(
        self, run: WatchResult, fixture: CompileFixture, *, passed: bool
    ) -> list[Problem]:
        """Everything that is wrong; limits and lanes are for tests that `passed` themselves."""
        required, settings = self._required, self._settings
        problems: list[Problem] = []
        if required.any:
            problems = judge(run, required, fixture.warmups)
        elif fixture.judged:
            problems = blind(run.receipt, run.calls, may_be_quiet=True)
        if not passed or any(problem.blind for problem in problems):
            return problems
        if settings.limits and run.receipt.compile.graphs:
            problems += judge_limits(run, settings)
        if required.lane is not None and not (problems and settings.update):
            found = judge_lane(self._item.config, run, required, settings)
            problems += found.problems
            self._improvements = found.improvements
        return problems

    def _record(self, run: WatchResult, outcome: str) -> None:
        """The counts as user properties, which pytest-xdist and junitxml carry on, and the
        receipt where --compilediag-report is set."""
        part = JudgedPart(run)
        properties: list[tuple[str, object]] = [(COUNTED, run.receipt.verdict)]
        counts = ((name, part.count(name)) for name in COUNTS)
        properties += [(f"compilediag.{name}", n) for name, n in counts if n is not None]
        if self._improvements:
            properties.append(("compilediag.improvements", self._improvements))
        properties.append(("compilediag.judged", outcome))
        self._item.user_properties.extend(properties)
        if self._settings.report is not None:
            write_receipt_of(run, self._item.nodeid, self._settings.report)


def _failed_inside(item: pytest.Item) -> BaseException | None:
    """What ended a test of `unittest`, which raises nothing out of its call: its failure, or that
    it was skipped."""
    errors: Sequence[pytest.ExceptionInfo[BaseException]] = getattr(item, "_excinfo", None) or ()
    return errors[0].value if errors else None
