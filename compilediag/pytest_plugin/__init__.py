"""The entry of the pytest plugin, loaded in every session: options, markers and the fixture.

Invariant: imports the standard library, pytest and `marks.py` only; torch and the rest of
compilediag are imported when a test is collected that is to be watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compilediag.pytest_plugin.marks import COUNTED, MARKERS, is_marked

if TYPE_CHECKING:
    from compilediag.pytest_plugin.hooks import CompileFixture


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options and ini keys."""
    group = parser.getgroup("compilediag", "torch.compile: recompiles, graph breaks, fallbacks")
    group.addoption(
        "--compilediag",
        action="store_true",
        help="watch every test and show what it compiled",
    )
    group.addoption(
        "--compilediag-report",
        metavar="DIR",
        help="write a receipt of every watched test into DIR, and a page of them all",
    )
    group.addoption(
        "--compilediag-update",
        action="store_true",
        help="write what compile_baseline names into the baseline instead of judging it",
    )
    parser.addini("compilediag", "as --compilediag", type="bool", default=False)
    parser.addini("compilediag_report", "as --compilediag-report", default="")
    parser.addini(
        "compilediag_baseline",
        "baseline of compile_baseline, relative to pytest's configuration file",
        default="compilediag.lock.json",
    )
    parser.addini(
        "compilediag_fail_on",
        "limits for every watched test that compiles, such as recompiles>0,graph_breaks>2",
        default="",
    )
    parser.addini(
        "compilediag_strict_improvement",
        "a configuration that is better than the baseline fails until it is updated",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; a worker of pytest-xdist gets its own compile cache in time."""
    for text in MARKERS.values():
        config.addinivalue_line("markers", text)
    if should_watch_all(config) and hasattr(config, "workerinput"):
        from compilediag.pytest_plugin.settings import set_cache_folder

        set_cache_folder(config)


def should_watch_all(config: pytest.Config) -> bool:
    """True if `--compilediag`, or its ini key, asks to watch every test."""
    return bool(config.getoption("compilediag") or config.getini("compilediag"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Register the plugin's other hooks when a test needs them.

    Raises:
        pytest.UsageError: a marker or a setting cannot be used as it is written.
    """
    everything = should_watch_all(config)
    watched = [test for test in items if everything or is_marked(test)]
    if watched:
        from compilediag.pytest_plugin.hooks import watch_tests

        try:
            watch_tests(config, watched)
        except pytest.UsageError as error:
            if not hasattr(config, "workerinput"):
                raise
            # A worker of pytest-xdist cannot end the session: it reports an error and runs nothing.
            report = pytest.CollectReport("compilediag", "failed", f"ERROR: {error}", [])
            config.hook.pytest_collectreport(report=report)
            items.clear()


@pytest.fixture
def compilediag(request: pytest.FixtureRequest) -> CompileFixture:
    """torch.compile in this test: warmup(), steady(), expect(), assert_frames()."""
    from compilediag.pytest_plugin.hooks import get_fixture

    return get_fixture(request)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take the configurations of a pytest-xdist worker that is done: the controller writes once."""
    configurations = getattr(node, "workeroutput", {}).get("compilediag_lanes")
    if configurations:
        from compilediag.pytest_plugin.configurations import store_configurations

        store_configurations(node.config, configurations)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the configurations of `--compilediag-update`."""
    if session.config.getoption("compilediag_update"):
        from compilediag.pytest_plugin.configurations import write_baseline

        write_baseline(session)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write one line for each test that was watched."""
    watched = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if any(name == COUNTED for name, _ in getattr(report, "user_properties", ()))
    ]
    if watched or terminalreporter.config.getoption("compilediag_update"):
        from compilediag.pytest_plugin.report import write_summary

        write_summary(terminalreporter, watched)
