"""Watched tests: the hooks around them, and each from its setup to the end of its call.

The hooks are registered only in a session that has such tests.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from compilediag.pytest_plugin.fixture import CompileFixture
from compilediag.pytest_plugin.judge import JudgedPart, judge
from compilediag.pytest_plugin.lanes import judge_lane, judge_limits, open_baseline
from compilediag.pytest_plugin.marks import (
    COUNTED,
    COUNTS,
    BadMark,
    Requirements,
    requirements_of,
    shared_lanes,
)
from compilediag.pytest_plugin.problems import CompileFailure, Problem, blind, failure_text
from compilediag.pytest_plugin.report import write_receipt_of
from compilediag.pytest_plugin.settings import (
    SessionSettings,
    forget_compiled_code,
    own_cache_folder,
    settings_of,
)
from compilediag.runs.watch import WatchResult, watch

SECTION = "compilediag"


class WatchedTest:
    """What one test compiles, and what is required of it."""

    def __init__(
        self, item: pytest.Item, required: Requirements, settings: SessionSettings
    ) -> None:
        self._item = item
        self._required = required
        self._settings = settings
        self._watch: watch | None = None
        self._run: WatchResult | None = None
        self._improvements = 0
        self.fixture: CompileFixture | None = None

    def open(self) -> None:
        """Begins to watch, after torch has forgotten what earlier tests compiled where this one
        is judged."""
        self.close()
        if self._required.any or self._required.fixture or self._settings.limits:
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
        if failed is None:
            # `unittest` raises nothing out of its call: neither a failure nor that it was skipped.
            inside: Any = getattr(self._item, "_excinfo", None)
            failed = inside[0].value if inside else None
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
            worse, self._improvements = judge_lane(self._item.config, run, required, settings)
            problems += worse
        return problems

    def _record(self, run: WatchResult, outcome: str) -> None:
        """The counts as user properties, which pytest-xdist and junitxml carry on, and the
        receipt where --compilediag-report is set."""
        part, properties = JudgedPart(run), self._item.user_properties
        properties.append((COUNTED, run.receipt.verdict))
        counts = ((name, part.count(name)) for name in COUNTS)
        properties += [(f"compilediag.{name}", n) for name, n in counts if n is not None]
        if self._improvements:
            properties.append(("compilediag.improvements", self._improvements))
        properties.append(("compilediag.judged", outcome))
        if self._settings.report is not None:
            write_receipt_of(run, self._item.nodeid, self._settings.report)


_WATCHED = pytest.StashKey[WatchedTest]()


def watch_tests(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Prepares these tests to be watched, and puts the hooks in place.

    Raises:
        pytest.UsageError: with every marker and setting that cannot be used.
    """
    settings = settings_of(config)
    tests: dict[str, Requirements] = {}
    wrong: list[str] = []
    for item in items:
        try:
            tests[item.nodeid] = required = requirements_of(item)
        except BadMark as error:
            wrong.append(f"{item.nodeid}: {error}")
            continue
        item.stash[_WATCHED] = WatchedTest(item, required, settings)
    wrong += shared_lanes(tests)
    if wrong:
        raise pytest.UsageError("compilediag: " + "\n  ".join(wrong))
    if any(required.lane is not None for required in tests.values()):
        open_baseline(config, settings)
    own_cache_folder(config)
    if not config.pluginmanager.has_plugin(_Hooks.NAME):
        config.pluginmanager.register(_Hooks(), _Hooks.NAME)


def fixture_of(request: pytest.FixtureRequest) -> CompileFixture:
    """The fixture of the test that requests it."""
    test = request.node.stash.get(_WATCHED, None)
    if test is None or test.fixture is None:
        raise pytest.UsageError(
            "the fixture `compilediag` must be an argument of the test or of one of its fixtures: "
            "requested later, it has not seen what the test compiled"
        )
    return test.fixture


class _Hooks:
    """Innermost wrappers: what pytest puts around a test (log capture, xfail) is around these."""

    NAME = "compilediag-watched-tests"

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        test = item.stash.get(_WATCHED, None)
        if test is None:
            return (yield)
        test.open()
        try:
            return (yield)
        except BaseException:
            test.close()
            raise

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        test = item.stash.get(_WATCHED, None)
        if test is None:
            return (yield)
        try:
            result = yield
        except BaseException as error:
            test.judge(error)
            raise
        test.judge(None)
        return result

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        test = item.stash.get(_WATCHED, None)
        if test is None:
            return (yield)
        try:
            return (yield)
        finally:
            test.close()
