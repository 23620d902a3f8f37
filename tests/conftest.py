"""What every test starts from: no variable of the machine that runs the tests changes a screen."""

import os
import signal
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
import scenario_cases
from hypothesis import HealthCheck, settings

ANNOUNCING = ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITLAB_CI")
"""pytest shows longer lines where one of the first two is set, our own views another format."""


def pytest_configure() -> None:
    """What programs that tests start inherit: the signals of a terminal, and one thread each."""
    # A job in the background, or one that `nohup` started, ignores what a terminal would send, and
    # so would the programs that tests interrupt.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
    # Several programs compute at a time: on cores that are taken, the threads of OpenMP wait for
    # one another in a busy loop.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # inductor does not try out what the processor has: with empty caches, that is six more runs of
    # the compiler and three of Python in every program.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
    # Set before there are workers: they choose the same scenarios, on whichever side of midnight.
    os.environ.setdefault("TODAY", datetime.now(timezone.utc).date().isoformat())
    # A busy machine takes longer for an example than the 200 ms that are allowed by default.
    settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any machine")


def pytest_report_header() -> str:
    """The line that says which scenarios are recorded anew, so that a failure can be had again."""
    chosen = [name for name in scenario_cases.names() if scenario_cases.is_in_tenth(name)]
    return f"scenarios of TODAY={os.environ['TODAY']}: {', '.join(chosen)}"


FOLDERS = ("unit", "torch", "end_to_end")
"""A test belongs to one of them, and has its name as a mark."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test is marked with its folder: `pytest -m "not end_to_end"`."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0] if here in item.path.parents else ""
        if folder in FOLDERS:
            item.add_marker(folder)


@pytest.fixture(scope="module", autouse=True)
def _environment() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """That of a desk: a continuous integration service announces itself. What a library writes into
    it (Dask its threads and a hash seed, inductor its cache as soon as it is imported) ends with a
    module: it reaches no program of another one, which then could not be a fork
    (`fork_client.py`)."""
    before = dict(os.environ)
    for name in (*ANNOUNCING, "TORCHINDUCTOR_CACHE_DIR"):
        os.environ.pop(name, None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Nothing is compiled or counted by another test."""
    import torch
    from torch._dynamo import utils

    torch._dynamo.reset()
    utils.clear_compilation_metrics()
    utils.counters.clear()
    yield
    torch._dynamo.reset()
