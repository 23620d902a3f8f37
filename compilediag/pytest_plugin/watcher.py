"""One watched test from its setup to the end of its call: opened, judged, told."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence

import pytest

from compilediag.pytest_plugin import COUNTED
from compilediag.pytest_plugin.counted import counted
from compilediag.pytest_plugin.fixture import Ledger
from compilediag.pytest_plugin.isolation import forget_compiled_code
from compilediag.pytest_plugin.judge_test import Problem, blind, judge
from compilediag.pytest_plugin.lanes import judge_lane, judge_limits
from compilediag.pytest_plugin.marks import COUNTS, Demands
from compilediag.pytest_plugin.problems import CompileFailure, tell
from compilediag.pytest_plugin.quiet_logs import QuietLogs
from compilediag.pytest_plugin.receipt_files import write_receipt_of
from compilediag.pytest_plugin.settings import Settings
from compilediag.runs.watch import WatchResult, watch

SECTION = "compilediag"


class WatchedTest:
    """What one test compiles, and what is asked of it."""

    def __init__(self, item: pytest.Item, demands: Demands, settings: Settings) -> None:
        self._item = item
        self._demands = demands
        self._settings = settings
        self._logs = QuietLogs()
        self._watch: watch | None = None
        self._seen: WatchResult | None = None
        self._improvements = 0
        self.ledger: Ledger | None = None

    def open(self, *, uses_fixture: bool) -> None:
        """Begins to watch, after torch has forgotten what earlier tests compiled where this one
        is judged."""
        self.close()
        if self._demands.any or uses_fixture or self._settings.limits:
            forget_compiled_code()
        self._logs.__enter__()
        root = str(self._item.config.rootpath)
        folders = (root, os.path.dirname(str(self._item.path)))
        lane = self._demands.lane or self._item.nodeid
        self._watch = watch(root=root, user_roots=folders, lane=lane)
        self._seen = self._watch.__enter__()
        self.ledger = Ledger(self._seen, self._fail)

    def judge(self, failed: BaseException | None) -> None:
        """The call has ended: what the markers forbid fails the test, unless it `failed` anyway.

        Raises:
            CompileFailure: with everything that is wrong.
        """
        seen, ledger = self._seen, self.ledger
        if seen is None or ledger is None:
            return
        self._stop(failed)
        inside = _failed_inside(self._item)
        failed = failed or inside
        if isinstance(failed, pytest.skip.Exception | pytest.exit.Exception | KeyboardInterrupt):
            return
        asked = self._demands.any or ledger.judged
        try:
            problems = self._problems(seen, ledger, alone=failed is None)
            text = tell(problems)
            self._record(seen, "failed" if problems else "passed")
        except Exception as error:
            if asked:
                raise
            # A test that only shows its counts never fails for a fault of ours.
            told = "".join(traceback.format_exception_only(error)).strip()
            self._item.add_report_section(
                "call", SECTION, f"compilediag: a fault of its own: {told}"
            )
            return
        if not problems:
            return
        if failed is not None:
            self._item.add_report_section("call", SECTION, text)
            return
        raise CompileFailure(text)

    def close(self) -> None:
        """Stops watching, whatever happened."""
        self._stop(None)
        self._seen = self.ledger = None

    def release_logs(self) -> None:
        """pytest may listen to torch again as it likes."""
        self._logs.__exit__(None, None, None)

    def _stop(self, failed: BaseException | None) -> None:
        watching, self._watch = self._watch, None
        if watching is not None:
            trace = failed.__traceback__ if failed is not None else None
            watching.__exit__(type(failed) if failed is not None else None, failed, trace)

    def _problems(self, seen: WatchResult, ledger: Ledger, *, alone: bool) -> list[Problem]:
        """Everything that is wrong; a lane is judged `alone`, not where the test itself failed."""
        timeline, demands = seen.timeline, self._demands
        problems: list[Problem] = []
        if demands.any:
            problems = judge(timeline, seen.diagnosis, demands, ledger.warmups, seen.calls)
        elif ledger.judged:
            problems = blind(timeline, seen.diagnosis, seen.calls, quiet=True)
        compiled = any(frame.graphs for frame in timeline.frames)
        if not alone or any(problem.blind for problem in problems):
            return problems
        if self._settings.limits and compiled:
            problems += judge_limits(seen, self._settings)
        if demands.lane is not None and not (problems and self._settings.update):
            found = judge_lane(self._item.config, seen, demands, self._settings)
            problems += found.problems
            self._improvements = found.improvements
        return problems

    def _record(self, seen: WatchResult, outcome: str) -> None:
        """The counts as user properties, which pytest-xdist and junitxml carry on, and the
        receipt where one was asked for."""
        found = counted(seen.timeline, seen.diagnosis.causes)
        told: list[tuple[str, object]] = [(COUNTED, seen.diagnosis.verdict)]
        for name in COUNTS:
            number = found.number(name)
            if number is not None:
                told.append((f"compilediag.{name}", number))
        if self._improvements:
            told.append(("compilediag.improvements", self._improvements))
        told.append(("compilediag.judged", outcome))
        self._item.user_properties.extend(told)
        if self._settings.report is not None:
            write_receipt_of(seen, self._item.nodeid, self._settings.report)

    def _fail(self, problems: Sequence[Problem], block: str) -> None:
        __tracebackhide__ = True
        raise CompileFailure(tell(problems, block))


def _failed_inside(item: pytest.Item) -> BaseException | None:
    """What ended a test of `unittest`, which raises nothing out of its call: its failure, or that
    it was skipped."""
    told: Sequence[pytest.ExceptionInfo[BaseException]] = getattr(item, "_excinfo", None) or ()
    return told[0].value if told else None
