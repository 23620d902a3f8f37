"""What every test with torch starts from: no time limit of a collector ends its work early."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from compilediag_harness.collectors import recompile_risks, recompiles

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]


@pytest.fixture(scope="module", autouse=True)
def _dynamo(_environment: None) -> None:  # pyright: ignore[reportUnusedFunction]
    """Its loggers are there, whichever test is the first; importing it names inductor's folder in
    the environment."""
    import_module("torch._dynamo")


@pytest.fixture(autouse=True)
def _unlimited(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """On a busy machine the milliseconds of a collector pass while it does nothing."""
    monkeypatch.setattr(recompile_risks, "BUDGET_S", 60.0)
    monkeypatch.setattr(recompiles, "_BUDGET_S", 60.0)
