"""What every test with torch starts from: no time limit of a collector ends its work early."""

from __future__ import annotations

import pytest

from compilediag_harness.collectors import hazards, recompiles


@pytest.fixture(autouse=True)
def _unlimited(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """On a busy machine the milliseconds of a collector pass while it does nothing."""
    monkeypatch.setattr(hazards, "BUDGET_S", 60.0)
    monkeypatch.setattr(recompiles, "_BUDGET_S", 60.0)
