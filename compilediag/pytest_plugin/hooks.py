"""The hooks around watched tests, registered only in a session that has such tests."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from compilediag.pytest_plugin import FIXTURE
from compilediag.pytest_plugin.fixture import CompileFixture
from compilediag.pytest_plugin.isolation import own_cache_folder
from compilediag.pytest_plugin.lanes import open_baseline
from compilediag.pytest_plugin.marks import BadMark, Requirements, requirements_of, shared_lanes
from compilediag.pytest_plugin.settings import settings_of
from compilediag.pytest_plugin.watcher import WatchedTest

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
        test.open(uses_fixture=FIXTURE in getattr(item, "fixturenames", ()))
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
