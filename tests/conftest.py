"""What every test starts from: no variable of the machine that runs the tests changes a screen."""

from __future__ import annotations

import signal

import pytest

ANNOUNCING = ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITLAB_CI")
"""pytest shows longer lines where one of the first two is set, our own views another format."""


def pytest_configure() -> None:
    """A job in the background, or one that `nohup` started, ignores what a terminal would send, and
    so would the programs that tests interrupt."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)


@pytest.fixture(autouse=True)
def _at_a_desk(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """A continuous integration service announces itself; what pytest and we print then differs."""
    for name in ANNOUNCING:
        monkeypatch.delenv(name, raising=False)
